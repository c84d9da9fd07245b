"""The decision about one job: what to do in the cluster, what to write into its status, when to look again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from drillcore_operator.observed import ChildJob
from drillcore_operator.observed.fields import parse_time
from drillcore_operator.plan.acceptance import SpecProblem, is_foreign, read_spec
from drillcore_operator.plan.actions import Action, CreateJob, DeleteJob, DeleteResource, PatchJob, SetWorkloadActive
from drillcore_operator.plan.aspects import find
from drillcore_operator.plan.news import news
from drillcore_operator.plan.observation import Observation
from drillcore_operator.plan.picture import Picture, draw
from drillcore_operator.plan.refused import refused_status
from drillcore_operator.plan.status import to_status
from drillcore_operator.plan.suspension import is_suspended_by_user
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.status import ConditionReason, ConditionType, ExtractionJobStatus

POLL_S = 5.0
"""How soon a job that is not ready is looked at again: pods are not watched."""
SLOW_POLL_S = 15.0
"""The same once it has been waiting for `POLL_SLOWS_AFTER`."""
RETRY_CREATION_S = 30.0
"""How soon a creation that was refused is tried again."""
POLL_SLOWS_AFTER = timedelta(minutes=5)


@dataclass(frozen=True)
class Plan:
    """What follows from an observation."""

    actions: tuple[Action, ...]
    """In this order; status is written after them."""
    status: ExtractionJobStatus
    look_again_s: float | None = None
    """When to look again without being called; None: only when something changes."""


def plan(seen: Observation, now: datetime) -> Plan:
    """Decides. Pure: the same observation gives the same plan, and a plan carried out twice does no harm."""
    if seen.resource.is_terminal:
        return _after_the_end(seen, now)
    spec = read_spec(seen.resource.document)
    if isinstance(spec, SpecProblem):
        status = refused_status(seen.resource, spec, now)
        return Plan(news(seen.resource.status, status), status, _ttl_s(seen))
    picture = draw(seen, spec, now)
    status = to_status(seen.resource, spec, picture, now)
    actions = (*_actions(seen, spec, picture), *news(seen.resource.status, status))
    return Plan(actions, status, _look_again_s(seen, picture, now))


def _actions(seen: Observation, spec: ExtractionJobSpec, picture: Picture) -> tuple[Action, ...]:
    child = seen.child
    if picture.outcome is not None:
        gives_up = picture.outcome.reason == ConditionReason.START_DEADLINE_EXCEEDED
        return (DeleteJob(),) if gives_up and child is not None else ()
    if child is None:
        missing = any(claim is None for claim in seen.claims.values())
        return () if missing or seen.refusal is not None else (CreateJob(),)
    if is_foreign(seen.resource, child) or child.is_deleted or child.is_finished:
        return ()
    if spec.queue is not None:
        return _turn(seen, spec, child)
    if (child.suspended, child.parallelism) != (spec.suspend, spec.parallelism):
        return (PatchJob(spec.suspend, spec.parallelism),)
    return ()


def _turn(seen: Observation, spec: ExtractionJobSpec, child: ChildJob) -> tuple[Action, ...]:
    """A queued job's suspension; what Kueue or an administrator has deactivated is activated by its user only."""
    if spec.suspend or is_suspended_by_user(seen.resource.status):
        return (SetWorkloadActive(child.uid, active=not spec.suspend),)
    return ()


def _look_again_s(seen: Observation, picture: Picture, now: datetime) -> float | None:
    if picture.outcome is not None:
        return _ttl_s(seen)
    if not picture.is_waiting:
        return None
    if seen.refusal is not None:
        return RETRY_CREATION_S
    condition = find(seen.resource.status.conditions, ConditionType.PODS_READY)
    since = parse_time(condition.last_transition_time) if condition else now
    return SLOW_POLL_S if since and now - since > POLL_SLOWS_AFTER else POLL_S


def _after_the_end(seen: Observation, now: datetime) -> Plan:
    """Nothing changes any more; a child that was given up is deleted, an old job removes itself."""
    status = seen.resource.status
    summary = find(status.conditions, ConditionType.SUCCEEDED)
    gave_up = summary is not None and summary.reason == ConditionReason.START_DEADLINE_EXCEEDED
    owned = seen.child is not None and not is_foreign(seen.resource, seen.child) and not seen.child.is_deleted
    actions: list[Action] = [DeleteJob()] if gave_up and owned else []
    left_s = _seconds_to_live(seen, now)
    if left_s is not None and left_s <= 0:
        return Plan((*actions, DeleteResource()), status)
    return Plan(tuple(actions), status, left_s)


def _seconds_to_live(seen: Observation, now: datetime) -> float | None:
    ttl_s = _ttl_s(seen)
    finished = parse_time(seen.resource.status.completion_time)
    if ttl_s is None or finished is None:
        return None
    return (finished + timedelta(seconds=ttl_s) - now).total_seconds()


def _ttl_s(seen: Observation) -> float | None:
    """How long a job is kept after its end; None: for ever."""
    ttl_s: int | None = seen.resource.document["spec"].get("ttlSecondsAfterFinished")
    return None if ttl_s is None else float(ttl_s)
