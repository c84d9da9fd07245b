"""The operator says a thing once: no status is rewritten, no event repeated, while nothing changes."""

from __future__ import annotations

import time

import pytest

from drillcore_testcluster.audit import calls_of
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.field import Field
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.kube_api import KubeApi
from drillcore_testcluster.situations import SITUATIONS
from drillcore_testcluster.waiting import until

pytestmark = pytest.mark.apiserver

QUIET_S = 60.0


def test_alternating_kubelet_words_do_not_rewrite_the_status(schedulable: Field) -> None:
    job = schedulable.job()
    pod = schedulable.report(job, "image-pull-backoff", reason="ErrImagePull")
    job.wait("PodsReady", "False", "ImagePullError")
    version = job.resource()["metadata"]["resourceVersion"]
    schedulable.kubelet.report(pod, "image-pull-backoff", reason="ImagePullBackOff")
    job.patch_spec(parallelism=1)
    time.sleep(12)  # two polls of the operator: there is no event for "nothing was written"
    assert job.resource()["metadata"]["resourceVersion"] == version


def test_the_same_told_again_counts_up_one_event(schedulable: Field) -> None:
    job = schedulable.running_job()
    for suspend in (True, False, True):
        job.patch_spec(suspend=suspend)
        job.wait("Suspended", *(("True", "Suspended") if suspend else ("False", "NotSuspended")))
    (told,) = [event for event in job.events() if event["reason"] == "Suspended"]
    until(lambda: job.events() and _count(job, "Suspended") == 2, "the event is counted up")
    assert told["type"] == "Normal"


def _count(job: JobUnderTest, reason: str) -> int:
    (told,) = [event for event in job.events() if event["reason"] == reason]
    return int(told["count"])


def test_operator_is_quiet_in_every_situation(
    schedulable: Field, own_control_plane: ControlPlane, api: KubeApi, operator_user: str
) -> None:
    """All situations at once; the writes of a whole minute are counted in the audit log."""
    for number, name in enumerate(n for n in SITUATIONS if n not in ("quota", "drained")):
        situation = SITUATIONS[name]
        job = situation.arrange(schedulable, f"job-{number}")
        job.wait(situation.type, situation.status, situation.reason)
    time.sleep(15)  # the Job controller's own first back-off is over
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    time.sleep(QUIET_S)
    calls = calls_of(own_control_plane.audit_log, operator_user)
    assert calls
    writes = [c for c in calls if c.is_write and c.namespace == schedulable.namespace and c.time > start]
    assert len(writes) <= 4, writes
    counts = [event.get("count", 1) for event in api.list("Event", namespace=schedulable.namespace)]
    assert max(counts) < 50
