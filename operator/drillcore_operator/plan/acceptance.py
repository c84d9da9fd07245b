"""Whether the spec can be carried out at all (conditions Accepted), and by this version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from drillcore_operator.observed import ChildJob
from drillcore_operator.plan.aspects import Aspect, false, true
from drillcore_operator.plan.observation import Refusal, Resource
from drillcore_spec import SpecError, refuse_unbuilt
from drillcore_spec.job import ExtractionJob, ExtractionJobSpec
from drillcore_spec.reasons import Reason
from drillcore_spec.status import ConditionReason


@dataclass(frozen=True)
class SpecProblem:
    """A spec that this operator cannot carry out."""

    reason: str
    message: str


def read_spec(document: Mapping[str, Any]) -> ExtractionJobSpec | SpecProblem:
    """The spec, or why it is refused: the CRD in the cluster may be of another version than the operator."""
    try:
        spec = ExtractionJob.from_resource(dict(document)).spec
        refuse_unbuilt(spec)
    except ValidationError as error:
        return SpecProblem(Reason.BAD_SPEC, _words(error))
    except SpecError as error:
        return SpecProblem(ConditionReason.FEATURE_NOT_BUILT, str(error))
    return spec


def accepted(resource: Resource, child: ChildJob | None, refusal: Refusal | None) -> Aspect:
    """Condition Accepted for a spec that could be read."""
    if is_foreign(resource, child):
        assert child is not None
        return false(
            ConditionReason.NAME_CONFLICT,
            f"a Job {child.name} that is not this job's has its name: delete it, and this job goes on",
        )
    if refusal is not None and refusal.is_invalid:
        return false(ConditionReason.INVALID_POD_TEMPLATE, refusal.message)
    return true(ConditionReason.ACCEPTED, "the spec can be carried out")


def is_foreign(resource: Resource, child: ChildJob | None) -> bool:
    """Whether the Job of our name belongs to somebody else."""
    return child is not None and child.owner_uid != resource.uid


def _words(error: ValidationError) -> str:
    return "; ".join(
        f"spec.{'.'.join(str(part) for part in problem['loc'] if part != 'spec')}: {problem['msg']}"
        for problem in error.errors(include_url=False)
    )
