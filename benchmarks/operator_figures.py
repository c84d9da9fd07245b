"""What came of the load, from the audit log, the operator's metrics and its process."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from operator_cluster import LoadedCluster
from operator_samples import Sample
from operator_shards import Reporters

from drillcore_testcluster.audit import Call, calls_of
from drillcore_testcluster.operator_account import CLUSTER_WIDE

STATUS = "extractionjobs/status"
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Figures:
    """Everything that is reported."""

    reports_per_s: float
    reports_failed: dict[str, int]
    report_latency_p99_s: float
    status_writes_per_s: float
    jobs_written: int
    shortest_status_interval_s: float
    """Between two writes of one job's status."""
    longest_status_interval_s: float
    """So far a status is behind the reports, at worst."""
    jobs_with_changed_conditions: int
    """Their conditions are others at the end: such a write need not wait."""
    looks_per_s: float
    queue_delay_p99_s: float
    """Upper end of the histogram's bucket that holds it."""
    queue_length_max: float
    resident_mib_max: float
    resident_mib_per_minute: float
    """Slope by least squares, after caches are full."""
    cpu_cores: float
    """Processor time over wall time."""
    requests_per_s: dict[str, float]
    """By verb and resource."""


@dataclass(frozen=True)
class Limits:
    """What the figures must keep."""

    status_interval_s: float
    queue_delay_p99_s: float = 5.0
    resident_mib: float = 200.0
    failed_reports: int = 0
    resident_mib_per_minute: float = 1.0

    def broken_by(self, seen: Figures) -> list[str]:
        """The figures that are over their limits."""
        least_s = self.status_interval_s if not seen.jobs_with_changed_conditions else 0.0
        kept = {
            f"reports failed: {seen.reports_failed}": sum(seen.reports_failed.values()) <= self.failed_reports,
            f"status interval {seen.shortest_status_interval_s} s": seen.shortest_status_interval_s >= least_s,
            f"queue delay p99 {seen.queue_delay_p99_s} s": seen.queue_delay_p99_s <= self.queue_delay_p99_s,
            f"memory {seen.resident_mib_max} MiB": seen.resident_mib_max < self.resident_mib,
            f"growth {seen.resident_mib_per_minute} MiB/min": seen.resident_mib_per_minute
            < self.resident_mib_per_minute,
        }
        return [what for what, is_kept in kept.items() if not is_kept]


def figures(
    cluster: LoadedCluster,
    samples: Sequence[Sample],
    reporters: Reporters,
    span_s: tuple[float, float],
    settled_after_s: float,
    num_changed: int,
) -> Figures:
    """The figures of the time between two moments of the wall clock."""
    duration_s = span_s[1] - span_s[0]
    first, last = samples[0], samples[-1]
    calls = _between(calls_of(cluster.control_plane.audit_log, CLUSTER_WIDE.user), span_s)
    writes = [call for call in calls if call.resource == STATUS]
    intervals_s = _intervals_s(writes)
    looks = {le: last.looks_within[le] - first.looks_within[le] for le in last.looks_within}
    return Figures(
        reports_per_s=round(len(reporters.latencies_s) / duration_s, 1),
        reports_failed=reporters.failures,
        report_latency_p99_s=round(_percentile(reporters.latencies_s, 0.99), 3),
        status_writes_per_s=round(len(writes) / duration_s, 1),
        jobs_written=len({(call.namespace, call.name) for call in writes}),
        shortest_status_interval_s=round(min(intervals_s, default=math.inf), 3),
        longest_status_interval_s=round(max(intervals_s, default=math.inf), 3),
        jobs_with_changed_conditions=num_changed,
        looks_per_s=round(max(looks.values()) / duration_s, 1),
        queue_delay_p99_s=_bucket_of(looks, 0.99),
        queue_length_max=max(sample.queue_length for sample in samples),
        resident_mib_max=round(max(sample.resident_bytes for sample in samples) / MEBIBYTE, 1),
        resident_mib_per_minute=round(_growth([s for s in samples if s.time_s >= settled_after_s]), 3),
        cpu_cores=round((last.cpu_s - first.cpu_s) / (last.time_s - first.time_s), 2),
        requests_per_s={what: round(n / duration_s, 2) for what, n in _by_kind(calls).most_common()},
    )


def _between(calls: list[Call], span_s: tuple[float, float]) -> list[Call]:
    first, last = (datetime.fromtimestamp(time_s, UTC).isoformat() for time_s in span_s)
    return [call for call in calls if first <= call.time <= last]


def _intervals_s(writes: list[Call]) -> list[float]:
    times_s: dict[tuple[str, str], list[float]] = defaultdict(list)
    for call in writes:
        times_s[call.namespace, call.name].append(datetime.fromisoformat(call.time).timestamp())
    return [b - a for times in times_s.values() for a, b in pairwise(sorted(times))]


def _bucket_of(within: dict[float, float], part: float) -> float:
    total = max(within.values())
    return next(le for le in sorted(within) if within[le] >= part * total)


def _growth(samples: Sequence[Sample]) -> float:
    """MiB a minute."""
    times = [sample.time_s / 60 for sample in samples]
    sizes = [sample.resident_bytes / MEBIBYTE for sample in samples]
    return statistics.linear_regression(times, sizes).slope


def _percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0.0


def _by_kind(calls: list[Call]) -> Counter[str]:
    return Counter(f"{call.verb} {call.resource or 'path'}" for call in calls)
