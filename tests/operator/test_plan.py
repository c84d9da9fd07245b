"""The plan as a table: what is seen, what is said, what is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from drillcore_operator.observed import Claim, ContainerStatus, Termination
from drillcore_operator.plan import (
    CreateJob,
    DeleteJob,
    DeleteResource,
    Observation,
    PatchJob,
    Plan,
    ProgressSeen,
    PublishEvent,
    Refusal,
    SetWorkloadActive,
    ShardProgress,
    plan,
)
from drillcore_spec.messages import Counts, TerminationMessage
from drillcore_spec.reasons import Reason
from drillcore_spec.status import Condition, ConditionStatus, ConditionType, ExtractionJobStatus


def said(decided: Plan) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status.value, c.reason) for c in decided.status.conditions}


def message(decided: Plan, type_: str) -> str:
    return next(c.message for c in decided.status.conditions if c.type == type_)


def done(decided: Plan) -> list[object]:
    return [action for action in decided.actions if not isinstance(action, PublishEvent)]


def committed(rows: int = 10) -> str:
    counts = Counts(rows_in=rows, rows_out=rows, tokens=rows, bytes=rows)
    return TerminationMessage(code=0, reason=Reason.COMMITTED, counts=counts).to_line()


@dataclass(frozen=True)
class Row:
    """One row of the table; conditions that are not named do not matter to it."""

    see: Callable[[Any], Observation]
    conditions: dict[str, tuple[str, str]]
    actions: tuple[object, ...] = ()
    phase: str = "Pending"


def suspended_status(status: str, reason: str) -> ExtractionJobStatus:
    """What the last look said of suspension."""
    condition = Condition(
        type=ConditionType.SUSPENDED,
        status=ConditionStatus(status),
        reason=reason,
        message="",
        last_transition_time="2026-01-01T11:00:00Z",
    )
    return ExtractionJobStatus(conditions=(condition,))


QUEUED = {"queue": {"name": "research"}}
UNSCHEDULABLE = "0/3 nodes are available"
TABLE: dict[str, Row] = {
    "first visit": Row(
        lambda m: m.seen(),
        {
            "Accepted": ("True", "Accepted"),
            "OutputReady": ("True", "Bound"),
            "Suspended": ("False", "NotSuspended"),
            "PodsReady": ("Unknown", "Pending"),
            "Progressing": ("Unknown", "Starting"),
            "Disrupted": ("False", "NotDisrupted"),
            "OutputVerified": ("Unknown", "Pending"),
            "Succeeded": ("Unknown", "Pending"),
        },
        (CreateJob(),),
    ),
    "spec asks for what is not built": Row(
        lambda m: m.seen(m.resource(engine={"tensorParallelSize": 2}, server={"resources": {"gpus": 2}})),
        {"Accepted": ("False", "FeatureNotBuilt"), "Succeeded": ("False", "FeatureNotBuilt")},
        phase="Failed",
    ),
    "spec of another version": Row(
        lambda m: m.seen(m.resource(novelty=1)),
        {"Accepted": ("False", "BadSpec"), "Succeeded": ("False", "BadSpec")},
        phase="Failed",
    ),
    "output claim missing": Row(
        lambda m: m.seen(claims=m.bound | {"states": None}),
        {"OutputReady": ("False", "PVCNotFound"), "PodsReady": ("False", "PVCNotFound")},
    ),
    "dataset claim missing": Row(
        lambda m: m.seen(claims=m.bound | {"datasets": None}),
        {"OutputReady": ("True", "Bound"), "PodsReady": ("False", "PVCNotFound")},
    ),
    "output claim waits for its first pod": Row(
        lambda m: m.seen(claims=m.bound | {"states": Claim("states", "Pending", ("ReadWriteMany",))}),
        {"OutputReady": ("False", "PVCPending")},
        (CreateJob(),),
    ),
    "claim for one pod, two shards at once": Row(
        lambda m: m.seen(claims=m.bound | {"states": Claim("states", "Bound", ("ReadWriteOncePod",))}),
        {"OutputReady": ("False", "AccessMode")},
        (CreateJob(),),
    ),
    "template refused": Row(
        lambda m: m.seen(refusal=Refusal(is_invalid=True, message="spec.tolerations[0]: invalid")),
        {"Accepted": ("False", "InvalidPodTemplate"), "Succeeded": ("False", "InvalidPodTemplate")},
        phase="Failed",
    ),
    "creation refused by quota": Row(
        lambda m: m.seen(refusal=Refusal(is_invalid=False, message="exceeded quota: jobs")),
        {"PodsReady": ("False", "QuotaExceeded"), "Succeeded": ("Unknown", "QuotaExceeded")},
    ),
    "somebody else's Job": Row(
        lambda m: m.seen(child=m.child(owner_uid="other")),
        {"Accepted": ("False", "NameConflict"), "Succeeded": ("Unknown", "NameConflict")},
    ),
    "created suspended by the user": Row(
        lambda m: m.seen(m.resource(suspend=True), child=m.child(suspended=True, active=0, start_time=None)),
        {"Suspended": ("True", "Suspended"), "Progressing": ("Unknown", "Suspended")},
        phase="Suspended",
    ),
    "user suspends": Row(
        lambda m: m.seen(m.resource(suspend=True), child=m.child(ready=2)),
        {"Suspended": ("False", "Suspending")},
        (PatchJob(suspended=True, parallelism=2),),
        phase="Running",
    ),
    "suspended, a pod is left": Row(
        lambda m: m.seen(
            m.resource(suspend=True), child=m.child(suspended=True, active=0, terminating=1), pods=(m.pod(),)
        ),
        {"Suspended": ("False", "Suspending")},
    ),
    "user changes parallelism": Row(
        lambda m: m.seen(m.resource(parallelism=4), child=m.child(ready=2)),
        {"PodsReady": ("True", "Ready")},
        (PatchJob(suspended=False, parallelism=4),),
        phase="Running",
    ),
    "waits in the queue": Row(
        lambda m: m.seen(m.resource(**QUEUED), child=m.child(suspended=True, active=0, start_time=None)),
        {"Suspended": ("True", "Queued"), "Succeeded": ("Unknown", "Queued")},
        phase="Queued",
    ),
    "runs from the queue": Row(
        lambda m: m.seen(m.resource(**QUEUED), child=m.child(ready=2, parallelism=1)),
        {"Suspended": ("False", "NotSuspended"), "Progressing": ("True", "Running")},
        phase="Running",
    ),
    "user suspends a queued job": Row(
        lambda m: m.seen(m.resource(suspend=True, **QUEUED), child=m.child(ready=2)),
        {"Suspended": ("False", "Suspending")},
        (SetWorkloadActive("job-uid", active=False),),
        phase="Running",
    ),
    "the queue takes its room back": Row(
        lambda m: m.seen(m.resource(**QUEUED), child=m.child(suspended=True, active=1), pods=(m.pod(),)),
        {"Suspended": ("False", "Queued")},
    ),
    "user resumes a queued job": Row(
        lambda m: m.seen(
            m.resource(suspended_status("True", "Suspended"), **QUEUED),
            child=m.child(suspended=True, active=0, start_time=None),
        ),
        {"Suspended": ("True", "Queued")},
        (SetWorkloadActive("job-uid", active=True),),
        phase="Queued",
    ),
    "user resumes a queued job before its pods are gone": Row(
        lambda m: m.seen(m.resource(suspended_status("False", "Suspending"), **QUEUED), child=m.child(ready=2)),
        {"Suspended": ("False", "NotSuspended")},
        (SetWorkloadActive("job-uid", active=True),),
        phase="Running",
    ),
    "somebody else suspends the Job": Row(
        lambda m: m.seen(child=m.child(suspended=True, active=0, start_time=None)),
        {"Suspended": ("False", "NotSuspended"), "PodsReady": ("False", "NotSuspended")},
        (PatchJob(suspended=False, parallelism=2),),
    ),
    "pods start": Row(
        lambda m: m.seen(child=m.child(), pods=(m.pod(),)),
        {"PodsReady": ("False", "Starting"), "Progressing": ("Unknown", "Starting")},
    ),
    "some pods are ready": Row(
        lambda m: m.seen(child=m.child(ready=1), pods=(m.pod(), m.pod(1, is_ready=True))),
        {"PodsReady": ("False", "Starting"), "Progressing": ("True", "Running")},
        phase="Running",
    ),
    "all pods are ready": Row(
        lambda m: m.seen(child=m.child(ready=2)),
        {"PodsReady": ("True", "Ready"), "Progressing": ("True", "Running"), "Succeeded": ("Unknown", "Running")},
        phase="Running",
    ),
    "image cannot be pulled": Row(
        lambda m: m.seen(child=m.child(), pods=(m.waiting_pod("ErrImagePull", "not found"),)),
        {"PodsReady": ("False", "ImagePullError")},
    ),
    "secret is missing": Row(
        lambda m: m.seen(child=m.child(), pods=(m.waiting_pod("CreateContainerConfigError", 'secret "t" not found'),)),
        {"PodsReady": ("False", "SecretNotFound")},
    ),
    "kubelet's other words go through": Row(
        lambda m: m.seen(child=m.child(), pods=(m.waiting_pod("RunContainerError", "no such file"),)),
        {"PodsReady": ("False", "RunContainerError")},
    ),
    "no node fits": Row(
        lambda m: m.seen(
            child=m.child(),
            pods=(m.pod(node="", scheduling=m.condition("Unschedulable", UNSCHEDULABLE, "False")),),
        ),
        {"PodsReady": ("False", "Unschedulable")},
    ),
    "volume cannot be mounted": Row(
        lambda m: m.seen(
            child=m.child(),
            pods=(m.pod(),),
            events=(m.event("FailedMount", "timed out", kind="Pod", name="pod-0"),),
        ),
        {"PodsReady": ("False", "VolumeMountFailed")},
    ),
    "pods are over quota": Row(
        lambda m: m.seen(
            child=m.child(active=0), events=(m.event("FailedCreate", "pods is forbidden: exceeded quota: q"),)
        ),
        {"PodsReady": ("False", "QuotaExceeded")},
    ),
    "pods are not admitted": Row(
        lambda m: m.seen(child=m.child(active=0), events=(m.event("FailedCreate", "violates PodSecurity restricted"),)),
        {"PodsReady": ("False", "AdmissionRejected")},
    ),
    "a creation after the refused one": Row(
        lambda m: m.seen(
            child=m.child(active=1),
            events=(m.event("SuccessfulCreate", "pod-1"), m.event("FailedCreate", "exceeded quota: q")),
        ),
        {"PodsReady": ("False", "Starting")},
    ),
    "server was killed for memory": Row(
        lambda m: m.seen(child=m.child(active=1, num_failed_pods=1), pods=(m.ended_pod(137, reason="OOMKilled"),)),
        {"PodsReady": ("False", "OutOfMemory"), "Progressing": ("False", "OutOfMemory")},
        phase="Running",
    ),
    "killed for memory with exit code 0": Row(
        lambda m: m.seen(child=m.child(active=1, num_failed_pods=1), pods=(m.ended_pod(0, reason="OOMKilled"),)),
        {"PodsReady": ("False", "OutOfMemory")},
        phase="Running",
    ),
    "volume is full": Row(
        lambda m: m.seen(child=m.child(active=1), pods=(m.ended_pod(74),)),
        {"OutputReady": ("False", "OutputVolumeFull"), "PodsReady": ("False", "OutputVolumeFull")},
    ),
    "termination message outweighs the code": Row(
        lambda m: m.seen(
            child=m.child(active=1, num_failed_pods=1),
            pods=(m.ended_pod(70, TerminationMessage(code=70, reason=Reason.SIDECAR_LOST).to_line()),),
        ),
        {"PodsReady": ("False", "SidecarLost")},
        phase="Running",
    ),
    "drained": Row(
        lambda m: m.seen(child=m.child(ready=1), pods=(m.ended_pod(143, disruption=m.disruption()),)),
        {"Disrupted": ("True", "Drained"), "PodsReady": ("False", "Starting")},
        phase="Running",
    ),
    "node lost": Row(
        lambda m: m.seen(
            child=m.child(ready=1),
            pods=(m.pod(phase="Running", disruption=m.disruption("DeletionByTaintManager"), deletion_due=m.now),),
        ),
        {"Disrupted": ("True", "NodeLost")},
        phase="Running",
    ),
    "disrupted shard is done": Row(
        lambda m: m.seen(
            child=m.child(ready=1, completed=frozenset({0})),
            pods=(m.ended_pod(143, disruption=m.disruption()),),
        ),
        {"Disrupted": ("False", "NotDisrupted")},
        phase="Running",
    ),
    "pod does not go": Row(
        lambda m: m.seen(
            child=m.child(ready=1),
            pods=(m.pod(deletion_due=m.now - timedelta(minutes=5), finalizers=("keep",)),),
        ),
        {"Progressing": ("False", "Stalled")},
        phase="Running",
    ),
    "foreign container outlives the server": Row(
        lambda m: m.seen(
            child=m.child(ready=1),
            pods=(
                m.pod(
                    phase="Running",
                    containers=(
                        ContainerStatus(
                            "server", terminated=Termination(0, "Completed", "", m.now - timedelta(minutes=5))
                        ),
                        ContainerStatus("mesh", is_running=True),
                    ),
                ),
            ),
        ),
        {"Progressing": ("False", "Stalled")},
        phase="Running",
    ),
    "start deadline": Row(
        lambda m: m.seen(
            m.resource(startDeadlineSeconds=60),
            child=m.child(start_time=m.now - timedelta(seconds=60)),
            pods=(m.waiting_pod("ImagePullBackOff", "no such image"),),
        ),
        {"Succeeded": ("False", "StartDeadlineExceeded"), "PodsReady": ("False", "Finished")},
        (DeleteJob(),),
        phase="Failed",
    ),
    "start deadline without a child": Row(
        lambda m: m.seen(m.resource(startDeadlineSeconds=60), claims=m.bound | {"states": None}),
        {"Succeeded": ("False", "StartDeadlineExceeded")},
        phase="Failed",
    ),
    "no start deadline while queued": Row(
        lambda m: m.seen(
            m.resource(startDeadlineSeconds=60, **QUEUED),
            child=m.child(suspended=True, active=0, start_time=None),
        ),
        {"Succeeded": ("Unknown", "Queued")},
        phase="Queued",
    ),
    "no start deadline once a shard has run": Row(
        lambda m: m.seen(
            m.resource(startDeadlineSeconds=1),
            child=m.child(completed=frozenset({0})),
            pods=(m.waiting_pod("ImagePullBackOff"),),
        ),
        {"Succeeded": ("Unknown", "ImagePullError"), "Progressing": ("False", "ImagePullError")},
        phase="Running",
    ),
    "complete, every commit told": Row(
        lambda m: m.seen(
            child=m.child(
                active=0, completed=frozenset(range(4)), conditions={"Complete": m.condition("CompletionsReached")}
            ),
            pods=tuple(m.ended_pod(0, committed(), index=i, reason="Completed") for i in range(4)),
        ),
        {"Succeeded": ("True", "Succeeded"), "OutputVerified": ("True", "Verified")},
        phase="Succeeded",
    ),
    "complete, one pod is gone": Row(
        lambda m: m.seen(
            child=m.child(
                active=0, completed=frozenset(range(4)), conditions={"Complete": m.condition("CompletionsReached")}
            ),
            pods=tuple(m.ended_pod(0, committed(), index=i, reason="Completed") for i in range(3)),
        ),
        {"Succeeded": ("True", "Succeeded"), "OutputVerified": ("True", "VerifiedByExitCode")},
        phase="Succeeded",
    ),
    "not yet complete while pods end": Row(
        lambda m: m.seen(
            child=m.child(active=0, completed=frozenset(range(4)), conditions={"SuccessCriteriaMet": m.condition("x")})
        ),
        {"Succeeded": ("Unknown", "Running")},
        phase="Running",
    ),
    "stopped by an exit code": Row(
        lambda m: m.seen(
            child=m.child(conditions={"Failed": m.condition("PodFailurePolicy", "exit code 73")}),
            pods=(m.ended_pod(73, TerminationMessage(code=73, reason=Reason.OUTPUT_FOREIGN).to_line()),),
        ),
        {"Succeeded": ("False", "OutputForeign"), "OutputVerified": ("False", "NotVerified")},
        phase="Failed",
    ),
    "stopped by an exit code, the pod is gone": Row(
        lambda m: m.seen(
            child=m.child(conditions={"Failed": m.condition("PodFailurePolicy", "failed with exit code 78 matching")})
        ),
        {"Succeeded": ("False", "ModelUnsupported")},
        phase="Failed",
    ),
    "shards failed": Row(
        lambda m: m.seen(
            child=m.child(failed=frozenset({2}), failed_text="2", conditions={"Failed": m.condition("FailedIndexes")}),
            pods=(m.ended_pod(137, index=2, reason="OOMKilled"),),
        ),
        {"Succeeded": ("False", "ShardsFailed")},
        phase="Failed",
    ),
    "ran too long": Row(
        lambda m: m.seen(
            m.resource(activeDeadlineSeconds=9),
            child=m.child(conditions={"Failed": m.condition("DeadlineExceeded")}),
        ),
        {"Succeeded": ("False", "DeadlineExceeded")},
        phase="Failed",
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_is_seen_decides_what_is_said_and_done(make: Any, name: str) -> None:
    row = TABLE[name]
    decided = plan(row.see(make), make.now)
    conditions = said(decided)
    assert conditions | row.conditions == conditions
    assert done(decided) == list(row.actions)
    assert decided.status.phase == row.phase
    assert list(conditions) == [type_.value for type_ in ConditionType]


@pytest.mark.parametrize("name", TABLE)
def test_second_look_changes_nothing_and_tells_nothing(make: Any, name: str) -> None:
    seen = TABLE[name].see(make)
    first = plan(seen, make.now)
    again = replace(seen, resource=replace(seen.resource, status=first.status))
    second = plan(again, make.now + timedelta(seconds=1))
    assert second.status == first.status
    assert [action for action in second.actions if isinstance(action, PublishEvent)] == []


def test_messages_carry_the_clusters_words_and_what_to_do(make: Any) -> None:
    decided = make.plan(child=make.child(active=1), pods=(make.ended_pod(137, reason="OOMKilled"),))
    words = message(decided, "PodsReady")
    assert "shard 0, pod pod-0: container server was killed for memory" in words
    assert "its limit 32Gi, of which the ring may take 4Gi" in words
    assert "in a new ExtractionJob with the same output" in words


def test_an_eviction_that_is_no_disruption_says_what_was_over_its_limit(make: Any) -> None:
    words = 'Usage of EmptyDir volume "tmp" exceeds the limit "4Mi". '
    evicted = {"status_reason": "Evicted", "status_message": words}
    for pod in (make.ended_pod(143, **evicted), make.pod(phase="Failed", **evicted)):
        decided = make.plan(child=make.child(active=1, num_failed_pods=1), pods=(pod,))
        assert f"shard 0, pod pod-0: kubelet evicted it: {words}" in message(decided, "PodsReady")
        assert said(decided)["Disrupted"] == ("False", "NotDisrupted")


def test_lost_node_says_how_to_free_the_shard(make: Any) -> None:
    lost = make.pod(phase="Running", disruption=make.disruption("DeletionByTaintManager"), deletion_due=make.now)
    words = message(make.plan(child=make.child(ready=1), pods=(lost,)), "Disrupted")
    assert "kubectl taint node node-a node.kubernetes.io/out-of-service=:NoExecute" in words


def test_disruptions_are_counted_once_and_only_after_the_last_one(make: Any) -> None:
    pods = (make.ended_pod(143, disruption=make.disruption(second=1)),)
    first = make.plan(child=make.child(ready=1), pods=pods)
    assert first.status.disruptions.count == 1
    seen_again = make.plan(make.resource(first.status), child=make.child(ready=1), pods=pods)
    assert seen_again.status.disruptions.count == 1
    more = (*pods, make.ended_pod(143, index=1, disruption=make.disruption(second=9)))
    second = make.plan(make.resource(first.status), child=make.child(ready=0), pods=more)
    assert second.status.disruptions.count == 2


def test_disrupted_stays_until_every_pod_is_ready_again(make: Any) -> None:
    first = make.plan(child=make.child(ready=1), pods=(make.ended_pod(143, disruption=make.disruption()),))
    waiting = make.plan(make.resource(first.status), child=make.child(ready=1), pods=(make.pod(),))
    assert said(waiting)["Disrupted"] == ("True", "Drained")
    ready = make.plan(make.resource(waiting.status), child=make.child(ready=2))
    assert said(ready)["Disrupted"] == ("False", "NotDisrupted")


def test_a_job_that_something_else_suspends_says_so(make: Any) -> None:
    decided = make.plan(child=make.child(suspended=True, active=0, start_time=None))
    assert "something else suspends it again" in message(decided, "PodsReady")


def test_a_crash_loop_is_told_with_the_end_of_the_last_run(make: Any) -> None:
    crashed = Termination(1, "Error", "OSError: no such volume\n", make.now)
    pod = make.pod(
        containers=(
            ContainerStatus(
                "sidecar",
                waiting_reason="CrashLoopBackOff",
                waiting_message="back-off 20s restarting failed container",
                last_terminated=crashed,
            ),
        )
    )
    decided = make.plan(child=make.child(), pods=(pod,))
    assert said(decided)["PodsReady"] == ("False", "CrashLoopBackOff")
    words = "back-off 20s restarting failed container; its last run ended with code 1 (Error): OSError: no such volume"
    assert words in message(decided, "PodsReady")


def test_first_words_about_an_image_stay(make: Any) -> None:
    first = make.plan(child=make.child(), pods=(make.waiting_pod("ErrImagePull", "not found"),))
    resource = make.resource(first.status)
    second = make.plan(resource, child=make.child(), pods=(make.waiting_pod("ImagePullBackOff", "back-off"),))
    assert second.status == first.status


def test_transition_time_changes_with_the_status_only(make: Any) -> None:
    first = make.plan(child=make.child())
    later = make.now + timedelta(minutes=1)
    second = make.plan(
        make.resource(first.status), child=make.child(), pods=(make.waiting_pod("ErrImagePull"),), now=later
    )
    times = {c.type: c.last_transition_time for c in second.status.conditions}
    assert times["PodsReady"] == "2026-01-01T12:00:00Z", "False before and after"
    third = make.plan(make.resource(second.status), child=make.child(ready=2), now=later)
    times = {c.type: c.last_transition_time for c in third.status.conditions}
    assert times["PodsReady"] == "2026-01-01T12:01:00Z"


def test_after_the_end_only_an_overdue_job_is_removed(make: Any) -> None:
    end = make.child(conditions={"Failed": make.condition("FailedIndexes")})
    failed = make.plan(make.resource(ttlSecondsAfterFinished=60), child=end)
    assert failed.look_again_s == 60.0
    resource = make.resource(failed.status, ttlSecondsAfterFinished=60)
    early = make.plan(resource, child=end, now=make.now + timedelta(seconds=10))
    assert (early.actions, early.look_again_s) == ((), 50.0)
    due = make.plan(resource, child=end, now=make.now + timedelta(seconds=60))
    assert due.actions == (DeleteResource(),)


def test_child_that_was_given_up_is_deleted_even_after_a_crash(make: Any) -> None:
    given_up = make.plan(make.resource(startDeadlineSeconds=1), child=make.child())
    again = make.plan(make.resource(given_up.status, startDeadlineSeconds=1), child=make.child())
    assert again.actions == (DeleteJob(),)
    assert make.plan(make.resource(given_up.status)).actions == ()


def test_vanished_child_is_made_again(make: Any) -> None:
    running = make.plan(child=make.child(ready=2))
    assert done(make.plan(make.resource(running.status))) == [CreateJob()]


def test_nothing_is_done_to_a_child_that_is_being_deleted(make: Any) -> None:
    assert done(make.plan(make.resource(parallelism=1), child=make.child(is_deleted=True))) == []


def test_each_new_reason_is_told_once(make: Any) -> None:
    decided = make.plan(child=make.child(active=1), pods=(make.ended_pod(74),))
    assert [a.reason for a in decided.actions if isinstance(a, PublishEvent)] == ["OutputVolumeFull"]


def test_progress_sums_reports_and_estimates_the_rest(make: Any) -> None:
    shards = {i: ShardProgress(rows_total=100, rows_done=50, tokens=5, bytes=7) for i in range(4)}
    decided = make.plan(child=make.child(ready=2), progress=ProgressSeen(shards, rows_per_second=10.0))
    progress = decided.status.progress
    assert (progress.rows_done, progress.rows_total, progress.percentage) == (200, 400, 50)
    assert (progress.tokens, progress.bytes, progress.estimated_remaining_seconds) == (20, 28, 20)
    assert decided.status.output.uri == "pvc://states"


def test_completed_shards_are_the_floor_without_reports(make: Any) -> None:
    decided = make.plan(child=make.child(ready=1, completed=frozenset({0, 1, 2})))
    assert decided.status.progress.percentage == 75
    assert decided.status.shards.summary == "3/4"


def test_hundred_percent_is_said_only_when_the_job_is_complete(make: Any) -> None:
    shards = {i: ShardProgress(rows_total=10, rows_done=10) for i in range(4)}
    decided = make.plan(child=make.child(ready=2), progress=ProgressSeen(shards))
    assert decided.status.progress.percentage == 99


@pytest.mark.parametrize(
    ("word", "reason"),
    [("RunContainerError", "RunContainerError"), ("no such (runtime): x/y", "nosuchruntimexy"), ("9", "Pending")],
)
def test_a_runtimes_own_word_becomes_a_reason_that_a_condition_may_hold(make, word: str, reason: str) -> None:
    decided = make.plan(child=make.child(), pods=(make.waiting_pod(word, "its message"),))
    condition = next(c for c in decided.status.conditions if c.type == "PodsReady")
    assert condition.reason == reason
    assert "its message" in condition.message
