"""Walks over the wanted rows of a file while the file is read in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class RangeCursor:
    """Ascending ranges of wanted rows, cut to one block of the file after another."""

    def __init__(self, ranges: Iterable[range]) -> None:
        self._ranges = filter(len, ranges)
        self._current = next(self._ranges, None)

    @property
    def is_done(self) -> bool:
        """Whether nothing more is wanted."""
        return self._current is None

    def wants(self, rows: range) -> bool:
        """Whether a row of a block is wanted; blocks come in ascending order."""
        return self._current is not None and bool(rows) and self._current.start < rows.stop

    def cut(self, rows: range) -> Iterator[range]:
        """The wanted parts of a block."""
        while (wanted := self._current) is not None and wanted.start < rows.stop:
            if part := range(max(wanted.start, rows.start), min(wanted.stop, rows.stop)):
                yield part
            if wanted.stop > rows.stop:
                return
            self._current = next(self._ranges, None)
