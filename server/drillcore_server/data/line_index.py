"""Where the rows of a line-based file are, in memory that grows with a thousandth of its rows.

A row is a line that holds more than white space. The index keeps the place of every 1,024th row and walks
from there, so that a file of any size is opened by one pass of constant memory, and a shard starts reading near
its first row.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

import numpy as np

ROWS_PER_CHECKPOINT = 1024
UTF8_BOM = b"\xef\xbb\xbf"
_NEWLINE = 10
_IS_SPACE = np.zeros(256, dtype=bool)
_IS_SPACE[[9, 10, 11, 12, 13, 32]] = True


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The place of a line that holds a row."""

    row: int
    """Rows of the file before it."""
    line: int
    """Lines of the file before it."""
    offset: int
    """Bytes of the file before it."""


@dataclass(slots=True)
class LineIndex:
    """Every ROWS_PER_CHECKPOINT-th row of a file."""

    num_rows: int = 0
    lines: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))

    def nearest(self, row: int) -> Checkpoint:
        """The last indexed row at or before `row`, 0 <= row < num_rows."""
        index = row // ROWS_PER_CHECKPOINT
        return Checkpoint(index * ROWS_PER_CHECKPOINT, self.lines[index], self.offsets[index])


class LineIndexer:
    """Builds a LineIndex from the consecutive chunks of a file."""

    def __init__(self) -> None:
        self._index = LineIndex()
        self._num_lines = 0
        self._num_bytes = 0
        self._line_start = 0
        self._is_open_line_blank = True

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the file."""
        if self._num_bytes == 0 and chunk.startswith(UTF8_BOM):
            # The mark is no text: a line that holds nothing else is blank.
            chunk = b"   " + chunk[len(UTF8_BOM) :]
        values = np.frombuffer(chunk, dtype=np.uint8)
        ends = np.flatnonzero(values == _NEWLINE)
        if len(ends) == 0:
            self._is_open_line_blank &= chunk.isspace() or not chunk
        else:
            self._add_lines(chunk, values, ends)
        self._num_bytes += len(chunk)

    def finish(self) -> LineIndex:
        """The index, when every byte was added."""
        if not self._is_open_line_blank:
            self._note_rows(np.array([self._num_lines]), np.array([self._line_start]))
        return self._index

    def _add_lines(self, chunk: bytes, values: np.ndarray, ends: np.ndarray) -> None:
        """Take a chunk that ends at least one line."""
        starts = np.concatenate(([0], ends[:-1] + 1))
        is_row = ~_IS_SPACE[values[starts]]
        for suspect in np.flatnonzero(~is_row):
            is_row[suspect] = not _is_blank(chunk, starts[suspect], ends[suspect])
        is_row[0] |= not self._is_open_line_blank
        offsets = starts + self._num_bytes
        offsets[0] = self._line_start
        rows = np.flatnonzero(is_row)
        self._note_rows(rows + self._num_lines, offsets[rows])
        self._num_lines += len(ends)
        self._line_start = self._num_bytes + int(ends[-1]) + 1
        self._is_open_line_blank = _is_blank(chunk, int(ends[-1]) + 1, len(chunk))

    def _note_rows(self, lines: np.ndarray, offsets: np.ndarray) -> None:
        first = -self._index.num_rows % ROWS_PER_CHECKPOINT
        self._index.lines.extend(lines[first::ROWS_PER_CHECKPOINT].tolist())
        self._index.offsets.extend(offsets[first::ROWS_PER_CHECKPOINT].tolist())
        self._index.num_rows += len(lines)


def _is_blank(chunk: bytes, start: int, end: int) -> bool:
    return not chunk[start:end].strip()
