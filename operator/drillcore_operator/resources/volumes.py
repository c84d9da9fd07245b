"""Volumes of a shard's pod and where each container mounts them.

Everything is mounted read-only but for the sidecar's output, the model cache, the ring and scratch space.
"""

from __future__ import annotations

from typing import Any

from drillcore_operator.resources.claims import all_claims, source_claims, volume_of_claim
from drillcore_spec import names
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.quantity import format_bytes, quantity_bytes

Manifest = dict[str, Any]


def pod_volumes(spec: ExtractionJobSpec, namespace: str, job_name: str) -> list[Manifest]:
    """All volumes of the pod, one for each distinct claim."""
    ring_bytes = quantity_bytes(spec.ring.size) + names.RING_HEADROOM_BYTES
    memory = {"medium": "Memory"}
    volumes = [
        {"name": names.VOLUME_RING, "emptyDir": memory | {"sizeLimit": format_bytes(ring_bytes)}},
        {"name": names.VOLUME_TMP, "emptyDir": {}},
    ]
    if spec.server.resources.gpus > 1:
        volumes.append({"name": names.VOLUME_SHM, "emptyDir": memory})
    volumes += [_claim_volume(spec, claim) for claim in all_claims(spec)]
    return [*volumes, _token_volume(namespace, job_name)]


def server_mounts(spec: ExtractionJobSpec) -> list[Manifest]:
    """Mounts of the container that runs the model."""
    mounts = [_mount(names.VOLUME_RING, names.RING_DIR), _output_mount(spec, read_only=True)]
    for claim in source_claims(spec):
        path = f"{names.VOLUMES_DIR}/{claim}"
        mounts.append(_mount(volume_of_claim(spec, claim), path, read_only=True))
    if cache := spec.model.cache_claim_name:
        mounts.append(_mount(volume_of_claim(spec, cache), names.MODEL_CACHE_DIR))
    mounts.append(_mount(names.VOLUME_TMP, names.TMP_DIR))
    if spec.server.resources.gpus > 1:
        mounts.append(_mount(names.VOLUME_SHM, names.SHM_DIR))
    return mounts


def sidecar_mounts(spec: ExtractionJobSpec) -> list[Manifest]:
    """Mounts of the container that writes."""
    return [
        _mount(names.VOLUME_RING, names.RING_DIR),
        _output_mount(spec, read_only=False),
        _mount(names.VOLUME_TOKEN, names.TOKEN_DIR, read_only=True),
    ]


def _claim_volume(spec: ExtractionJobSpec, claim: str) -> Manifest:
    writable = claim in (spec.output.claim_name, spec.model.cache_claim_name)
    source: Manifest = {"claimName": claim}
    if not writable:
        source["readOnly"] = True
    return {"name": volume_of_claim(spec, claim), "persistentVolumeClaim": source}


def _token_volume(namespace: str, job_name: str) -> Manifest:
    token = {
        "path": names.TOKEN_FILE,
        "audience": names.token_audience(namespace, job_name),
        "expirationSeconds": names.TOKEN_LIFETIME_SECONDS,
    }
    return {"name": names.VOLUME_TOKEN, "projected": {"sources": [{"serviceAccountToken": token}]}}


def _output_mount(spec: ExtractionJobSpec, *, read_only: bool) -> Manifest:
    mount = _mount(names.VOLUME_OUTPUT, names.OUTPUT_DIR, read_only=read_only)
    if spec.output.sub_path:
        mount["subPath"] = spec.output.sub_path
    return mount


def _mount(volume: str, path: str, *, read_only: bool = False) -> Manifest:
    mount: Manifest = {"name": volume, "mountPath": path}
    if read_only:
        mount["readOnly"] = True
    return mount
