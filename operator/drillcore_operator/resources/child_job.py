"""The one Indexed Job that carries out an ExtractionJob.

Retries per shard, disruption rules, suspension and elastic parallelism are Kubernetes' own; this file only
asks for them. Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drillcore_operator.resources.claims import needs_one_node
from drillcore_operator.resources.defaults import PodDefaults
from drillcore_operator.resources.failure_rules import pod_failure_policy
from drillcore_operator.resources.pod import pod_template
from drillcore_spec import names
from drillcore_spec.job import ExtractionJobSpec

Manifest = dict[str, Any]


def build_child_job(
    spec: ExtractionJobSpec,
    *,
    namespace: str,
    name: str,
    uid: str,
    defaults: PodDefaults,
    access_modes: Mapping[str, Sequence[str]],
) -> Manifest:
    """The manifest of the child Job.

    Args:
        spec: the job's spec.
        namespace: the job's namespace.
        name: the job's name.
        uid: the job's uid; it is in the child's name, so that a later job of this name gets another child.
        defaults: what the installation says.
        access_modes: access modes of each claim of the job.
    """
    one_node = needs_one_node(spec, access_modes)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.child_name(name, uid),
            "namespace": namespace,
            "labels": _labels(spec, name),
            "ownerReferences": [_owner(name, uid)],
        },
        "spec": {
            # A queued Job is created suspended, and from then on Kueue alone decides.
            "suspend": spec.suspend or spec.queue is not None,
            "completionMode": "Indexed",
            "completions": spec.shards.count,
            "parallelism": spec.parallelism,
            **_limits(spec),
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": pod_failure_policy(),
            "template": pod_template(spec, namespace, name, defaults, one_node=one_node),
        },
    }


def _labels(spec: ExtractionJobSpec, name: str) -> dict[str, str]:
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_JOB: name}
    if spec.queue is not None:
        labels[names.LABEL_QUEUE] = spec.queue.name
    return labels


def _owner(name: str, uid: str) -> Manifest:
    """Deletion follows this reference. blockOwnerDeletion true would need a right that we do not ask for."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _limits(spec: ExtractionJobSpec) -> Manifest:
    policy = spec.failure_policy
    limits: Manifest = {"backoffLimitPerIndex": policy.backoff_limit_per_shard}
    if policy.max_failed_shards is not None:
        limits["maxFailedIndexes"] = policy.max_failed_shards
    if spec.active_deadline_seconds is not None:
        limits["activeDeadlineSeconds"] = spec.active_deadline_seconds
    return limits
