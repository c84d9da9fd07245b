"""Every name that two processes or two components share: API, labels, ports, paths, environment variables."""

from __future__ import annotations

import hashlib
from typing import Final

API_GROUP: Final = "drillcore.dev"
API_VERSION_NAME: Final = "v1alpha1"
API_VERSION: Final = "drillcore.dev/v1alpha1"
KIND: Final = "ExtractionJob"
PLURAL: Final = "extractionjobs"
SINGULAR: Final = "extractionjob"
SHORT_NAME: Final = "exj"

MAX_JOB_NAME_LENGTH: Final = 46
"""Longest ExtractionJob name. A pod's host name `<name>-<8 hex>-<index>` has at most 63 characters: 63 - 9
- 8.
"""

LABEL_JOB: Final = "drillcore.dev/job"
"""On the child Job and its pods: the ExtractionJob's name."""
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "drillcore"
LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""On the child Job: Kueue's LocalQueue."""
ANNOTATION_COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
ANNOTATION_ISTIO_INJECT: Final = "sidecar.istio.io/inject"
FIELD_MANAGER: Final = "drillcore-operator"
"""Field manager of the operator's server-side apply."""

CONTAINER_SERVER: Final = "server"
CONTAINER_SIDECAR: Final = "sidecar"

VOLUME_RING: Final = "ring"
VOLUME_OUTPUT: Final = "output"
VOLUME_TMP: Final = "tmp"
VOLUME_SHM: Final = "shm"
VOLUME_TOKEN: Final = "status-token"

RING_DIR: Final = "/ring"
RING_FILE: Final = "ring"
SIDECAR_SOCKET: Final = "sidecar.sock"
JOB_FILE: Final = "job.json"
COMMITTED_FILE: Final = "committed.npy"
PROGRESS_FILE: Final = "progress.json"
RING_HEADROOM_BYTES: Final = 64 * 1024 * 1024
"""What the ring's emptyDir may hold besides the ring."""

OUTPUT_DIR: Final = "/output"
VOLUMES_DIR: Final = "/volumes"
"""Folder under which each claim of the job is mounted by its name."""
MODEL_CACHE_DIR: Final = "/model-cache"
"""Where model.cacheClaimName is mounted."""
TMP_DIR: Final = "/tmp"
SHM_DIR: Final = "/dev/shm"
TOKEN_DIR: Final = "/var/run/drillcore"
TOKEN_FILE: Final = "token"
TERMINATION_LOG: Final = "/dev/termination-log"

ENV_JOB: Final = "DRILLCORE_JOB"
"""The spec as JSON, defaults filled in."""
ENV_INDEX: Final = "JOB_COMPLETION_INDEX"
"""The shard's index."""
ENV_PROGRESS_URL: Final = "DRILLCORE_PROGRESS_URL"
ENV_PROGRESS_CA: Final = "DRILLCORE_PROGRESS_CA"
"""Certificate authority of the progress URL, PEM; unset: the system's."""
ENV_HUB_TOKEN: Final = "HF_TOKEN"
ENV_HUB_HOME: Final = "HF_HOME"
SECRET_TOKEN_KEY: Final = "token"
"""Key of the model hub's token in model.secretName."""

API_PORT: Final = 8080
"""The job-status API of the operator."""
SERVE_PORT: Final = 8000
"""The OpenAI-compatible API of `drillcore serve`."""
TOKEN_LIFETIME_SECONDS: Final = 600


def child_name(job_name: str, uid: str) -> str:
    """Name of the child Job: `<job>-<first 8 hex of sha256(uid)>`.

    A new ExtractionJob of the same name never meets the Job of an earlier one.
    """
    return f"{job_name}-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"


def token_audience(namespace: str, job_name: str) -> str:
    """Audience of the pods' token: good for one job's progress and nothing else."""
    return f"{API_GROUP}/{namespace}/{job_name}"


def job_path(namespace: str, job_name: str) -> str:
    """Path of a job in the job-status API."""
    return f"/v1/namespaces/{namespace}/{PLURAL}/{job_name}"


def progress_path(namespace: str, job_name: str) -> str:
    """Path to which the pods of a job post their progress."""
    return f"{job_path(namespace, job_name)}/progress"
