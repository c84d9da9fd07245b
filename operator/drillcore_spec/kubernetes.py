"""Kubernetes' own types that a pod template repeats: env, tolerations, affinity.

Typed in full, because immutability rules do not see inside `x-kubernetes-preserve-unknown-fields`.
Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from drillcore_spec.base import SpecModel
from drillcore_spec.forms import (
    EnvName,
    Flag,
    LabelKey,
    LabelValue,
    LongText,
    MediumText,
    ObjectName,
    ShortText,
    integer,
)
from drillcore_spec.rules import Rule

Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=32)]
Values = Annotated[tuple[LabelValue, ...], Field(max_length=32)]
Weight = Annotated[int, integer(1, 100)]


class LocalObject(SpecModel):
    """An object in the job's namespace."""

    name: ObjectName
    """Its name."""


class KeySelector(SpecModel):
    """One key of a Secret or ConfigMap in the job's namespace."""

    name: ObjectName
    """Name of the object."""
    key: ShortText
    """Key in it."""
    optional: Flag = False
    """The variable is left out when the object or key does not exist."""


class FieldSelector(SpecModel):
    """A field of the pod."""

    field_path: ShortText
    """Path of the field, such as status.podIP."""


class EnvSource(SpecModel):
    """Where the value of a variable comes from; exactly one is set."""

    secret_key_ref: KeySelector | None = None
    """A key of a Secret."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""
    field_ref: FieldSelector | None = None
    """A field of the pod."""

    rules = (
        Rule(
            cel="[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(set, set).size() == 1",
            holds=lambda self: [self.secret_key_ref, self.config_map_key_ref, self.field_ref].count(None) == 2,
            expected="exactly one of secretKeyRef, configMapKeyRef and fieldRef",
        ),
    )


class EnvVar(SpecModel):
    """An environment variable of both containers."""

    name: EnvName
    """Its name; names that begin with DRILLCORE_ are taken."""
    value: LongText | None = None
    """Its value. Default: empty."""
    value_from: EnvSource | None = None
    """Where its value comes from, in place of value."""

    rules = (
        Rule(
            cel="!(has(self.value) && has(self.valueFrom))",
            holds=lambda self: self.value is None or self.value_from is None,
            expected="value or valueFrom, not both",
        ),
        Rule(
            cel="!self.name.startsWith('DRILLCORE_') && self.name != 'JOB_COMPLETION_INDEX'",
            holds=lambda self: not self.name.startswith("DRILLCORE_") and self.name != "JOB_COMPLETION_INDEX",
            expected="a name other than JOB_COMPLETION_INDEX and DRILLCORE_*, which drillcore sets",
            field=("name",),
        ),
    )


class TolerationOperator(StrEnum):
    """How a toleration's key relates to its value."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(SpecModel):
    """A taint of nodes that the pods tolerate."""

    key: LabelKey | None = None
    """Key of the taint. Default, with operator Exists: every taint."""
    operator: TolerationOperator = TolerationOperator.EQUAL
    """Equal: key and value are the taint's. Exists: the key is."""
    value: LabelValue | None = None
    """Value of the taint; with operator Equal only."""
    effect: TaintEffect | None = None
    """Effect of the taint. Default: every effect."""
    toleration_seconds: Annotated[int, integer(0, 2**31 - 1)] | None = None
    """How long a NoExecute taint is tolerated. Default: for ever."""


class NodeSelectorOperator(StrEnum):
    """How a node's label relates to the values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class NodeSelectorRequirement(SpecModel):
    """A condition on a label or field of a node."""

    key: LabelKey
    """Key of the label, or name of the field."""
    operator: NodeSelectorOperator
    """How the label relates to the values."""
    values: Values = ()
    """Values to compare with."""


class NodeSelectorTerm(SpecModel):
    """Conditions on a node that must all hold."""

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], Field(max_length=16)] = ()
    """Conditions on labels."""
    match_fields: Annotated[tuple[NodeSelectorRequirement, ...], Field(max_length=16)] = ()
    """Conditions on fields, such as metadata.name."""


class NodeSelector(SpecModel):
    """Terms of which one must hold."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1, max_length=8)]
    """The terms."""


class PreferredNodes(SpecModel):
    """Nodes that are preferred."""

    weight: Weight
    """How much, from 1 to 100."""
    preference: NodeSelectorTerm
    """Which nodes."""


class NodeAffinity(SpecModel):
    """Nodes on which the pods may or should run."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Nodes on which the pods may run."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredNodes, ...], Field(max_length=8)
    ] = ()
    """Nodes on which the pods should run."""


class LabelSelectorOperator(StrEnum):
    """How an object's label relates to the values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelSelectorRequirement(SpecModel):
    """A condition on a label."""

    key: LabelKey
    """Key of the label."""
    operator: LabelSelectorOperator
    """How the label relates to the values."""
    values: Values = ()
    """Values to compare with."""


class LabelSelector(SpecModel):
    """Conditions on an object's labels that must all hold."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels that the object has."""
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Field(max_length=16)] = ()
    """Conditions on labels."""


class PodAffinityTerm(SpecModel):
    """Other pods, and what counts as being together with them."""

    topology_key: LabelKey
    """Label of nodes; pods are together when their nodes have the same value of it."""
    label_selector: LabelSelector | None = None
    """Which pods."""
    match_label_keys: Annotated[tuple[LabelKey, ...], Field(max_length=8)] = ()
    """Labels whose values are taken from the pod itself, to be the same."""
    mismatch_label_keys: Annotated[tuple[LabelKey, ...], Field(max_length=8)] = ()
    """Labels whose values are taken from the pod itself, to be different."""
    namespaces: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = ()
    """Namespaces of the pods. Default, without namespaceSelector: the job's."""
    namespace_selector: LabelSelector | None = None
    """Namespaces of the pods, by label."""


class PreferredPods(SpecModel):
    """Pods whose neighbourhood is preferred."""

    weight: Weight
    """How much, from 1 to 100."""
    pod_affinity_term: PodAffinityTerm
    """Which pods."""


PodTerms = Annotated[tuple[PodAffinityTerm, ...], Field(max_length=8)]
PreferredPodTerms = Annotated[tuple[PreferredPods, ...], Field(max_length=8)]


class PodAffinity(SpecModel):
    """Pods near which the pods must or should run."""

    required_during_scheduling_ignored_during_execution: PodTerms = ()
    """Pods near which the pods must run."""
    preferred_during_scheduling_ignored_during_execution: PreferredPodTerms = ()
    """Pods near which the pods should run."""


class PodAntiAffinity(SpecModel):
    """Pods away from which the pods must or should run."""

    required_during_scheduling_ignored_during_execution: PodTerms = ()
    """Pods away from which the pods must run."""
    preferred_during_scheduling_ignored_during_execution: PreferredPodTerms = ()
    """Pods away from which the pods should run."""


class Affinity(SpecModel):
    """Where the pods run."""

    node_affinity: NodeAffinity | None = None
    """By node."""
    pod_affinity: PodAffinity | None = None
    """Near other pods."""
    pod_anti_affinity: PodAntiAffinity | None = None
    """Away from other pods."""


Annotations = Annotated[dict[LabelKey, MediumText], Field(max_length=32)]
