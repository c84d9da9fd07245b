"""What a tenant can put into a namespace must not keep the operator from serving anybody, nor the job from telling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import httpx
import pytest

from drillcore_spec import names
from drillcore_testcluster.audit import calls_of
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.errors import ApiError
from drillcore_testcluster.field import Field
from drillcore_testcluster.ports import LOOPBACK
from drillcore_testcluster.processes import Process
from drillcore_testcluster.waiting import until

pytestmark = pytest.mark.apiserver

FIGHT_S = 25
POD = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}


def test_a_job_that_names_no_job_of_ours_is_passed_over(schedulable: Field, operator: Process) -> None:
    for number, name in enumerate(("", "No.Such_Name")):
        labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_JOB: name}
        metadata = {"name": f"decoy-{number}", "namespace": schedulable.namespace, "labels": labels}
        spec = {"suspend": True, "template": {"spec": POD}}
        schedulable.api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    schedulable.finish(schedulable.job())
    assert defects(operator) == 0


def test_pods_that_wear_the_jobs_labels_are_not_its_shards(schedulable: Field, operator: Process) -> None:
    job = schedulable.job("job", {"shards.count": 2})
    real = schedulable.pod(job)
    for number, notes in enumerate(({}, {"batch.kubernetes.io/job-completion-index": "x"})):
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": deepcopy(POD)}
        # Of another controller, so that the Job controller leaves it alone too.
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x", "controller": True}
        pod["metadata"] = {
            "name": f"decoy-{number}",
            "namespace": schedulable.namespace,
            "labels": real["metadata"]["labels"],
            "annotations": notes,
            "ownerReferences": [owner],
        }
        schedulable.api.create(pod)
    schedulable.kubelet.report(real, "image-pull-backoff", reason="ErrImagePull")
    assert real["metadata"]["name"] in job.wait("PodsReady", "False", "ImagePullError")["message"]
    assert defects(operator) == 0


def test_a_namespace_that_allows_no_events_still_gets_the_status(schedulable: Field, operator: Process) -> None:
    with denied(schedulable, "", "v1", "events"):
        job = schedulable.job("job", {"output.claimName": "missing"})
        assert "missing" in job.wait("OutputReady", "False", "PVCNotFound")["message"]
        assert job.events() == []
        schedulable.claims(["missing"])
        schedulable.finish(job)
    assert defects(operator) == 0


def test_a_policy_that_denies_the_child_is_told_and_waited_for(schedulable: Field) -> None:
    with denied(schedulable, "batch", "v1", "jobs"):
        job = schedulable.job()
        assert "not here, says a test" in job.wait("PodsReady", "False", "AdmissionRejected")["message"]
        assert job.status()["phase"] == "Pending"
    schedulable.finish(job)


def test_somebody_who_suspends_the_job_again_and_again_starts_no_fight(
    schedulable: Field, own_control_plane: ControlPlane, operator_user: str
) -> None:
    """As Kueue does where it manages jobs without a queue."""
    job = schedulable.running_job()
    (child,) = job.children()
    place = {"namespace": schedulable.namespace}
    watched = {"fieldSelector": f"metadata.name={child['metadata']['name']}", "timeout_s": FIGHT_S} | place
    for event in schedulable.api.watch("Job", **watched):
        if event["object"]["spec"]["suspend"] is False:
            schedulable.api.patch("Job", child["metadata"]["name"], {"spec": {"suspend": True}}, **place)
    assert "something else suspends it again" in job.condition("PodsReady")["message"]
    calls = calls_of(own_control_plane.audit_log, operator_user)
    resumptions = [c for c in calls if c.right == ("batch", "jobs", "patch") and c.namespace == schedulable.namespace]
    assert 3 <= len(resumptions) <= 7
    schedulable.finish(job)


@contextmanager
def denied(field: Field, group: str, version: str, resource: str) -> Iterator[None]:
    """A policy of the cluster's administrator: nobody may create such objects in the namespace."""
    name = f"deny-{resource}-{field.namespace}"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    rule = {"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": [resource]}
    denial = {"expression": "false", "message": "not here, says a test"}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [denial]}
    field.api.create(head | {"kind": "ValidatingAdmissionPolicy", "spec": policy})
    place = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": field.namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": place}
    field.api.create(head | {"kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
    try:
        until(lambda: is_denied(field, resource), "the policy holds")
        yield
    finally:
        for kind in ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"):
            field.api.delete(kind, name)


def is_denied(field: Field, resource: str) -> bool:
    metadata = {"name": "probe", "namespace": field.namespace}
    probes = {
        "events": {"apiVersion": "v1", "kind": "Event", "involvedObject": {"namespace": field.namespace}},
        "jobs": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": POD}}},
    }
    try:
        field.api.create(probes[resource] | {"metadata": metadata}, dryRun="All")
    except ApiError as error:
        return "denied request" in error.message
    return False


def defects(operator: Process) -> float:
    """How many looks at jobs ended in an error that is not the cluster's, since the operator's start."""
    operator.check()
    port = operator.environment["DRILLCORE_OPERATOR_API_PORT"]
    text = httpx.get(f"http://{LOOPBACK}:{port}/metrics", trust_env=False).text
    found = re.search(r'^drillcore_look_failures_total\{why="defect"\} (\S+)$', text, re.MULTILINE)
    assert found is not None
    return float(found[1])
