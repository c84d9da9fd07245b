"""The words of the header page."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.layout import (
    DESCRIPTOR_BYTES,
    DTYPE_BYTES,
    DTYPE_CODES,
    HEADER_BYTES,
    MAGIC,
    PAGE_BYTES,
    RING_VERSION,
    Word,
    align_up,
    descriptor_count_for,
)


@dataclass(frozen=True)
class RingShape:
    """The facts of a ring that never change: how large it is and what a state is."""

    file_bytes: int
    descriptor_count: int
    data_offset: int
    data_bytes: int
    dtype: str
    """F32, F16 or BF16."""
    columns: int
    """States of a token: the captured layers, and `finalNorm` if it is captured."""
    hidden: int

    @classmethod
    def plan(cls, size_bytes: int, *, dtype: str, columns: int, hidden: int) -> RingShape:
        """Divides a file of `size_bytes` (rounded down to whole pages) into header, descriptors and data.

        Raises:
            ValueError: when the dtype is unknown, a size is not positive, or not even one state fits.
        """
        if dtype not in DTYPE_BYTES or columns < 1 or hidden < 1:
            raise ValueError(
                f"expected a dtype of {sorted(DTYPE_BYTES)}, columns >= 1 and hidden >= 1; "
                f"got {dtype!r}, {columns}, {hidden}"
            )
        file_bytes = size_bytes // PAGE_BYTES * PAGE_BYTES
        count = descriptor_count_for(file_bytes)
        data_offset = align_up(HEADER_BYTES + count * DESCRIPTOR_BYTES, PAGE_BYTES)
        shape = cls(file_bytes, count, data_offset, file_bytes - data_offset, dtype, columns, hidden)
        if shape.data_bytes < max(shape.row_bytes, PAGE_BYTES):
            need = data_offset + align_up(max(shape.row_bytes, PAGE_BYTES), PAGE_BYTES)
            raise ValueError(f"a ring for states of {shape.row_bytes} bytes needs {need} bytes; got {size_bytes}")
        return shape

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's states."""
        return self.columns * self.hidden * DTYPE_BYTES[self.dtype]


class RingHeader:
    """Typed access to the header page of a mapped ring file.

    A read or write of an item of a `Q` view is one aligned 8-byte access, so the other process sees either the
    old value or the new one.
    """

    def __init__(self, page: memoryview) -> None:
        if sys.byteorder != "little":
            raise RingCorruptError(f"the ring needs a little-endian machine; this one is {sys.byteorder}-endian")
        self._words = page[:HEADER_BYTES].cast("Q")

    def __getitem__(self, word: Word) -> int:
        return self._words[word]

    def __setitem__(self, word: Word, value: int) -> None:
        self._words[word] = value

    def write_shape(self, shape: RingShape) -> None:
        """Writes the facts; the magic number comes last."""
        self[Word.VERSION] = RING_VERSION
        self[Word.FILE_BYTES] = shape.file_bytes
        self[Word.DESCRIPTOR_COUNT] = shape.descriptor_count
        self[Word.DATA_OFFSET] = shape.data_offset
        self[Word.DATA_BYTES] = shape.data_bytes
        self[Word.DTYPE] = DTYPE_CODES[shape.dtype]
        self[Word.COLUMNS] = shape.columns
        self[Word.HIDDEN] = shape.hidden
        self[Word.MAGIC] = MAGIC

    def read_shape(self, file_bytes: int) -> RingShape:
        """The facts, checked against each other and against the file's size.

        Raises:
            RingCorruptError: when this is not a ring of this version.
        """
        if self[Word.MAGIC] != MAGIC or self[Word.VERSION] != RING_VERSION:
            raise RingCorruptError(
                f"expected a ring of version {RING_VERSION}, got magic {self[Word.MAGIC]:#x} and version "
                f"{self[Word.VERSION]}; server and sidecar must be of the same release"
            )
        names = {code: name for name, code in DTYPE_CODES.items()}
        try:
            dtype = names[self[Word.DTYPE]]
            shape = RingShape.plan(file_bytes, dtype=dtype, columns=self[Word.COLUMNS], hidden=self[Word.HIDDEN])
        except (KeyError, ValueError) as error:
            raise RingCorruptError(f"the ring's header is inconsistent: {error}") from None
        stated = (self[Word.FILE_BYTES], self[Word.DESCRIPTOR_COUNT], self[Word.DATA_OFFSET], self[Word.DATA_BYTES])
        if stated != (shape.file_bytes, shape.descriptor_count, shape.data_offset, shape.data_bytes):
            raise RingCorruptError(f"the ring's header says {stated}, a file of {file_bytes} bytes must have {shape}")
        return shape
