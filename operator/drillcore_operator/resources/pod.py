"""The pod template of the child Job: the two containers, and what the job's podTemplate adds."""

from __future__ import annotations

from typing import Any

from drillcore_operator.resources.containers import server_container, sidecar_container
from drillcore_operator.resources.defaults import PodDefaults
from drillcore_operator.resources.volumes import pod_volumes
from drillcore_spec import names
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.pod_template import PodTemplate

Manifest = dict[str, Any]

TERMINATION_GRACE_SECONDS = 120
"""Time to close and commit the open parts after SIGTERM."""

_NO_MESH = {names.ANNOTATION_ISTIO_INJECT: "false"}
"""A mesh proxy that is injected as a plain container never ends, and so would the pod."""


def pod_template(
    spec: ExtractionJobSpec, namespace: str, job_name: str, defaults: PodDefaults, *, one_node: bool
) -> Manifest:
    """The template; `one_node` keeps all pods of the job on one node, where their volume is."""
    extra = spec.pod_template
    pod: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": TERMINATION_GRACE_SECONDS,
        "securityContext": _security_context(extra),
        "initContainers": [sidecar_container(spec, namespace, job_name, defaults)],
        "containers": [server_container(spec, namespace, job_name, defaults)],
        "volumes": pod_volumes(spec, namespace, job_name),
    }
    pod |= _placement(extra, job_name, one_node=one_node)
    return {
        "metadata": {
            "labels": extra.labels | {names.LABEL_JOB: job_name},
            "annotations": _NO_MESH | extra.annotations,
        },
        "spec": pod,
    }


def _security_context(extra: PodTemplate) -> Manifest:
    """Fits a namespace that enforces `restricted`; user and group null leave the choice to the cluster."""
    context: Manifest = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if extra.run_as_user is not None:
        context["runAsUser"] = extra.run_as_user
    if extra.fs_group is not None:
        context |= {"fsGroup": extra.fs_group, "fsGroupChangePolicy": "OnRootMismatch"}
    if extra.supplemental_groups:
        context["supplementalGroups"] = list(extra.supplemental_groups)
    return context


def _placement(extra: PodTemplate, job_name: str, *, one_node: bool) -> Manifest:
    affinity = extra.affinity.model_dump(mode="json") if extra.affinity else {}
    fields: Manifest = {
        "nodeSelector": dict(extra.node_selector),
        "tolerations": [toleration.model_dump(mode="json") for toleration in extra.tolerations],
        "affinity": _with_one_node(affinity, job_name) if one_node else affinity,
        "priorityClassName": extra.priority_class_name,
        "serviceAccountName": extra.service_account_name,
        "imagePullSecrets": [secret.model_dump(mode="json") for secret in extra.image_pull_secrets],
        "runtimeClassName": extra.runtime_class_name,
    }
    return {key: value for key, value in fields.items() if value}


def _with_one_node(affinity: Manifest, job_name: str) -> Manifest:
    """The scheduler lets the first pod of a self-referring term go anywhere; the others follow it.

    Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
    """
    term = {
        "labelSelector": {"matchLabels": {names.LABEL_JOB: job_name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    pod_affinity = affinity.get("podAffinity", {})
    terms = [*pod_affinity.get(required, ()), term]
    return affinity | {"podAffinity": pod_affinity | {required: terms}}
