"""Progress alone is written now and then, a condition at once."""

from __future__ import annotations

import asyncio
from typing import Any

from drillcore_operator.errors import Unavailable
from drillcore_operator.keys import JobKey
from drillcore_operator.status_writer import StatusWriter
from drillcore_spec.status import Condition, ConditionStatus, ConditionType, ExtractionJobStatus, ProgressStatus

INTERVAL_S = 15.0
LATENCY_S = 4.0


class Api:
    """Takes statuses, slowly."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.written: list[dict[str, Any]] = []
        self.is_away = False

    async def apply_status(self, resource: dict[str, Any], status: dict[str, Any]) -> None:
        if self.is_away:
            raise Unavailable("away")
        self.now_s += LATENCY_S
        self.written.append(status)


def rows(count: int, *conditions: Condition) -> ExtractionJobStatus:
    return ExtractionJobStatus(progress=ProgressStatus(rows_done=count), conditions=conditions)


def make_writer() -> tuple[Api, StatusWriter]:
    api = Api()
    return api, StatusWriter(api, INTERVAL_S, lambda: api.now_s)


def test_an_equal_status_is_not_written(make) -> None:
    api, writer = make_writer()
    assert asyncio.run(writer.write(make.resource(rows(1)), rows(1))) is None
    assert api.written == []


def test_progress_waits_for_its_interval_counted_from_the_last_answer(make) -> None:
    api, writer = make_writer()
    asyncio.run(writer.write(make.resource(rows(1)), rows(2)))
    api.now_s += INTERVAL_S - 1
    assert asyncio.run(writer.write(make.resource(rows(2)), rows(3))) == 1.0
    api.now_s += 1
    assert asyncio.run(writer.write(make.resource(rows(2)), rows(3))) is None
    assert len(api.written) == 2


def test_a_condition_does_not_wait(make) -> None:
    api, writer = make_writer()
    asyncio.run(writer.write(make.resource(rows(1)), rows(2)))
    ready = Condition(
        type=ConditionType.PODS_READY,
        status=ConditionStatus.TRUE,
        reason="Ready",
        message="",
        last_transition_time="2026-01-01T12:00:00Z",
    )
    assert asyncio.run(writer.write(make.resource(rows(2)), rows(2, ready))) is None
    assert len(api.written) == 2


def test_a_failed_write_is_no_reason_to_wait(make) -> None:
    api, writer = make_writer()
    api.is_away = True
    for _ in range(2):
        try:
            asyncio.run(writer.write(make.resource(rows(1)), rows(2)))
        except Unavailable:
            continue
    api.is_away = False
    assert asyncio.run(writer.write(make.resource(rows(1)), rows(2))) is None
    assert len(api.written) == 1


def test_a_job_that_is_gone_is_forgotten(make) -> None:
    api, writer = make_writer()
    asyncio.run(writer.write(make.resource(rows(1)), rows(2)))
    writer.forget(JobKey("default", "job"))
    assert asyncio.run(writer.write(make.resource(rows(2)), rows(3))) is None
    assert len(api.written) == 2
