"""Messages between a shard's pod and whoever watches it: the termination message and progress reports.

Readers ignore keys that they do not know: pods of an older image report to a newer operator and the reverse.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from drillcore_spec.enums import ShardState
from drillcore_spec.reasons import Reason

MAX_TERMINATION_BYTES = 3500
"""Longest termination message; kubelet cuts at 4096 bytes, and at 12 KiB for all containers of a pod."""

Count = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]
AttemptId = Annotated[str, Field(strict=True, pattern="^[0-9a-f]{8}$")]


class Message(BaseModel):
    """JSON with camelCase keys."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="ignore",
        frozen=True,
    )

    def to_json(self) -> str:
        """One line of JSON."""
        return self.model_dump_json()


class Counts(Message):
    """What a shard has done, as in its commit.json: rowsIn = rowsOut + rowsQuarantined."""

    rows_in: Count = 0
    rows_out: Count = 0
    rows_quarantined: Count = 0
    rows_skipped: Count = 0
    """Rows left out by `overlong: Skip`; they are quarantined rows too."""
    tokens: Count = 0
    states: Count = 0
    bytes: Count = 0


class TerminationMessage(Message):
    """Why the server ended; the last line that it writes to /dev/termination-log."""

    code: Annotated[int, Field(strict=True, ge=0, le=255)]
    reason: Reason
    message: str = ""
    counts: Counts = Field(default_factory=Counts)

    def to_line(self) -> str:
        """One line of JSON of at most `MAX_TERMINATION_BYTES` bytes; the message's end is cut if it must
        be.
        """
        line = self.to_json()
        if len(line.encode()) <= MAX_TERMINATION_BYTES:
            return line
        lengths = range(len(self.message))
        too_long = bisect_right(lengths, MAX_TERMINATION_BYTES, key=lambda n: len(self._cut(n).encode()))
        return self._cut(max(0, too_long - 1))

    def _cut(self, num_characters: int) -> str:
        return self.model_copy(update={"message": self.message[:num_characters] + "..."}).to_json()

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """The message in a terminated container's status; None if there is none (logs of a crash stand
        there then).
        """
        try:
            return cls.model_validate_json(text.strip().rpartition("\n")[2])
        except ValidationError:
            return None


class ProgressReport(Message):
    """Cumulative counts of one shard, posted by its sidecar; sending one twice changes nothing.

    `rows_done` are durable and quarantined rows, those of earlier attempts included. `seq` orders the
    reports of an attempt; a report of another attempt never lowers counts.
    """

    shard: Annotated[int, Field(strict=True, ge=0, le=99_999)]
    attempt: AttemptId
    seq: Count
    rows_total: Count
    rows_done: Count
    rows_quarantined: Count
    tokens: Count
    bytes: Count
    state: ShardState
