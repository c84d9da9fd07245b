"""The safetensors files of a model folder: what is stored where, checked before a byte of it is used.

A safetensors file is an 8-byte little-endian header length, a JSON header `{name: {dtype, shape,
data_offsets: [begin, end]}}` with offsets from the header's end, and the data.
Source: https://github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
_ITEM_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of one file."""

    key: str
    path: Path
    dtype: str
    """The format's name: F32, BF16, ..."""
    shape: tuple[int, ...]
    offset: int
    """First byte, from the start of the file."""
    num_bytes: int


@dataclass(frozen=True)
class SafetensorsFile:
    """One file's header."""

    path: Path
    size_bytes: int
    header: bytes
    tensors: Mapping[str, StoredTensor]

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        """Reads and checks the header.

        Raises:
            ShardError: MODEL_BROKEN, naming the file, when it is cut off or not safetensors;
                MODEL_UNAVAILABLE when it cannot be read.
        """
        try:
            size_bytes = path.stat().st_size
            with path.open("rb") as file:
                header_bytes = int.from_bytes(file.read(8), "little")
                limit = min(_MAX_HEADER_BYTES, size_bytes - 8)
                if header_bytes > limit:
                    raise _broken(path, f"its header must be at most {max(limit, 0)} bytes; got {header_bytes}")
                header = file.read(header_bytes)
        except FileNotFoundError:
            raise _broken(path, "it is not there") from None
        except OSError as error:
            raise ShardError(Reason.MODEL_UNAVAILABLE, f"{path} cannot be read: {error.strerror}") from error
        data_start = 8 + header_bytes
        tensors = {
            key: _stored(path, key, entry, data_start)
            for key, entry in _json_object(path, header).items()
            if key != "__metadata__"
        }
        expected = max((t.offset + t.num_bytes for t in tensors.values()), default=data_start)
        if size_bytes != expected:
            raise _broken(path, f"its header describes {expected} bytes; got {size_bytes}")
        return cls(path, size_bytes, header, tensors)


@dataclass(frozen=True)
class Checkpoint:
    """All weights of a model folder."""

    folder: Path
    files: tuple[SafetensorsFile, ...]
    tensors: Mapping[str, StoredTensor]

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """The checkpoint in `model.safetensors`, or in the files that the index names.

        Raises:
            ShardError: MODEL_BROKEN for missing, cut off or contradictory files; MODEL_UNSUPPORTED when there are
                weights of another format only; MODEL_UNAVAILABLE when a file cannot be read.
        """
        if (folder / SINGLE_FILE).exists():
            file = SafetensorsFile.open(folder / SINGLE_FILE)
            return cls(folder, (file,), file.tensors)
        if not (folder / INDEX_FILE).exists():
            raise _no_weights(folder)
        file_of = _weight_map(folder / INDEX_FILE)
        files = {name: SafetensorsFile.open(folder / name) for name in sorted(set(file_of.values()))}
        for key, name in file_of.items():
            if key not in files[name].tensors:
                raise _broken(folder / name, f"the index says that it holds `{key}`; it does not")
        tensors = {key: files[name].tensors[key] for key, name in file_of.items()}
        return cls(folder, tuple(files.values()), tensors)


def weight_files(folder: Path) -> tuple[str, ...]:
    """Names of the weights files by the folder's index, or of the one file of a model without index.

    Raises:
        ShardError: MODEL_BROKEN for an index that names no files, MODEL_UNAVAILABLE when it cannot be read.
    """
    index = folder / INDEX_FILE
    return tuple(sorted(set(_weight_map(index).values()))) if index.exists() else (SINGLE_FILE,)


def _stored(path: Path, key: str, entry: Any, data_start: int) -> StoredTensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        sizes = (*shape, begin, end)
        whole = all(type(n) is int and n >= 0 for n in sizes) and (
            end - begin == math.prod(shape) * _ITEM_BITS[dtype] // 8
        )
    except (TypeError, ValueError, KeyError):
        whole = False
    if not whole:
        raise _broken(
            path, f"`{key[:200]}` must have a dtype, a shape and data_offsets that fit; got {reprlib.repr(entry)}"
        )
    return StoredTensor(key, path, dtype, shape, data_start + begin, end - begin)


def _weight_map(path: Path) -> dict[str, str]:
    """Key to file name, from the index."""
    try:
        weight_map = _json_object(path, path.read_bytes()).get("weight_map")
    except OSError as error:
        raise ShardError(Reason.MODEL_UNAVAILABLE, f"{path} cannot be read: {error.strerror}") from error
    plain = isinstance(weight_map, dict) and all(
        isinstance(name, str) and name == Path(name).name and name.endswith(".safetensors")
        for name in weight_map.values()
    )
    if not plain or not weight_map:
        raise _broken(path, "`weight_map` must map tensor names to safetensors files of this folder")
    return dict(weight_map)


def _json_object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"it holds no valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise _broken(path, f"it must hold a JSON object; got {type(value).__name__}")
    return value


def _no_weights(folder: Path) -> ShardError:
    others = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".gguf", ".h5"))
    if others:
        return ShardError(
            Reason.MODEL_UNSUPPORTED,
            f"{folder} must hold {SINGLE_FILE} or {INDEX_FILE}; got {others[0]}. "
            "Store the model with transformers' `save_pretrained` first",
        )
    return _broken(folder, f"it must hold {SINGLE_FILE} or {INDEX_FILE}; it has neither")


def _broken(path: Path, message: str) -> ShardError:
    return ShardError(Reason.MODEL_BROKEN, f"{path}: {message}. Copy the model again")
