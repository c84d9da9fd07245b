"""`spec.podTemplate`: what is added to every shard's pod."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from drillcore_spec.base import NULLABLE, SpecModel
from drillcore_spec.forms import GroupId, ObjectName, UserId
from drillcore_spec.kubernetes import Affinity, Annotations, EnvVar, Labels, LocalObject, Toleration
from drillcore_spec.rules import Rule


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
    """User id of the processes. null: left to the cluster (OpenShift, file systems owned by user ids)."""
    fs_group: Annotated[GroupId | None, Field(json_schema_extra=NULLABLE)] = 65532
    """Group that owns the volumes' files. null: left to the cluster."""
    supplemental_groups: Annotated[tuple[GroupId, ...], Field(max_length=32)] = ()
    """Further groups of the processes."""

    rules = (
        Rule(
            cel="!self.labels.exists(key, key.startsWith('drillcore.dev/'))",
            holds=lambda self: not any(key.startswith("drillcore.dev/") for key in self.labels),
            expected="labels without the prefix drillcore.dev/, which drillcore sets",
            field=("labels",),
        ),
    )
