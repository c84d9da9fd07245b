"""Whether every shard's commit was reported (condition OutputVerified)."""

from __future__ import annotations

from collections.abc import Mapping

from drillcore_operator.observed import ChildJob
from drillcore_operator.plan.aspects import Aspect, false, true, unknown
from drillcore_operator.plan.observation import ShardProgress
from drillcore_operator.plan.outcome import Outcome
from drillcore_spec.status import ConditionReason


def output_verified(outcome: Outcome | None, child: ChildJob | None, shards: Mapping[int, ShardProgress]) -> Aspect:
    """A server exits 0 only after it has checked its shard's commit: that is the last resort."""
    committed = sum(1 for shard in shards.values() if shard.is_committed)
    if outcome is None or child is None:
        return unknown(ConditionReason.PENDING, f"{committed} shards have reported their commit")
    if not outcome.succeeded:
        return false(ConditionReason.NOT_VERIFIED, "the job failed; what is committed can be read and resumed")
    if committed >= child.completions:
        return true(ConditionReason.VERIFIED, "every shard has reported its commit")
    return true(
        ConditionReason.VERIFIED_BY_EXIT_CODE,
        f"{committed} of {child.completions} shards have reported their commit; the others ended with code 0,"
        " which a server gives only after its commit",
    )
