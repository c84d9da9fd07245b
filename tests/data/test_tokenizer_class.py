"""The short way to a tokenizer gives the one that AutoTokenizer gives, and is taken only where it does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from drillcore_server.data.tokenizer_class import is_generic, load_tokenizer

TEXTS = ["a b c", "", "c <s> a", "x"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with a tokenizer of the generic class, which adds BOS."""
    words = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "a": 2, "b": 3, "c": 4}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_special_tokens(["<s>"])
    words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    words.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, "llama", tokenizer_class="PreTrainedTokenizerFast", bos_token="<s>", unk_token="<unk>")
    return tmp_path


def write(folder: Path, model_type: str, **tokenizer_config: object) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen3"])
@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "TokenizersBackend"])
def test_it_is_the_tokenizer_that_auto_tokenizer_gives(folder: Path, model_type: str, name: str) -> None:
    from transformers import AutoTokenizer

    write(folder, model_type, tokenizer_class=name, bos_token="<s>", unk_token="<unk>", model_max_length=77)
    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    assert is_generic(folder)
    assert type(ours) is type(theirs)
    assert ours(TEXTS)["input_ids"] == theirs(TEXTS)["input_ids"]
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.model_max_length == theirs.model_max_length


@pytest.mark.parametrize(
    ("model_type", "config"),
    [
        ("qwen2", {"tokenizer_class": "PreTrainedTokenizerFast"}),
        ("qwen3", {"tokenizer_class": "Qwen2Tokenizer"}),
        ("llama", {}),
        ("llama", {"tokenizer_class": "PreTrainedTokenizerFast", "auto_map": {"AutoTokenizer": "own.py"}}),
    ],
)
def test_everything_else_is_left_to_auto_tokenizer(folder: Path, model_type: str, config: dict[str, object]) -> None:
    write(folder, model_type, **config)
    assert not is_generic(folder)


def test_a_folder_without_tokenizer_files_is_left_to_auto_tokenizer(tmp_path: Path) -> None:
    assert not is_generic(tmp_path)
    with pytest.raises((OSError, ValueError)):
        load_tokenizer(tmp_path)


def test_the_short_way_imports_no_generation_code(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from drillcore_server.data.tokenizer import Tokenizer; "
        "Tokenizer(Path(sys.argv[1])); print('transformers.models.auto.auto_factory' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
