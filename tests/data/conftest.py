"""A small tokenizer in the manner of Llama 3, datasets in folders, and chat templates of several families."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from drillcore.records import QuarantineEntry
from drillcore_server.data import Dataset, PreparedRow, RowPreparer, open_dataset
from drillcore_server.data.tokenizer import Tokenizer
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import DatasetSource

SPECIAL_TOKENS = (
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "[INST]", "[/INST]",
)  # fmt: skip
VOCAB_SIZE = 1000
TRAINING_TEXT = (
    "The answer is in the question. What is the colour of the sea? The sea is blue, the sand is white."
    " Tell me about the weather: it is raining again, and the rain is cold."
)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a byte-level BPE tokenizer that adds <s> to texts, and a config with VOCAB_SIZE embeddings."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tokenizer")
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator([TRAINING_TEXT] * 4, trainer)
    bos = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))])
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), bos])
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    fast.chat_template = (Path(__file__).parent / "templates/llama3.jinja").read_text()
    fast.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": VOCAB_SIZE}))
    return folder


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: Path) -> Tokenizer:
    return Tokenizer(tokenizer_folder)


@pytest.fixture(scope="session")
def template_text() -> Callable[[str], str]:
    """`template_text("qwen3")`: the chat template of that name in templates/."""
    return lambda name: (Path(__file__).parent / f"templates/{name}.jinja").read_text()


@pytest.fixture
def source_of(tmp_path: Path) -> Callable[..., DatasetSource]:
    """`source_of("*.jsonl", columns={"text": "text"})`: a dataset source under tmp_path."""

    def make(pattern: str = "*.jsonl", *, columns: dict[str, str] | None = None, **fields: Any) -> DatasetSource:
        uri = f"file://{tmp_path}/{pattern}"
        return DatasetSource.model_validate({"uri": uri, "columns": columns or {"text": "text"}} | fields)

    return make


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    """`write_rows([{"text": "a"}, b"broken"], "a.jsonl")`: a JSON Lines file under tmp_path; bytes as they are."""

    def write(rows: Iterable[Any], name: str = "rows.jsonl") -> Path:
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return write


@pytest.fixture
def opened(source_of: Callable[..., DatasetSource]) -> Callable[..., Dataset]:
    """`opened(columns=...)`: the dataset of `source_of` with the same arguments."""
    return lambda *args, **fields: open_dataset(source_of(*args, **fields), Volumes(Path("/nowhere")))


@pytest.fixture
def prepared(
    tokenizer_folder: Path, source_of: Callable[..., DatasetSource]
) -> Callable[..., list[PreparedRow | QuarantineEntry]]:
    """`prepared(max_model_len=8, columns=...)`: every row of the dataset under tmp_path."""

    def prepare(
        *, max_model_len: int = 512, preparer: dict[str, Any] | None = None, **fields: Any
    ) -> list[PreparedRow | QuarantineEntry]:
        source = source_of(**fields)
        dataset = open_dataset(source, Volumes(Path("/nowhere")))
        rows = list(dataset.read(range(dataset.num_rows)))
        return RowPreparer(tokenizer_folder, source, max_model_len, **preparer or {}).prepare_batch(rows)

    return prepare
