"""An API server that throttles, fails, cuts watches or is gone; an operator that is told to go, or is away."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import psutil
import pytest

from drillcore_spec import names
from drillcore_testcluster.audit import created_jobs
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.fault_proxy import Answer, Call, Fault, FaultProxy, Interrupt, no_fault
from drillcore_testcluster.field import Field
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.ports import LOOPBACK
from drillcore_testcluster.processes import Process
from drillcore_testcluster.waiting import until

pytestmark = pytest.mark.apiserver

RECOVERY_S = 60.0
NUM_WATCHES = 2
GARBAGE_COLLECTION_S = 90.0
"""The garbage collector learns of new kinds every 30 s."""


@pytest.mark.parametrize("code", [429, 500])
def test_failing_calls_are_retried_without_a_hot_loop(
    field: Field, proxy: FaultProxy, own_control_plane: ControlPlane, operator, code: int
) -> None:
    fault = Answer(code, retry_after_s=2 if code == 429 else None)
    with operator():
        first = field.job("first")
        first.wait("Succeeded", "True", "Succeeded")
        proxy.decide = lambda call: fault if call.is_reconciling else None
        start_s = time.monotonic()
        job = field.job("good")
        time.sleep(8)  # the outage itself
        calls = proxy.num_calls(lambda call: call.is_reconciling, start_s)
        assert 1 <= calls <= 12
        proxy.decide = no_fault
        job.wait("Succeeded", "True", "Succeeded", timeout_s=RECOVERY_S)
    assert set(created_jobs(own_control_plane.audit_log, field.namespace).values()) == {1}


def test_lost_answer_to_the_creation_makes_no_second_job(
    field: Field, proxy: FaultProxy, own_control_plane: ControlPlane, operator
) -> None:
    lost: list[Call] = []

    def lose_first_creation(call: Call) -> Fault | None:
        if call.method == "POST" and "/jobs" in call.path and not lost:
            lost.append(call)
            return Interrupt(lambda: None, after_forwarding=True)
        return None

    proxy.decide = lose_first_creation
    with operator():
        field.job("good").wait("Succeeded", "True", "Succeeded")
    assert lost
    assert set(created_jobs(own_control_plane.audit_log, field.namespace).values()) == {1}


def test_conflicting_status_writes_are_tried_again(field: Field, proxy: FaultProxy, operator) -> None:
    refused: list[Call] = []

    def conflict_twice(call: Call) -> Fault | None:
        if call.path.split("?")[0].endswith("/status") and len(refused) < 2:
            refused.append(call)
            return Answer(409)
        return None

    proxy.decide = conflict_twice
    with operator():
        field.job("good").wait("Succeeded", "True", "Succeeded", timeout_s=RECOVERY_S)
    assert len(refused) == 2


def test_cut_and_expired_watches_are_made_again(field: Field, proxy: FaultProxy, operator) -> None:
    expired: list[Call] = []

    def expire(call: Call) -> Fault | None:
        if call.is_watch and len(expired) < 2:
            expired.append(call)
            return Answer(410)
        return None

    with operator(resync_interval_s="600"):
        field.job("good-1").wait("Succeeded", "True", "Succeeded")
        proxy.decide = expire
        assert proxy.cut_watches() >= 2
        field.job("good-2").wait("Succeeded", "True", "Succeeded", timeout_s=RECOVERY_S)
        assert len(expired) == 2


def test_watches_made_again_and_again_leave_no_connection_behind(field: Field, proxy: FaultProxy, operator) -> None:
    with operator(resync_interval_s="600") as process:
        field.job("good").wait("Succeeded", "True", "Succeeded")
        before = num_connections(process.pid)
        for expired in ((), ("extractionjobs", "/jobs"), ("/jobs",)) * 2:
            start_s = time.monotonic()
            proxy.decide = lambda call, expired=expired: Answer(410) if call.is_watch_of(expired) else None
            proxy.cut_watches()
            until(lambda since_s=start_s: proxy.num_calls(lambda call: call.is_watch, since_s) > 0, "a new watch")
            proxy.decide = no_fault
            until(lambda: proxy.num_watches == NUM_WATCHES, "they are there again", RECOVERY_S)
        until(lambda: num_connections(process.pid) <= before, "there are no more connections than before")


def test_a_stream_of_the_status_api_outlives_the_watches(
    field: Field, proxy: FaultProxy, operator, token_for: Callable[..., str]
) -> None:
    del field.kubelet.scripts[field.namespace]
    job = JobUnderTest(field.api, field.namespace, "good")
    with operator(resync_interval_s="600") as process:
        job.create()
        field.report(job, "running")
        job.wait("PodsReady", "True", "Ready")
        with status_stream(process, job, token_for("reader", reads=True)) as lines:
            assert any('"phase": "Running"' in line for line in lines)
            proxy.decide = lambda call: Answer(410) if call.is_watch else None
            start_s = time.monotonic()
            proxy.cut_watches()
            until(lambda: proxy.num_calls(lambda call: call.is_watch, start_s) > 0, "a new watch")
            proxy.decide = no_fault
            until(lambda: proxy.num_watches == NUM_WATCHES, "they are there again", RECOVERY_S)
            field.report(job, "succeeded")
            assert any('"phase": "Succeeded"' in line for line in lines)


@contextmanager
def status_stream(process: Process, job: JobUnderTest, token: str) -> Iterator[Iterator[str]]:
    port = process.environment["DRILLCORE_OPERATOR_API_PORT"]
    url = f"http://{LOOPBACK}:{port}{names.job_path(job.namespace, job.name)}/stream"
    headers = {"Authorization": f"Bearer {token}"}
    with (
        httpx.Client(trust_env=False, timeout=RECOVERY_S) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        yield response.raise_for_status().iter_lines()


def num_connections(pid: int) -> int:
    return len(psutil.Process(pid).net_connections("tcp"))


def test_job_that_ended_while_the_operator_was_down_is_seen(field: Field, proxy: FaultProxy, operator) -> None:
    del field.kubelet.scripts[field.namespace]
    job = JobUnderTest(field.api, field.namespace, "good")
    with operator():
        job.create()
        field.report(job, "running")
        job.wait("PodsReady", "True", "Ready")
    field.report(job, "succeeded")
    until(lambda: "completionTime" in job.children()[0]["status"], "the Job controller sees the end")
    with operator():
        job.wait("Succeeded", "True", "Succeeded")


def test_job_is_deleted_with_its_child_while_no_operator_runs(field: Field, proxy: FaultProxy, operator) -> None:
    del field.kubelet.scripts[field.namespace]
    job = JobUnderTest(field.api, field.namespace, "job")
    with operator():
        job.create()
        field.report(job, "running")
        job.wait("PodsReady", "True", "Ready")
    assert "finalizers" not in job.resource()["metadata"]
    assert "annotations" not in job.resource()["metadata"]
    field.api.delete("ExtractionJob", "job", namespace=field.namespace)
    assert field.api.find("ExtractionJob", "job", namespace=field.namespace) is None
    until(lambda: not job.children(), "garbage collection takes the Job", GARBAGE_COLLECTION_S)


@pytest.mark.parametrize("outage_s", [60, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
def test_api_server_that_was_gone_is_caught_up_with_within_a_minute(
    field: Field, proxy: FaultProxy, own_control_plane: ControlPlane, operator, outage_s: int
) -> None:
    with operator() as process:
        field.job("good-1").wait("Succeeded", "True", "Succeeded")
        held = field.job("good-2", {"output.claimName": "late"})
        held.wait("PodsReady", "False", "PVCNotFound")
        start_s = time.monotonic()
        own_control_plane.begin_outage()
        time.sleep(outage_s)  # the outage itself
        process.check()
        calls = proxy.num_calls(lambda _: True, start_s)
        own_control_plane.end_outage()
        field.claims(["late"])
        held.wait("Succeeded", "True", "Succeeded", timeout_s=RECOVERY_S)
    assert calls < 3 * outage_s
    assert set(created_jobs(own_control_plane.audit_log, field.namespace).values()) == {1}


def test_operator_leaves_soon_when_it_is_told_to(field: Field, proxy: FaultProxy, operator) -> None:
    with operator() as process:
        field.job("good").wait("Succeeded", "True", "Succeeded")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout_s=10) == 0
