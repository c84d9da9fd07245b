"""The operator is killed at each of its calls in turn: one Job for each ExtractionJob, and the right end."""

from __future__ import annotations

import os
import signal

import pytest

from drillcore_testcluster.audit import created_jobs
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.fault_proxy import Call, Fault, FaultProxy, Interrupt, no_fault
from drillcore_testcluster.field import Field
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.processes import Process

pytestmark = pytest.mark.apiserver

NUM_KILLS = 50
NUM_KILLS_TOGETHER = 10
NUM_CALLS = 25
"""Calls at which it is killed: each once before and once after it was carried out."""
KILL_TIMEOUT_S = 60


@pytest.mark.parametrize("first", range(0, NUM_KILLS, NUM_KILLS_TOGETHER))
def test_operator_killed_at_each_call_makes_one_job_each_and_ends_right(
    field: Field, proxy: FaultProxy, operator, own_control_plane: ControlPlane, first: int
) -> None:
    """Process n lives until its n-th call; every other one dies after the call was carried out, unanswered."""
    jobs: list[JobUnderTest] = []
    for number in range(first, first + NUM_KILLS_TOGETHER):
        jobs += [field.job(f"good-{number}", {"shards.count": 2}), field.job(f"bad-{number}")]
        kill_at_call(proxy, operator, call_number=1 + number % NUM_CALLS, after=number % 2 == 1)
    proxy.decide = no_fault
    with operator():
        for job in jobs:
            good = job.name.startswith("good")
            job.wait("Succeeded", *(("True", "Succeeded") if good else ("False", "DatasetNotFound")))
    created = created_jobs(own_control_plane.audit_log, field.namespace)
    assert set(created.values()) == {1}
    assert len(created) == len(jobs)


def kill_at_call(proxy: FaultProxy, operator, *, call_number: int, after: bool) -> None:
    """Runs an operator that is killed at its call of this number; two new jobs give it enough to do for that."""
    calls = 0
    running: list[Process] = []

    def kill() -> None:
        os.kill(running[0].pid, signal.SIGKILL)

    def decide(call: Call) -> Fault | None:
        nonlocal calls
        calls += call.is_reconciling
        is_last = call.is_reconciling and calls == call_number
        return Interrupt(kill, after_forwarding=after) if is_last else None

    proxy.decide = decide
    with operator() as process:
        running.append(process)
        assert process.wait(KILL_TIMEOUT_S) == -signal.SIGKILL
