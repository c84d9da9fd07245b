"""What must hold for a job under any order of events, lost, late and repeated ones included."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_operator.plan import CreateJob, DeleteResource, Plan, ProgressSeen, PublishEvent, ShardProgress
from drillcore_spec.status import ConditionStatus, ConditionType

NUM_SHARDS = 3
shard_sets = st.sets(st.integers(0, NUM_SHARDS - 1)).map(frozenset)
CONDITIONS = ("", "", "", "Complete", "FailedIndexes", "PodFailurePolicy", "DeadlineExceeded")


@st.composite
def looks(draw: st.DrawFn) -> dict[str, Any]:
    """One look at the cluster: a child in any state, also one older than the last, pods, progress, claims."""
    completed = draw(shard_sets)
    return {
        "child": draw(st.booleans()),
        "suspended": draw(st.booleans()),
        "ready": draw(st.integers(0, NUM_SHARDS)),
        "active": draw(st.integers(0, NUM_SHARDS)),
        "num_failed_pods": draw(st.integers(0, 5)),
        "completed": completed,
        "failed": draw(shard_sets) - completed,
        "end": draw(st.sampled_from(CONDITIONS)),
        "codes": draw(st.lists(st.sampled_from([0, 65, 74, 137, 143, 255]), max_size=NUM_SHARDS)),
        "disrupted": draw(st.booleans()),
        "rows": draw(st.lists(st.integers(0, 100), max_size=NUM_SHARDS)),
        "claim": draw(st.booleans()),
        "step_s": draw(st.integers(0, 300)),
    }


def carry_on(make: Any, history: list[dict[str, Any]]) -> list[Plan]:
    """The plans of one look after the other, each with the status that the last one wrote."""
    plans: list[Plan] = []
    now = make.now
    for look in history:
        now += timedelta(seconds=look["step_s"])
        status = plans[-1].status if plans else None
        plans.append(make.plan(make.resource(status, shards={"count": NUM_SHARDS}), now=now, **parts(make, look)))
    return plans


def parts(make: Any, look: dict[str, Any]) -> dict[str, Any]:
    end = look["end"]
    conditions = {} if not end else {"Complete" if end == "Complete" else "Failed": make.condition(end)}
    names = ("suspended", "ready", "active", "num_failed_pods", "completed", "failed")
    child = make.child(completions=NUM_SHARDS, conditions=conditions, **{name: look[name] for name in names})
    disruption = make.disruption() if look["disrupted"] else None
    shards = {i: ShardProgress(rows_total=100, rows_done=rows) for i, rows in enumerate(look["rows"])}
    return {
        "child": child if look["child"] else None,
        "pods": tuple(make.ended_pod(c, index=i, disruption=disruption) for i, c in enumerate(look["codes"])),
        "progress": ProgressSeen(shards),
        "claims": make.bound if look["claim"] else make.bound | {"states": None},
    }


def summary(plan: Plan) -> Any:
    return next(c for c in plan.status.conditions if c.type == ConditionType.SUCCEEDED)


histories = st.lists(looks(), min_size=1, max_size=8)


@settings(deadline=None)
@given(history=histories)
def test_the_end_is_for_good(make: Any, history: list[dict[str, Any]]) -> None:
    plans = carry_on(make, history)
    ends = [i for i, plan in enumerate(plans) if summary(plan).status is not ConditionStatus.UNKNOWN]
    for later in plans[ends[0] + 1 :] if ends else []:
        assert later.status == plans[ends[0]].status
        assert not any(isinstance(action, CreateJob | PublishEvent) for action in later.actions)


@settings(deadline=None)
@given(history=histories)
def test_progress_never_goes_back(make: Any, history: list[dict[str, Any]]) -> None:
    plans = carry_on(make, history)
    for before, after in pairwise(plans):
        old, new = before.status.progress, after.status.progress
        assert (new.rows_done, new.percentage) >= (old.rows_done, 0)
        assert new.percentage >= old.percentage
        assert new.rows_total is None or new.rows_total >= (old.rows_total or 0)
        assert (after.status.retries or 0) >= (before.status.retries or 0)


@settings(deadline=None)
@given(history=histories)
def test_every_condition_is_there_with_a_reason(make: Any, history: list[dict[str, Any]]) -> None:
    for plan in carry_on(make, history):
        assert [c.type for c in plan.status.conditions] == [type_.value for type_ in ConditionType]
        assert all(c.reason for c in plan.status.conditions)
        assert plan.status.phase is not None


@settings(deadline=None)
@given(history=histories)
def test_a_job_is_created_only_where_there_is_none(make: Any, history: list[dict[str, Any]]) -> None:
    for look, plan in zip(history, carry_on(make, history), strict=True):
        creates = any(isinstance(action, CreateJob) for action in plan.actions)
        assert not (creates and look["child"])
        assert not any(isinstance(action, DeleteResource) for action in plan.actions), "no ttl was given"


@settings(deadline=None)
@given(look=looks())
def test_the_same_look_twice_says_nothing_new(make: Any, look: dict[str, Any]) -> None:
    first, second = carry_on(make, [look, replace_step(look)])
    assert second.status == first.status
    assert not any(isinstance(action, PublishEvent) for action in second.actions)


@settings(deadline=None)
@given(history=histories)
def test_success_means_that_every_commit_is_accounted_for(make: Any, history: list[dict[str, Any]]) -> None:
    for plan in carry_on(make, history):
        if summary(plan).status is ConditionStatus.TRUE:
            verified = next(c for c in plan.status.conditions if c.type == ConditionType.OUTPUT_VERIFIED)
            assert verified.status is ConditionStatus.TRUE


def replace_step(look: dict[str, Any]) -> dict[str, Any]:
    return look | {"step_s": 1}
