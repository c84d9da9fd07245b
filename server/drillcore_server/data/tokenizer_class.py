"""Loads a model folder's tokenizer, by the shortest way that gives what `AutoTokenizer` would give.

Importing `AutoTokenizer` brings in transformers' generation code, and with it half of torch and whatever scientific
packages are installed: five seconds of a shard's start on a server. Where `tokenizer_config.json` asks for the generic
tokenizer class, nothing of that is needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_GENERIC_CLASSES: Final = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Two names of one class: everything it does stands in tokenizer.json."""
_GENERIC_MODEL_TYPES: Final = ("llama", "mistral", "qwen3")
"""For these `AutoTokenizer` believes what `tokenizer_config.json` says; for some others it knows better."""


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer that `AutoTokenizer.from_pretrained` gives; nothing is fetched, and no code of the folder is run.

    Raises:
        OSError, ValueError, KeyError, TypeError, ImportError: as transformers raises them.
    """
    if is_generic(folder):
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def is_generic(folder: Path) -> bool:
    """Whether the folder asks for the generic class, and `AutoTokenizer` would agree."""
    tokenizer, model = _fields(folder / "tokenizer_config.json"), _fields(folder / "config.json")
    return (
        (folder / "tokenizer.json").is_file()
        and tokenizer.get("tokenizer_class") in _GENERIC_CLASSES
        and "auto_map" not in tokenizer
        and model.get("model_type") in _GENERIC_MODEL_TYPES
    )


def _fields(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none, which is for transformers to judge."""
    try:
        fields = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}
