"""A safetensors file, memory-mapped: numpy views of its tensors, every claim of its header checked first.

Source of the format: https://github.com/huggingface/safetensors#format. Why not that library's reader: its
numpy side does not map, and views must outlive the file object here.
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drillcore.dtypes import NUMPY_DTYPES
from drillcore.errors import FormatError, ReadError
from drillcore.json_fields import Fields, parse_json

_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class TensorFile:
    """An open file. Views of it stay valid after the object is gone, and when the file is unlinked."""

    def __init__(self, path: Path) -> None:
        """Map the file and check its header.

        Raises:
            FormatError: when the file is missing or no safetensors file.
            ReadError: when it cannot be read or mapped.
        """
        self.path = path
        self._map = _mapped(path)
        header = self._header()
        self._data_start = 8 + int.from_bytes(self._map[:8], "little")
        self.metadata: dict[str, str] = {}
        if "__metadata__" in header.value:
            metadata = header.object("__metadata__")
            self.metadata = {key: metadata.text(key) for key in metadata.names()}
        self._entries = {name: self._entry(header.object(name)) for name in header.names() if name != "__metadata__"}
        self._check_coverage()

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def array(self, name: str, dtype: str, *shape: int | None) -> npt.NDArray[Any]:
        """A read-only view of one tensor.

        Args:
            name: of the tensor.
            dtype: its safetensors name.
            shape: the expected shape; None for any length.

        Raises:
            FormatError: when it is missing, or of another type or shape.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise FormatError(self.path, f"tensor `{name}` is missing")
        fits = len(entry.shape) == len(shape) and all(
            expected in (None, length) for expected, length in zip(shape, entry.shape, strict=True)
        )
        if entry.dtype != dtype or not fits:
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            raise FormatError(
                self.path, f"tensor `{name}` must be {dtype} [{wanted}]; got {entry.dtype} {list(entry.shape)[:8]}"
            )
        return self._view(name, entry)

    def read_into(self, name: str, first_byte: int, out: memoryview) -> None:
        """Read bytes of one tensor by system calls: a long run costs less so than through the page faults of the map.

        Args:
            name: of the tensor.
            first_byte: among the tensor's.
            out: where to; so many bytes are read.

        Raises:
            ReadError: when they cannot be read.
        """
        position = self._data_start + self._entries[name].begin + first_byte
        try:
            # Opened for each run: an open file for each part besides its map would use up a process's descriptors.
            with self.path.open("rb", buffering=0) as file:
                file.seek(position)
                while out:
                    count = file.readinto(out)
                    if not count:
                        raise FormatError(self.path, f"must be longer than {file.tell()} bytes, as it was before")
                    out = out[count:]
        except OSError as error:
            raise ReadError(self.path, error) from error

    def _view(self, name: str, entry: _Entry) -> npt.NDArray[Any]:
        dtype = NUMPY_DTYPES[entry.dtype]
        try:
            if entry.begin == entry.end:
                return np.empty(entry.shape, dtype)
            view = np.ndarray(entry.shape, dtype, buffer=self._map, offset=self._data_start + entry.begin)
        except ValueError as error:
            raise FormatError(self.path, f"tensor `{name}` has an impossible shape: {error}") from None
        view.flags.writeable = False
        return view

    def _header(self) -> Fields:
        length = int.from_bytes(self._map[:8], "little")
        if length > _MAX_HEADER_BYTES or 8 + length > len(self._map):
            raise FormatError(self.path, f"header length {length} exceeds the file of {len(self._map)} bytes")
        return Fields(parse_json(self._map[8 : 8 + length], self.path), self.path)

    def _entry(self, tensor: Fields) -> _Entry:
        dtype, shape, offsets = tensor.text("dtype"), tensor.integers("shape"), tensor.integers("data_offsets")
        if dtype not in NUMPY_DTYPES:
            raise tensor.error("dtype", f"must be one of {', '.join(NUMPY_DTYPES)}; got {dtype[:80]!r}")
        if len(offsets) != 2 or len(shape) > 8:
            raise tensor.error("data_offsets", "must be [begin, end], of a tensor of at most 8 dimensions")
        if offsets[1] - offsets[0] != math.prod(shape) * NUMPY_DTYPES[dtype].itemsize:
            raise tensor.error("data_offsets", "must span as many bytes as the shape needs")
        return _Entry(dtype, shape, offsets[0], offsets[1])

    def _check_coverage(self) -> None:
        end = 0
        for entry in sorted(self._entries.values(), key=lambda e: (e.begin, e.end)):
            if entry.begin != end:
                raise FormatError(self.path, f"there is a gap or an overlap before a tensor at {entry.begin}")
            end = entry.end
        if self._data_start + end != len(self._map):
            raise FormatError(
                self.path, f"must be {self._data_start + end} bytes long by its header; it has {len(self._map)}"
            )


def _mapped(path: Path) -> mmap.mmap:
    """The map of a file: private and writable, because torch knows no tensors that are not."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < 8:
                raise FormatError(path, "a safetensors file has at least 8 bytes")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except FileNotFoundError:
        raise FormatError(path, "the file is missing") from None
    except OSError as error:
        raise ReadError(path, error) from error
