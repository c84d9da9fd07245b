"""Whether the job's claims are there and can be mounted as it needs them (condition OutputReady)."""

from __future__ import annotations

from collections.abc import Mapping

from drillcore_operator.observed import Claim
from drillcore_operator.plan.aspects import PENDING, Aspect, false, true
from drillcore_operator.plan.failures import ShardFailure
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.reasons import Reason
from drillcore_spec.status import Condition, ConditionReason


def output_ready(
    spec: ExtractionJobSpec,
    claims: Mapping[str, Claim | None],
    waiting_failures: Mapping[int, ShardFailure],
    previous: Condition | None,
) -> Aspect:
    """Says what stands in the way; a claim that was not looked up this time leaves it as it was.

    Args:
        spec: the job's spec.
        claims: the claims that were looked up.
        waiting_failures: the last failure of each shard that has no running pod now.
        previous: the condition so far.
    """
    for failure in waiting_failures.values():
        if failure.reason is Reason.OUTPUT_VOLUME_FULL:
            return false(failure.reason, failure.message)
    name = spec.output.claim_name
    if name not in claims:
        return Aspect(previous.status, previous.reason, previous.message) if previous else PENDING
    claim = claims[name]
    return false(ConditionReason.PVC_NOT_FOUND, missing(name)) if claim is None else _usable(spec, claim)


def missing(claim: str) -> str:
    """What is said of a claim that is not there."""
    return f"there is no PersistentVolumeClaim {claim} in the job's namespace: create it, and the job goes on"


def _usable(spec: ExtractionJobSpec, claim: Claim) -> Aspect:
    if "ReadWriteOncePod" in claim.access_modes and spec.parallelism > 1:
        return false(
            ConditionReason.ACCESS_MODE,
            f"claim {claim.name} is ReadWriteOncePod and parallelism is {spec.parallelism}: one shard runs at"
            " a time; set parallelism to 1, or use a ReadWriteMany claim",
        )
    if claim.phase == "Bound":
        return true(ConditionReason.BOUND, f"claim {claim.name} is bound ({', '.join(claim.access_modes)})")
    return false(
        ConditionReason.PVC_PENDING,
        f"claim {claim.name} is {claim.phase}: it has no volume yet; see `kubectl describe pvc {claim.name}`",
    )
