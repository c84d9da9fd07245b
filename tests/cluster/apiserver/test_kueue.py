"""A queued job: Kueue alone decides when it runs, the user's `suspend` goes to its workload.

Kueue itself is not here: a CRD of its Workload is, and the test does what Kueue does to Job and Workload.
Source: https://kueue.sigs.k8s.io/docs/concepts/workload/
"""

from __future__ import annotations

import pytest

from drillcore_testcluster.field import Field
from drillcore_testcluster.job_under_test import JobUnderTest
from drillcore_testcluster.kube_api import KubeApi, Object

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="session")
def workload_crd(api: KubeApi) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": "Workload", "plural": "workloads", "singular": "workload"}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "workloads.kueue.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": "kueue.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    api.create(crd)
    for event in api.watch("CustomResourceDefinition", fieldSelector="metadata.name=workloads.kueue.x-k8s.io"):
        conditions = event["object"].get("status", {}).get("conditions") or []
        if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            return


@pytest.fixture
def queued(field: Field, workload_crd: None) -> JobUnderTest:
    field.claims()
    job = field.job("job", {"queue": {"name": "research"}, "shards.count": 2, "parallelism": 2})
    job.wait("Suspended", "True", "Queued")
    return job


def admit(job: JobUnderTest, *, parallelism: int) -> Object:
    """What Kueue does when there is room: it may also start a job with fewer pods."""
    (child,) = job.children()
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{child['metadata']['name']}",
            "namespace": job.namespace,
            "labels": {"kueue.x-k8s.io/job-uid": child["metadata"]["uid"]},
        },
        "spec": {"active": True, "queueName": "research"},
    }
    job.api.create(workload)
    fields = {"spec": {"suspend": False, "parallelism": parallelism}}
    return job.api.patch("Job", child["metadata"]["name"], fields, namespace=job.namespace)


def test_queued_job_is_created_suspended_in_its_queue(queued: JobUnderTest) -> None:
    (child,) = queued.children()
    assert child["spec"]["suspend"] is True
    assert child["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert queued.status()["phase"] == "Queued"


def test_what_kueue_sets_is_left_alone(queued: JobUnderTest, field: Field) -> None:
    admit(queued, parallelism=1)
    field.report(queued, "running")
    queued.wait("PodsReady", "True", "Ready")
    queued.patch_spec(ttlSecondsAfterFinished=600)
    field.report(queued, "succeeded")
    field.report(queued, "running", 1)
    queued.wait("PodsReady", "True", "Ready")
    assert queued.children()[0]["spec"]["parallelism"] == 1


def test_suspension_by_the_user_goes_to_the_workload(queued: JobUnderTest, field: Field) -> None:
    child = admit(queued, parallelism=2)
    field.report(queued, "running")
    queued.wait("Progressing", "True", "Running")
    queued.patch_spec(suspend=True)
    wait_for_active(queued, child, active=False)
    assert queued.children()[0]["spec"]["suspend"] is False, "only Kueue suspends the Job"
    queued.api.patch("Job", child["metadata"]["name"], {"spec": {"suspend": True}}, namespace=queued.namespace)
    queued.wait("Suspended", "True", "Suspended")
    queued.patch_spec(suspend=False)
    wait_for_active(queued, child, active=True)


def test_a_workload_that_an_administrator_deactivates_stays_so_until_the_user_resumes(
    queued: JobUnderTest, field: Field
) -> None:
    child = admit(queued, parallelism=2)
    field.report(queued, "running")
    queued.wait("Progressing", "True", "Running")
    name, place = child["metadata"]["name"], {"namespace": queued.namespace}
    queued.api.patch("Workload", f"job-{name}", {"spec": {"active": False}}, **place)
    queued.api.patch("Job", name, {"spec": {"suspend": True}}, **place)
    queued.wait("Suspended", "True", "Queued")
    assert queued.api.get("Workload", f"job-{name}", **place)["spec"]["active"] is False
    queued.patch_spec(suspend=True)
    queued.wait("Suspended", "True", "Suspended")
    queued.patch_spec(suspend=False)
    wait_for_active(queued, child, active=True)


def wait_for_active(job: JobUnderTest, child: Object, *, active: bool) -> None:
    selector = f"kueue.x-k8s.io/job-uid={child['metadata']['uid']}"
    for event in job.api.watch("Workload", namespace=job.namespace, labelSelector=selector):
        if event["object"]["spec"]["active"] is active:
            return
    pytest.fail(f"spec.active never was {active}")
