"""How a run on this machine stands, in the words of an ExtractionJob's status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from drillcore_server.local import Progress, ShardResult
from drillcore_spec.status import (
    Condition,
    ConditionReason,
    ConditionStatus,
    ConditionType,
    ExtractionJobStatus,
    OutputStatus,
    Phase,
    ProgressStatus,
    ShardsStatus,
)
from drillcore_status.views import Shard, ShardPhase

MAX_MESSAGE_CHARACTERS = 32768
MAX_URI_CHARACTERS = 1024


@dataclass(frozen=True)
class RunState:
    """Everything that is known of a run at one moment."""

    num_shards: int
    start: str
    """RFC 3339."""
    output_uri: str
    progress: Mapping[int, Progress] = field(default_factory=dict)
    """The latest counts of the shards that have begun."""
    results: Mapping[int, ShardResult] | None = None
    """How the shards ended; None: the run goes on."""

    @property
    def phase(self) -> Phase:
        """One word for printing."""
        if self.results is None:
            return Phase.RUNNING
        return Phase.SUCCEEDED if self._failure is None else Phase.FAILED

    def status(self) -> ExtractionJobStatus:
        """The whole status."""
        progress = self._progress()
        return ExtractionJobStatus(
            phase=self.phase,
            conditions=(self._progressing(), self._succeeded()),
            start_time=self.start,
            progress=progress,
            shards=self._shards(),
            output=OutputStatus(uri=self.output_uri[:MAX_URI_CHARACTERS], bytes=progress.bytes),
        )

    def shard(self, index: int) -> Shard:
        """One shard."""
        progress = self.progress.get(index, Progress())
        result = (self.results or {}).get(index)
        is_failed = result is not None and not result.ok
        return Shard(
            index=index,
            phase=self._shard_phase(index, is_failed=is_failed),
            rows_total=progress.rows_total or None,
            rows_done=progress.rows_done,
            rows_quarantined=progress.rows_quarantined,
            tokens=progress.tokens,
            bytes=progress.bytes,
            reason=result.reason if result and is_failed else "",
            message=result.message if result and is_failed else "",
        )

    @property
    def num_rows_written(self) -> int:
        """Rows that are written or quarantined, durable or not: what a person watches."""
        return sum(p.rows_written + p.rows_quarantined for p in self.progress.values())

    @property
    def _failure(self) -> ShardResult | None:
        return next((result for result in (self.results or {}).values() if not result.ok), None)

    def _progress(self) -> ProgressStatus:
        """Rows are done once they are durable; the percentage moves with what is written."""
        counts = self.progress.values()
        totals = [p.rows_total for p in counts if p.rows_total]
        rows_total = sum(totals) if len(totals) == self.num_shards else None
        percentage = min(99, 100 * self.num_rows_written // rows_total) if rows_total else 0
        if self.phase is Phase.SUCCEEDED:
            percentage = 100
        return ProgressStatus(
            rows_done=sum(p.rows_done for p in counts),
            rows_total=rows_total,
            rows_quarantined=sum(p.rows_quarantined for p in counts),
            percentage=percentage,
            summary=f"{percentage}%",
            tokens=sum(p.tokens for p in counts),
            bytes=sum(p.bytes for p in counts),
        )

    def _shards(self) -> ShardsStatus:
        num_committed = sum(p.state == "Committed" for p in self.progress.values())
        failed = [index for index, result in (self.results or {}).items() if not result.ok]
        return ShardsStatus(
            total=self.num_shards,
            active=1 if self.results is None else 0,
            succeeded=num_committed,
            failed=len(failed),
            failed_indexes=",".join(map(str, failed)) or None,
            summary=f"{num_committed}/{self.num_shards}",
        )

    def _shard_phase(self, index: int, *, is_failed: bool) -> ShardPhase:
        if is_failed:
            return ShardPhase.FAILED
        if index not in self.progress:
            return ShardPhase.PENDING
        return ShardPhase.COMMITTED if self.progress[index].state == "Committed" else ShardPhase.RUNNING

    def _progressing(self) -> Condition:
        if self.results is None:
            message = "rows are being extracted on this machine"
            return self._condition(ConditionType.PROGRESSING, ConditionStatus.TRUE, ConditionReason.RUNNING, message)
        message = "the job is over"
        return self._condition(ConditionType.PROGRESSING, ConditionStatus.FALSE, ConditionReason.FINISHED, message)

    def _succeeded(self) -> Condition:
        type_, failure = ConditionType.SUCCEEDED, self._failure
        if self.results is None:
            return self._condition(type_, ConditionStatus.UNKNOWN, ConditionReason.RUNNING, "")
        if failure is None:
            message = "every shard is committed"
            return self._condition(type_, ConditionStatus.TRUE, ConditionReason.SUCCEEDED, message)
        return self._condition(
            type_, ConditionStatus.FALSE, failure.reason, f"shard {failure.shard}: {failure.message}"
        )

    def _condition(self, type_: ConditionType, status: ConditionStatus, reason: str, message: str) -> Condition:
        return Condition(
            type=type_,
            status=status,
            reason=reason,
            message=message[:MAX_MESSAGE_CHARACTERS],
            last_transition_time=self.start,
        )
