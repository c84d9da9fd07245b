"""The operator killed at each of its calls, and an API server that throttles, fails, cuts watches or is gone."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drillcore_spec.messages import Counts, TerminationMessage
from drillcore_spec.reasons import Reason
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.fault_proxy import Answer, Call, Fault, FaultProxy, Interrupt, no_fault
from drillcore_testcluster.field import Field
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.kube_api import KubeApi, Object
from drillcore_testcluster.operator_process import operator_process
from drillcore_testcluster.played_kubelet import PlayedKubelet
from drillcore_testcluster.processes import Process

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("crd")]

USER = "drillcore-test-faulty-operator"
NUM_KILLS = 50
RECOVERY_S = 60.0
GARBAGE_COLLECTION_S = 90.0
"""The garbage collector learns of new kinds every 30 s."""


@pytest.fixture
def proxy(own_control_plane: ControlPlane) -> Iterator[FaultProxy]:
    kubeconfig = own_control_plane.kubeconfig(USER, ["system:masters"])
    with FaultProxy(kubeconfig).running() as proxy:
        yield proxy


@pytest.fixture
def field(api: KubeApi, kubelet: PlayedKubelet, namespace: str) -> Iterator[Field]:
    """Without the shared operator; pods run to their commit by themselves, unless their job says otherwise."""
    field = Field(api, kubelet, namespace)
    field.claims()
    kubelet.scripts[namespace] = _end_by_job_name
    yield field
    del kubelet.scripts[namespace]


def _end_by_job_name(pod: Object) -> tuple[str, dict[str, str | int]]:
    if pod["metadata"]["labels"]["drillcore.dev/job"].startswith("bad"):
        return "server-exit", {"exit_code": 65, "message": "no such file"}
    counts = Counts(rows_in=10, rows_out=10)
    return "succeeded", {"message": TerminationMessage(code=0, reason=Reason.COMMITTED, counts=counts).to_line()}


@contextmanager
def operator(proxy: FaultProxy, tmp_path: Path, namespace: str) -> Iterator[Process]:
    """An operator of this namespace only, behind the proxy."""
    kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig")
    process = operator_process(tmp_path, kubeconfig, namespaces=namespace, resync_interval_s="30")
    process.start()
    try:
        yield process
    finally:
        process.stop(kill=True)


def created_jobs(control_plane: ControlPlane, namespace: str) -> Counter[str]:
    """How often each Job was created, from the audit log: objects that are gone count too."""
    created: Counter[str] = Counter()
    for line in control_plane.audit_log.read_text().splitlines():
        entry = json.loads(line)
        about = entry.get("objectRef", {})
        what = entry["verb"], about.get("resource"), about.get("namespace"), entry["responseStatus"]["code"]
        if what == ("create", "jobs", namespace, 201):
            created[about["name"]] += 1
    return created


def test_operator_killed_at_each_call_makes_one_job_each_and_ends_right(
    field: Field, proxy: FaultProxy, own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Process n lives until its n-th call; every other one dies after the call was carried out, unanswered."""
    jobs: list[JobUnderTest] = []
    for number in range(NUM_KILLS):
        if number % 5 == 0:
            jobs.append(field.job(f"good-{number}", {"shards.count": 2}))
            jobs.append(field.job(f"bad-{number}"))
        call_number = 1 + number % (NUM_KILLS // 2)
        _run_until_killed(proxy, tmp_path, field.namespace, call_number=call_number, after=number % 2 == 1)
    proxy.decide = no_fault
    with operator(proxy, tmp_path, field.namespace):
        for job in jobs:
            good = job.name.startswith("good")
            job.wait("Succeeded", *(("True", "Succeeded") if good else ("False", "DatasetNotFound")))
    assert set(created_jobs(own_control_plane, field.namespace).values()) == {1}
    assert len(created_jobs(own_control_plane, field.namespace)) == len(jobs)


def _run_until_killed(proxy: FaultProxy, tmp_path: Path, namespace: str, *, call_number: int, after: bool) -> None:
    """Runs an operator that is killed at its call of this number; it has always enough to do for that."""
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
    with operator(proxy, tmp_path, namespace) as process:
        running.append(process)
        assert process.wait(timeout_s=40) == -signal.SIGKILL


@pytest.mark.parametrize("code", [429, 500])
def test_failing_calls_are_retried_without_a_hot_loop(
    field: Field, proxy: FaultProxy, own_control_plane: ControlPlane, tmp_path: Path, code: int
) -> None:
    fault = Answer(code, retry_after_s=2 if code == 429 else None)
    with operator(proxy, tmp_path, field.namespace):
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
    assert set(created_jobs(own_control_plane, field.namespace).values()) == {1}


def test_lost_answer_to_the_creation_makes_no_second_job(
    field: Field, proxy: FaultProxy, own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    lost: list[Call] = []

    def lose_first_creation(call: Call) -> Fault | None:
        if call.method == "POST" and "/jobs" in call.path and not lost:
            lost.append(call)
            return Interrupt(lambda: None, after_forwarding=True)
        return None

    proxy.decide = lose_first_creation
    with operator(proxy, tmp_path, field.namespace):
        field.job("good").wait("Succeeded", "True", "Succeeded")
    assert lost
    assert set(created_jobs(own_control_plane, field.namespace).values()) == {1}


def test_conflicting_status_writes_are_tried_again(field: Field, proxy: FaultProxy, tmp_path: Path) -> None:
    refused: list[Call] = []

    def conflict_twice(call: Call) -> Fault | None:
        if call.path.split("?")[0].endswith("/status") and len(refused) < 2:
            refused.append(call)
            return Answer(409)
        return None

    proxy.decide = conflict_twice
    with operator(proxy, tmp_path, field.namespace):
        field.job("good").wait("Succeeded", "True", "Succeeded", timeout_s=RECOVERY_S)
    assert len(refused) == 2


def test_cut_and_expired_watches_are_made_again(field: Field, proxy: FaultProxy, tmp_path: Path) -> None:
    expired: list[Call] = []

    def expire(call: Call) -> Fault | None:
        if call.is_watch and len(expired) < 2:
            expired.append(call)
            return Answer(410)
        return None

    with operator(proxy, tmp_path, field.namespace):
        field.job("good-1").wait("Succeeded", "True", "Succeeded")
        proxy.decide = expire
        assert proxy.cut_watches() >= 2
        field.job("good-2").wait("Succeeded", "True", "Succeeded", timeout_s=25)
        assert len(expired) == 2


def test_job_that_ended_while_the_operator_was_down_is_seen(field: Field, proxy: FaultProxy, tmp_path: Path) -> None:
    del field.kubelet.scripts[field.namespace]
    job = JobUnderTest(field.api, field.namespace, "good")
    with operator(proxy, tmp_path, field.namespace):
        job.create()
        field.report(job, "running")
        job.wait("PodsReady", "True", "Ready")
    field.report(job, "succeeded")
    field.kubelet.scripts[field.namespace] = _end_by_job_name
    until(lambda: "completionTime" in job.children()[0]["status"], "the Job controller sees the end")
    with operator(proxy, tmp_path, field.namespace):
        job.wait("Succeeded", "True", "Succeeded")


def test_job_is_deleted_with_its_child_while_no_operator_runs(field: Field, proxy: FaultProxy, tmp_path: Path) -> None:
    del field.kubelet.scripts[field.namespace]
    job = JobUnderTest(field.api, field.namespace, "job")
    with operator(proxy, tmp_path, field.namespace):
        job.create()
        field.report(job, "running")
        job.wait("PodsReady", "True", "Ready")
    assert "finalizers" not in job.resource()["metadata"]
    assert "annotations" not in job.resource()["metadata"]
    field.api.delete("ExtractionJob", "job", namespace=field.namespace)
    assert field.api.find("ExtractionJob", "job", namespace=field.namespace) is None
    until(lambda: not job.children(), "garbage collection takes the Job", GARBAGE_COLLECTION_S)
    field.kubelet.scripts[field.namespace] = _end_by_job_name


@pytest.mark.parametrize("outage_s", [60, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
def test_api_server_that_was_gone_is_caught_up_with_within_a_minute(
    field: Field, proxy: FaultProxy, own_control_plane: ControlPlane, tmp_path: Path, outage_s: int
) -> None:
    with operator(proxy, tmp_path, field.namespace) as process:
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
    assert set(created_jobs(own_control_plane, field.namespace).values()) == {1}


def until(holds: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Waits for something of which no watch of one object tells."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, f"{what}: not within {timeout_s} s"
        time.sleep(0.2)


def test_operator_leaves_soon_when_it_is_told_to(field: Field, proxy: FaultProxy, tmp_path: Path) -> None:
    with operator(proxy, tmp_path, field.namespace) as process:
        field.job("good").wait("Succeeded", "True", "Succeeded")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(timeout_s=10) == 0
