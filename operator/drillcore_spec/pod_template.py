"""`spec.podTemplate`: what is added to every shard's pod."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, model_validator

from drillcore_spec.base import NULLABLE, SpecModel
from drillcore_spec.forms import GroupId, ObjectName, UserId
from drillcore_spec.kubernetes import Affinity, Annotations, EnvVar, Labels, LocalObject, Toleration
from drillcore_spec.rules import Rule


class ClusterChosen(StrEnum):
    """An id of the pods' processes that the cluster may choose."""

    RUN_AS_USER = "RunAsUser"
    FS_GROUP = "FsGroup"


class PodTemplate(SpecModel):
    """What is added to every shard's pod."""

    labels: Labels = Field(default_factory=dict)
    """Labels of the pods; the prefix drillcore.dev/ is taken."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations of the pods."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    """Taints of nodes that the pods tolerate."""
    affinity: Affinity | None = None
    """Where the pods run."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of the pods; its token is not mounted. Default: the namespace's."""
    image_pull_secrets: Annotated[tuple[LocalObject, ...], Field(max_length=16)] = ()
    """Secrets for pulling the images."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pods."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64)] = ()
    """Environment variables of both containers, such as HF_ENDPOINT or proxies."""
    run_as_user: Annotated[UserId | None, Field(json_schema_extra=NULLABLE)] = 65532
    """User id of the processes."""
    fs_group: Annotated[GroupId | None, Field(json_schema_extra=NULLABLE)] = 65532
    """Group that owns the volumes' files."""
    leave_to_cluster: Annotated[tuple[ClusterChosen, ...], Field(max_length=2)] = ()
    """
    RunAsUser, FsGroup or both are not set on the pods, for clusters (OpenShift) and file systems (NFS owned
    by user ids) that choose them. A null runAsUser or fsGroup means the same, but only `kubectl create` and
    `kubectl apply --server-side` transmit null.
    """
    supplemental_groups: Annotated[tuple[GroupId, ...], Field(max_length=32)] = ()
    """Further groups of the processes."""

    rules = (
        Rule(
            cel="!has(self.labels) || !self.labels.exists(key, key.startsWith('drillcore.dev/'))",
            holds=lambda self: not any(key.startswith("drillcore.dev/") for key in self.labels),
            expected="labels without the prefix drillcore.dev/, which drillcore sets",
            field=("labels",),
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _unset_what_the_cluster_chooses(cls, data: Any) -> Any:
        chosen = _chosen_by_cluster(data)
        if ClusterChosen.RUN_AS_USER in chosen:
            data = data | {_key(data, "run_as_user", "runAsUser"): None}
        if ClusterChosen.FS_GROUP in chosen:
            data = data | {_key(data, "fs_group", "fsGroup"): None}
        return data


def _chosen_by_cluster(data: Any) -> tuple[Any, ...]:
    """The entries of leaveToCluster, which are not validated yet."""
    if not isinstance(data, dict):
        return ()
    chosen = data.get(_key(data, "leave_to_cluster", "leaveToCluster"))
    return tuple(chosen) if isinstance(chosen, list | tuple) else ()


def _key(data: dict[str, Any], name: str, alias: str) -> str:
    """The key of a field in data that python or YAML has written."""
    return name if name in data else alias
