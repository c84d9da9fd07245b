"""Which model made an output: digests of config, tokenizer and weights, cheap enough for every start."""

from __future__ import annotations

import hashlib
from pathlib import Path

from drillcore_server.errors import ShardError
from drillcore_server.models.checkpoint import Checkpoint, SafetensorsFile
from drillcore_spec.reasons import Reason

TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
"""All files that a tokenizer and its chat template can come from, sorted."""
_EDGE_BYTES = 4096
"""Bytes read from each end of a tensor: one page."""


def config_sha256(folder: Path) -> str:
    """sha256 of config.json, 64 hex digits: what `sha256sum` prints.

    Raises:
        ShardError: MODEL_BROKEN when there is none, MODEL_UNAVAILABLE when it cannot be read.
    """
    return hashlib.sha256(_content(folder / "config.json")).hexdigest()


def tokenizer_sha256(folder: Path) -> str:
    """sha256 over name, length and content of the tokenizer's files that the folder has, chat template included.

    Raises:
        ShardError: MODEL_UNAVAILABLE when one cannot be read.
    """
    digest = hashlib.sha256()
    for name in TOKENIZER_FILES:
        if (folder / name).exists():
            content = _content(folder / name)
            digest.update(f"{name}\n{len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def weights_fingerprint(folder: Path) -> str:
    """sha256 over the name, size and header of each weights file, and both ends of each tensor.

    It reads 8 KiB a tensor, not the whole: training and conversion change the ends of tensors too, but an edit of
    single values inside one goes unnoticed.

    Raises:
        ShardError: as `Checkpoint.open`.
    """
    digest = hashlib.sha256()
    for file in sorted(Checkpoint.open(folder).files, key=lambda file: file.path.name):
        digest.update(f"{file.path.name}\n{file.size_bytes}\n".encode())
        digest.update(file.header)
        _digest_edges(file, digest)
    return digest.hexdigest()


def _digest_edges(file: SafetensorsFile, digest: hashlib._Hash) -> None:
    """Adds the first and last 4 KiB of each tensor, in file order; they overlap in a small tensor."""
    try:
        with file.path.open("rb", buffering=0) as stream:
            for stored in sorted(file.tensors.values(), key=lambda stored: (stored.offset, stored.key)):
                length = min(_EDGE_BYTES, stored.num_bytes)
                for start in (stored.offset, stored.offset + stored.num_bytes - length):
                    stream.seek(start)
                    digest.update(stream.read(length))
    except OSError as error:
        raise _unreadable(file.path, error) from error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ShardError(
            Reason.MODEL_BROKEN, f"{path.parent} must be a model folder with a {path.name}; it has none"
        ) from None
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ShardError:
    return ShardError(Reason.MODEL_UNAVAILABLE, f"{path} cannot be read: {error.strerror}")
