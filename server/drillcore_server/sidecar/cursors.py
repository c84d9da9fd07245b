"""Cursors that move in order over work that is done out of order."""

from __future__ import annotations


class InOrderCursor:
    """The end of the unbroken run of completed records: everything below `value` is complete.

    complete  [0, 2)  [3, 7)        value 2
    complete  [2, 3)                value 7
    """

    def __init__(self, start: int) -> None:
        self.value = start
        self._ahead: dict[int, int] = {}

    def complete(self, first: int, end: int) -> None:
        """Marks the records [first, end) as complete; each record once, in any order."""
        if first != self.value:
            self._ahead[first] = end
            return
        self.value = end
        while (following := self._ahead.pop(self.value, None)) is not None:
            self.value = following


class Spans:
    """Ranges [first, end) in the order of their ends, neighbours joined."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def add(self, first: int, end: int) -> None:
        """Adds a range that begins at or after the end of the last one."""
        if self._spans and self._spans[-1][1] == first:
            first = self._spans.pop()[0]
        self._spans.append((first, end))

    def take(self) -> tuple[tuple[int, int], ...]:
        """All ranges; none are left."""
        spans, self._spans = tuple(self._spans), []
        return spans

    def __bool__(self) -> bool:
        return bool(self._spans)
