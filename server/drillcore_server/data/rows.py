"""What goes through this room: a row as it was read, the same row as tokens, and why a row cannot be used.

RowFault        one row cannot be extracted; the other rows go on
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import Repr
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drillcore.records import QuarantineEntry, QuarantineReason


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A readable row of the dataset."""

    row: int
    """Counted from 0 over all files of the dataset, blank lines left out."""
    file: str
    """Path of the file, relative to the dataset's root."""
    line: int
    """Line of the file, or row of a columnar file, from 1."""
    record: Mapping[str, Any]
    """The row's columns."""
    num_bytes: int
    """Size in the file; a measure of the work that the row makes."""

    def quarantined(self, fault: RowFault, row_id: str | None = None) -> QuarantineEntry:
        """The line of the quarantine file that takes this row's place."""
        return QuarantineEntry(self.row, self.file, self.line, row_id, fault.reason, fault.message, fault.skipped)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRow:
    """A row as the model gets it: S tokens."""

    row: int
    file: str
    line: int
    id: str | None
    """The dataset's own id."""
    token_ids: NDArray[np.int64]
    """[S], 1 <= S <= max_model_len."""
    loss_mask: NDArray[np.uint8] | None
    """[S]: 1 where the token is supervised; None when the job asks for no mask."""
    original_tokens: int
    """Tokens before truncation: S when the row was not too long."""


@dataclass(slots=True)
class PreparationCounts:
    """What happened to rows that were not quarantined."""

    unsupervised_rows: int = 0
    """Rows with a loss mask in which no token is supervised: trainers learn nothing from them."""
    dropped_tokens: int = 0
    """Tokens at the end of a shard that filled no context."""


class RowFault(Exception):
    """A row that cannot be extracted, and why."""

    def __init__(self, reason: QuarantineReason, message: str, *, skipped: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.skipped = skipped


class _Short(Repr):
    """repr() of bounded length, whatever the value holds, that any file can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 60
        self.maxlist = self.maxdict = 3
        self.maxlevel = 2


_SHORT = _Short()


def shown(value: object) -> str:
    """A value from a file for a message: short, and free of lone surrogates."""
    return _SHORT.repr(value).encode("utf-8", "backslashreplace").decode()
