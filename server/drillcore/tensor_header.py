"""The header of a safetensors file, as bytes.

Source: https://github.com/huggingface/safetensors#format. Eight bytes of length, then JSON, padded with spaces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from drillcore.dtypes import NUMPY_DTYPES

LENGTH_BYTES = 8
_WIDEST_OFFSET = 2**63 - 1
_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


@dataclass(frozen=True)
class TensorSpec:
    """What a header says about one tensor, but for its place."""

    dtype: str
    """Safetensors name."""
    shape: tuple[int, ...]
    bytes: int

    @classmethod
    def of(cls, tensor: npt.NDArray[Any]) -> TensorSpec:
        """What a header says about this array."""
        return cls(_NAMES[tensor.dtype], tensor.shape, tensor.nbytes)


def header_bytes(tensors: Mapping[str, TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """The header's JSON, without length and padding, of tensors that follow each other without gaps."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in tensors.items():
        offsets = [offset, offset + tensor.bytes]
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        offset += tensor.bytes
    return json.dumps(header, separators=(",", ":")).encode("ascii")


def padded_header(header: bytes, block_bytes: int) -> bytes:
    """The header block: length and JSON in exactly `block_bytes` bytes, which must be enough."""
    length = block_bytes - LENGTH_BYTES
    return length.to_bytes(LENGTH_BYTES, "little") + header.ljust(length)


def widest_header_bytes(names: tuple[str, ...], metadata: Mapping[str, str]) -> int:
    """Length that no header with tensors of these names can exceed."""
    widest = TensorSpec("BF16", (_WIDEST_OFFSET,) * 3, _WIDEST_OFFSET)
    return len(header_bytes(dict.fromkeys(names, widest), metadata)) + len(names) * len(str(_WIDEST_OFFSET))


def tensor_file_bytes(tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """A whole safetensors file; wide elements first, else in the order given, the data aligned to eight bytes."""
    ordered = dict(sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize))
    header = header_bytes({name: TensorSpec.of(tensor) for name, tensor in ordered.items()}, metadata)
    block = padded_header(header, -(-(LENGTH_BYTES + len(header)) // 8) * 8)
    return b"".join([block, *(np.ascontiguousarray(tensor).tobytes() for tensor in ordered.values())])
