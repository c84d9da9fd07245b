"""Typed views of what the API server says; each reads only the fields that decisions need."""

from drillcore_operator.observed.child import ChildJob
from drillcore_operator.observed.claim import Claim
from drillcore_operator.observed.container import ContainerStatus, Termination
from drillcore_operator.observed.event import ClusterEvent
from drillcore_operator.observed.pod import Disruption, Pod, is_made_by

__all__ = ["ChildJob", "Claim", "ClusterEvent", "ContainerStatus", "Disruption", "Pod", "Termination", "is_made_by"]
