"""Metrics of the operator for Prometheus. They hold no name of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from drillcore_operator.keys import JobKey
from drillcore_operator.plan import ShardProgress
from drillcore_operator.work_queue import WorkQueue

_COUNTS: Final = {
    "rows_done": "Rows that became durable or quarantined.",
    "rows_quarantined": "Rows that could not be extracted.",
    "tokens": "Tokens of the rows that became durable.",
    "bytes": "Bytes of the rows that became durable.",
}


class ReportMetrics:
    """Sums over all jobs of what was reported since the process began."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reports = Counter("drillcore_progress_reports", "Reports taken.", registry=registry)
        self._counts = {
            name: Counter(f"drillcore_{name}", f"{text} Over all jobs.", registry=registry)
            for name, text in _COUNTS.items()
        }

    def count(self, before: ShardProgress | None, after: ShardProgress) -> None:
        """Counts what a report added; a shard's first report tells of work that was done before."""
        self._reports.inc()
        if before is None:
            return
        for name, counter in self._counts.items():
            counter.inc(getattr(after, name) - getattr(before, name))


def install_process_metrics(
    registry: CollectorRegistry, queue: WorkQueue[JobKey], list_age_s: Callable[[], float | None]
) -> None:
    """Metrics that are read when somebody scrapes."""
    ProcessCollector(registry=registry)
    _gauge(registry, "drillcore_work_queue_length", "Jobs that wait to be looked at.", lambda: float(len(queue)))
    _gauge(
        registry,
        "drillcore_work_queue_delay_seconds",
        "How long the job that was looked at last had waited.",
        lambda: queue.last_delay_s,
    )
    _gauge(
        registry,
        "drillcore_list_age_seconds",
        "Time since all jobs were listed; NaN before the first list.",
        lambda: _or_nan(list_age_s()),
    )


def _gauge(registry: CollectorRegistry, name: str, text: str, read: Callable[[], float]) -> None:
    Gauge(name, text, registry=registry).set_function(read)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
