"""The two containers of a shard's pod.

The sidecar is a native one (an init container that restarts always), so that the pod completes when the
server does. Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
"""

from __future__ import annotations

from typing import Any

from drillcore_operator.resources.defaults import PodDefaults
from drillcore_operator.resources.volumes import server_mounts, sidecar_mounts
from drillcore_spec import names
from drillcore_spec.job import ExtractionJobSpec

Manifest = dict[str, Any]

SIDECAR_START_SECONDS = 60
"""How long the sidecar may take to bind its socket before the pod's start is given up."""

_RESTRICTED: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""


def server_container(spec: ExtractionJobSpec, namespace: str, job_name: str, defaults: PodDefaults) -> Manifest:
    """The container that runs the model; memory and GPUs are limits as well as requests."""
    resources = spec.server.resources
    limits: Manifest = {"memory": resources.memory}
    if resources.gpus:
        limits[resources.gpu_resource_name] = resources.gpus
    environment = [*_shared_environment(spec, namespace, job_name, defaults), *_scratch_environment(spec)]
    if secret := spec.model.secret_name:
        key = {"name": secret, "key": names.SECRET_TOKEN_KEY}
        environment.append({"name": names.ENV_HUB_TOKEN, "valueFrom": {"secretKeyRef": key}})
    return {
        "name": names.CONTAINER_SERVER,
        "image": spec.server.image or defaults.server_image,
        "env": [*environment, *_user_environment(spec)],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": resources.cpu} | limits, "limits": limits},
        "securityContext": _RESTRICTED,
        "volumeMounts": server_mounts(spec),
    }


def sidecar_container(spec: ExtractionJobSpec, namespace: str, job_name: str, defaults: PodDefaults) -> Manifest:
    """The container that writes; its startup probe runs no Python, because that would take a second of CPU
    each time.
    """
    resources = spec.sidecar.resources
    socket = f"{names.RING_DIR}/{names.SIDECAR_SOCKET}"
    return {
        "name": names.CONTAINER_SIDECAR,
        "image": defaults.sidecar_image,
        "restartPolicy": "Always",
        "env": [*_shared_environment(spec, namespace, job_name, defaults), *_user_environment(spec)],
        "startupProbe": {
            "exec": {"command": ["test", "-S", socket]},
            "periodSeconds": 1,
            "failureThreshold": SIDECAR_START_SECONDS,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {
            "requests": {"cpu": resources.cpu, "memory": resources.memory},
            "limits": {"memory": resources.memory},
        },
        "securityContext": _RESTRICTED,
        "volumeMounts": sidecar_mounts(spec),
    }


def _shared_environment(
    spec: ExtractionJobSpec, namespace: str, job_name: str, defaults: PodDefaults
) -> list[Manifest]:
    index = f"metadata.annotations['{names.ANNOTATION_COMPLETION_INDEX}']"
    environment: list[Manifest] = [
        {"name": names.ENV_JOB, "value": spec.to_json()},
        {"name": names.ENV_INDEX, "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {
            "name": names.ENV_PROGRESS_URL,
            "value": defaults.api_url + names.progress_path(namespace, job_name),
        },
    ]
    if defaults.api_ca is not None:
        environment.append({"name": names.ENV_PROGRESS_CA, "value": defaults.api_ca})
    return environment


def _scratch_environment(spec: ExtractionJobSpec) -> list[Manifest]:
    """Where programs write although the root file system is read-only."""
    hub_home = names.MODEL_CACHE_DIR if spec.model.cache_claim_name else f"{names.TMP_DIR}/huggingface"
    places = {
        "HOME": names.TMP_DIR,
        "TRITON_CACHE_DIR": f"{names.TMP_DIR}/triton",
        names.ENV_HUB_HOME: hub_home,
    }
    return [{"name": name, "value": value} for name, value in places.items()]


def _user_environment(spec: ExtractionJobSpec) -> list[Manifest]:
    return [variable.model_dump(mode="json") for variable in spec.pod_template.env]
