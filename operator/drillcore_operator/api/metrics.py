"""Metrics of the operator for Prometheus. They hold no name of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from drillcore_operator.keys import JobKey
from drillcore_operator.plan import ShardProgress
from drillcore_operator.work_queue import WorkQueue
from drillcore_operator.workers import Failure

_COUNTS: Final = {
    "rows_done": "Rows that became durable or quarantined.",
    "rows_quarantined": "Rows that could not be extracted.",
    "tokens": "Tokens of the rows that became durable.",
    "bytes": "Bytes of the rows that became durable.",
}


_DELAY_BUCKETS_S: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class LookMetrics:
    """Looks at jobs that failed, by why."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Looks at jobs that failed and are tried again."
        self._failures = Counter("drillcore_look_failures", text, ("why",), registry=registry)
        for failure in Failure:
            self._failures.labels(failure)

    def count_failure(self, failure: Failure) -> None:
        """Counts one."""
        self._failures.labels(failure).inc()


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
    """Metrics of the process and of its queue."""
    ProcessCollector(registry=registry)
    _gauge(registry, "drillcore_work_queue_length", "Jobs that wait to be looked at.", lambda: float(len(queue)))
    text = "How long jobs had waited in the queue when they were looked at."
    delays = Histogram("drillcore_work_queue_delay_seconds", text, buckets=_DELAY_BUCKETS_S, registry=registry)
    queue.on_delay = delays.observe
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
