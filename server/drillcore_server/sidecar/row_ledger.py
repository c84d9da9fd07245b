"""Every row of the shard once: stored, or quarantined, or still to come."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

_GROWTH = 65_536


class RowLedger:
    """Refuses a row that is not this shard's or came before; counts.

    A byte a row: the rows of a shard are a contiguous range. Where rows are contexts, quarantined rows are rows of
    the dataset, numbered apart, and the number of contexts is not known before the end.
    """

    def __init__(self, first_row: int, rows_in: int | None, *, rows_are_contexts: bool) -> None:
        self._first_row = first_row
        self._rows_in = rows_in
        self._apart = rows_are_contexts
        self._stored = bytearray(rows_in or 0)
        self._quarantined: set[int] = set()
        self.num_stored = 0

    @property
    def num_quarantined(self) -> int:
        """Rows that cannot be extracted."""
        return len(self._quarantined)

    @property
    def num_rows(self) -> int:
        """Rows that are accounted for."""
        return self.num_stored + self.num_quarantined

    def recover(self, stored: NDArray[np.int64], quarantined: list[int]) -> None:
        """Enters the rows of earlier attempts: ascending, each once, none in both."""
        if len(stored):
            self._checked(int(stored[0]))
            last = self._checked(int(stored[-1]))
            self._stored.extend(bytes(max(0, last + 1 - len(self._stored))))
            np.frombuffer(self._stored, np.uint8)[stored - self._first_row] = 1
        self.num_stored = len(stored)
        for row in quarantined:
            self.quarantine(row)

    def store(self, row: int) -> None:
        """Enters a row whose sample is whole.

        Raises:
            ShardError: Internal, when the row is not this shard's or is here already.
        """
        index = self._checked(row)
        if index >= len(self._stored):
            self._stored.extend(bytes(index + 1 - len(self._stored) + _GROWTH))
        if self._stored[index] or (row in self._quarantined and not self._apart):
            raise self._error(f"row {row} came twice")
        self._stored[index] = 1
        self.num_stored += 1

    def quarantine(self, row: int) -> bool:
        """Enters a row that cannot be extracted; raises as `store`.

        Returns:
            Whether it is new: contexts are packed from the first row on in each attempt, so that the rows that an
            earlier attempt quarantined come again.
        """
        if not self._apart:
            index = self._checked(row)
            if index < len(self._stored) and self._stored[index]:
                raise self._error(f"row {row} was stored and is quarantined now")
        is_new = row not in self._quarantined
        if not is_new and not self._apart:
            raise self._error(f"row {row} came twice")
        self._quarantined.add(row)
        return is_new

    def require_all(self) -> int:
        """The number of rows in, once every row is accounted for.

        Raises:
            ShardError: Internal, when rows are missing.
        """
        if self._rows_in is not None and self.num_rows != self._rows_in:
            raise self._error(
                f"expected {self._rows_in} rows from {self._first_row} on; got {self.num_stored} stored and "
                f"{self.num_quarantined} quarantined at END"
            )
        return self.num_rows

    def _checked(self, row: int) -> int:
        index = row - self._first_row
        if index < 0 or (self._rows_in is not None and index >= self._rows_in):
            raise self._error(f"row {row} is not of this shard: {self._rows_in} rows from {self._first_row} on")
        return index

    def _error(self, problem: str) -> ShardError:
        return ShardError(Reason.INTERNAL, f"the server's records are wrong: {problem}; please report this")
