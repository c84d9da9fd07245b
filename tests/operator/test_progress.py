"""Progress reports: cumulative, idempotent, never lower."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_operator.keys import JobKey
from drillcore_operator.progress import ProgressBook
from drillcore_spec.messages import ProgressReport, ShardState

KEY = JobKey("default", "job")


def report(shard: int = 0, attempt: str = "aaaaaaaa", seq: int = 0, rows: int = 0, **fields: Any) -> ProgressReport:
    counts = {"rows_total": 100, "rows_done": rows, "rows_quarantined": 0, "tokens": rows, "bytes": rows}
    values = counts | {"state": ShardState.RUNNING} | fields
    return ProgressReport(shard=shard, attempt=attempt, seq=seq, **values)


def test_late_report_of_the_same_attempt_is_ignored() -> None:
    book = ProgressBook()
    assert book.record(KEY, "uid", report(seq=2, rows=20), 0.0)
    assert not book.record(KEY, "uid", report(seq=1, rows=10), 1.0)
    assert not book.record(KEY, "uid", report(seq=2, rows=20), 2.0)
    assert book.seen(KEY, "uid").shards[0].rows_done == 20


def test_another_attempt_starts_its_own_numbers_and_lowers_nothing() -> None:
    book = ProgressBook()
    book.record(KEY, "uid", report(seq=7, rows=60), 0.0)
    assert book.record(KEY, "uid", report(attempt="bbbbbbbb", seq=0, rows=50), 1.0)
    assert book.seen(KEY, "uid").shards[0].rows_done == 60
    book.record(KEY, "uid", report(attempt="bbbbbbbb", seq=1, rows=70), 2.0)
    assert book.seen(KEY, "uid").shards[0].rows_done == 70


def test_commit_is_remembered() -> None:
    book = ProgressBook()
    book.record(KEY, "uid", report(rows=100, state=ShardState.COMMITTED), 0.0)
    book.record(KEY, "uid", report(attempt="bbbbbbbb", rows=100), 1.0)
    assert book.seen(KEY, "uid").shards[0].is_committed


def test_new_job_of_the_same_name_starts_from_nothing() -> None:
    book = ProgressBook()
    book.record(KEY, "old", report(rows=10), 0.0)
    book.record(KEY, "new", report(rows=1), 0.0)
    book.forget(KEY, keep_uid="new")
    assert book.seen(KEY, "old").shards == {}
    assert book.seen(KEY, "new").shards[0].rows_done == 1


def test_speed_is_that_of_the_whole_job_over_the_window() -> None:
    book = ProgressBook()
    for second in range(0, 40, 10):
        for shard in (0, 1):
            book.record(KEY, "uid", report(shard, seq=second, rows=second), float(second))
    assert book.seen(KEY, "uid").rows_per_second == 2.0


def test_speed_is_unknown_after_the_first_reports() -> None:
    book = ProgressBook()
    book.record(KEY, "uid", report(rows=10), 0.0)
    assert book.seen(KEY, "uid").rows_per_second is None


reports = st.builds(
    report,
    shard=st.integers(0, 2),
    attempt=st.sampled_from(["aaaaaaaa", "bbbbbbbb"]),
    seq=st.integers(0, 5),
    rows=st.integers(0, 100),
)


@settings(deadline=None)
@given(st.lists(reports, max_size=20))
def test_no_order_of_reports_lowers_a_count(sent: list[ProgressReport]) -> None:
    book = ProgressBook()
    before = 0
    for second, each in enumerate(sent):
        book.record(KEY, "uid", each, float(second))
        rows_done = sum(shard.rows_done for shard in book.seen(KEY, "uid").shards.values())
        assert rows_done >= before
        before = rows_done
