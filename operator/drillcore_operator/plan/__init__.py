"""What to do and what to say about a job: a pure function of what was seen, without the cluster."""

from drillcore_operator.plan.actions import (
    Action,
    CreateJob,
    DeleteJob,
    DeleteResource,
    PatchJob,
    PublishEvent,
    SetWorkloadActive,
)
from drillcore_operator.plan.observation import Observation, ProgressSeen, Refusal, Resource, ShardProgress
from drillcore_operator.plan.plan import Plan, plan

__all__ = [
    "Action",
    "CreateJob",
    "DeleteJob",
    "DeleteResource",
    "Observation",
    "PatchJob",
    "Plan",
    "ProgressSeen",
    "PublishEvent",
    "Refusal",
    "Resource",
    "SetWorkloadActive",
    "ShardProgress",
    "plan",
]
