"""The status of a job whose spec this operator cannot carry out."""

from __future__ import annotations

from datetime import datetime

from drillcore_operator.observed.fields import format_time
from drillcore_operator.plan.acceptance import SpecProblem
from drillcore_operator.plan.aspects import false, to_conditions
from drillcore_operator.plan.observation import Resource
from drillcore_spec.status import ConditionReason, ConditionType, ExtractionJobStatus, Phase


def refused_status(resource: Resource, problem: SpecProblem, now: datetime) -> ExtractionJobStatus:
    """Failed before anything was created: the spec cannot change, so waiting cannot help."""
    over = false(ConditionReason.FINISHED, "the job is over")
    aspects = {
        ConditionType.ACCEPTED: false(problem.reason, problem.message),
        ConditionType.PODS_READY: over,
        ConditionType.PROGRESSING: over,
        ConditionType.SUCCEEDED: false(problem.reason, problem.message),
    }
    return ExtractionJobStatus(
        observed_generation=resource.generation,
        conditions=to_conditions(aspects, resource.status.conditions, resource.generation, now),
        phase=Phase.FAILED,
        start_time=resource.status.start_time or format_time(now),
        completion_time=format_time(now),
    )
