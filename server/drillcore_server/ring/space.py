"""Which bytes of the data area the next record gets.

Positions count every byte that was ever given out, so they only grow; a position's offset in the area is
`position % size`. What is held lies between tail and head:

    ....tail########head....        offset of head after offset of tail: free to the end, then from 0 to tail
    ####head........tail####        wrapped: free from head to tail

A record is contiguous. When the bytes before the end of the area are too few, they are skipped, and become
free again together with the record that follows them.
"""

from __future__ import annotations

from typing import NamedTuple

from drillcore_server.ring.layout import RECORD_ALIGNMENT, align_up


class Span(NamedTuple):
    """Bytes given to one record."""

    offset: int
    """First byte in the area."""
    length: int
    end: int
    """Position to pass to `free` when the record is released; everything before it is free then too."""


class ByteSpace:
    """Gives out contiguous spans of a circular area and takes them back in the same order."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.head = 0
        self.tail = 0

    def take(self, min_bytes: int, max_bytes: int, granule: int) -> Span | None:
        """The largest span now free of at most `max_bytes`, a multiple of `granule`; `None` if `min_bytes` do not fit.

        Args:
            min_bytes: a multiple of `granule`, 1 <= min_bytes <= max_bytes.
            max_bytes: a multiple of `granule`.
            granule: bytes that must not be cut.
        """
        run = self._run(min_bytes)
        if run is None:
            return None
        start, free = run
        if self.head == self.tail:
            self.tail = start
        length = min(max_bytes, free // granule * granule)
        self.head = start + align_up(length, RECORD_ALIGNMENT)
        return Span(start % self.size_bytes, length, self.head)

    def has(self, num_bytes: int) -> bool:
        """Whether `take` would give `num_bytes` in one span."""
        return self._run(num_bytes) is not None

    def free(self, end: int) -> None:
        """Takes back everything before the position `end`; an older position than the last one changes nothing."""
        self.tail = max(self.tail, end)

    def _run(self, min_bytes: int) -> tuple[int, int] | None:
        """Start position and length of the first free run of at least `min_bytes`."""
        to_end = self.size_bytes - self.head % self.size_bytes
        free = self.size_bytes - (self.head - self.tail)
        if min(to_end, free) >= min_bytes:
            return self.head, min(to_end, free)
        # With nothing held, the skipped bytes are free at once and the whole area is one run.
        after_skip = self.size_bytes if self.head == self.tail else free - to_end
        return (self.head + to_end, after_skip) if after_skip >= min_bytes else None
