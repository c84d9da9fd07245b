"""What one row of the dataset becomes: the end of a sample, or a line of the quarantine file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from drillcore.json_fields import Fields, JsonValue


@dataclass(frozen=True, eq=False)
class SampleEnd:
    """Everything about a sample but its hidden states, which were appended before.

    S tokens of the sequence, P states that were stored, C columns (captured layers).
    """

    row: int
    """Row of the dataset, counted from 0 over all files."""
    id: str | None
    """The dataset's own id of the row."""
    token_ids: npt.NDArray[np.int64]
    """[S]: the whole sequence, also when fewer states are stored."""
    num_prompt_tokens: int
    """Tokens before the first generated one; S when nothing was generated."""
    original_tokens: int
    """Tokens before truncation."""
    last_token: int | None
    """The token sampled last, which was never an input and has no state."""
    num_states: int
    """P."""
    positions: npt.NDArray[np.int32] | None
    """[P]: the token of each state; None when every token has one, and for means."""
    loss_mask: npt.NDArray[np.uint8] | None
    """[S]: 1 where the token is supervised."""
    norm_sums: npt.NDArray[np.float64]
    """[C]: the sum of the L2 norms of the stored states."""
    max_abs: npt.NDArray[np.float64]
    """[C]: the largest absolute element of the stored states."""
    first_state: int = 0
    """Index of the sample's first stored state among its states."""


class QuarantineReason(StrEnum):
    """Why a row cannot be extracted."""

    UNREADABLE_ROW = "UnreadableRow"
    BAD_COLUMN = "BadColumn"
    EMPTY = "Empty"
    NOTHING_SELECTED = "NothingSelected"
    NO_ASSISTANT_TURN = "NoAssistantTurn"
    TOO_LONG = "TooLong"
    NON_FINITE_STATE = "NonFiniteState"
    ZERO_STATE = "ZeroState"


_QUARANTINE_REASONS = tuple(reason.value for reason in QuarantineReason)


@dataclass(frozen=True)
class QuarantineEntry:
    """One line of the quarantine file."""

    row: int
    file: str
    """Path of the dataset file, relative to the dataset's root."""
    line: int
    """Line of the file from 1, or row of a columnar file from 1; 0 when unknown."""
    id: str | None
    reason: QuarantineReason
    message: str
    """What was expected and what was got."""
    skipped: bool = False
    """Left out on request (`overlong: Skip`): not held against the job."""

    def to_json(self) -> JsonValue:
        """The JSON object of the line."""
        return {
            "row": self.row,
            "file": self.file,
            "line": self.line,
            "id": self.id,
            "reason": self.reason.value,
            "message": self.message,
            "skipped": self.skipped,
        }

    @classmethod
    def from_json(cls, value: JsonValue, path: Path, where: str = "") -> QuarantineEntry:
        """The entry that a line of `path` holds.

        Raises:
            FormatError: when the object is anything else.
        """
        fields = Fields(value, path, where)
        reason = fields.text("reason")
        if reason not in _QUARANTINE_REASONS:
            raise fields.error("reason", f"must be one of {', '.join(_QUARANTINE_REASONS)}; got {reason[:80]!r}")
        return cls(
            row=fields.integer("row"),
            file=fields.text("file"),
            line=fields.integer("line"),
            id=fields.optional_text("id"),
            reason=QuarantineReason(reason),
            message=fields.text("message"),
            skipped=fields.boolean("skipped"),
        )
