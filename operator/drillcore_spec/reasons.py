"""Why a shard ended: exit codes, reasons, and what the Kubernetes Job does about each.

The one source for the server's exit codes, the child Job's podFailurePolicy, the conditions' reasons
and the table in docs/.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class JobAction(StrEnum):
    """What the child Job does when the server container ends with a code."""

    DONE = "Done"
    """The index is complete."""
    FAIL_JOB = "FailJob"
    """No retry and no other shard can help: the whole Job fails."""
    FAIL_INDEX = "FailIndex"
    """A retry of this shard cannot help; the other shards go on."""
    COUNT = "Count"
    """Retried, and counted against backoffLimitPerShard."""
    IGNORE = "Ignore"
    """Retried with Kubernetes' own back-off, not counted."""


class Reason(StrEnum):
    """Machine-readable reasons of a shard's end, as they stand in conditions and termination messages."""

    COMMITTED = "Committed"
    BAD_SPEC = "BadSpec"
    DATASET_NOT_FOUND = "DatasetNotFound"
    BAD_DATASET = "BadDataset"
    SHARD_UNREADABLE = "ShardUnreadable"
    TOO_MANY_QUARANTINED = "TooManyQuarantined"
    MODEL_UNAVAILABLE = "ModelUnavailable"
    INTERNAL = "Internal"
    SIDECAR_LOST = "SidecarLost"
    OUTPUT_SIZE_LIMIT = "OutputSizeLimit"
    OUTPUT_FOREIGN = "OutputForeign"
    OUTPUT_IDENTITY = "OutputIdentity"
    OUTPUT_UNWRITABLE = "OutputUnwritable"
    OUTPUT_VOLUME_FULL = "OutputVolumeFull"
    COMMIT_TIMEOUT = "CommitTimeout"
    NO_DEVICE = "NoDevice"
    MODEL_UNSUPPORTED = "ModelUnsupported"
    MODEL_BROKEN = "ModelBroken"
    SHM_TOO_SMALL = "ShmTooSmall"
    OUT_OF_MEMORY = "OutOfMemory"
    TERMINATED = "Terminated"

    @property
    def exit_code(self) -> int:
        """The server's exit code for this reason."""
        return _CODE_OF[self]


@dataclass(frozen=True)
class ExitRule:
    """One row of the exit-code table."""

    code: int
    reasons: tuple[Reason, ...]
    action: JobAction


EXIT_RULES: tuple[ExitRule, ...] = (
    ExitRule(0, (Reason.COMMITTED,), JobAction.DONE),
    ExitRule(64, (Reason.BAD_SPEC,), JobAction.FAIL_JOB),
    ExitRule(65, (Reason.DATASET_NOT_FOUND, Reason.BAD_DATASET), JobAction.FAIL_JOB),
    ExitRule(66, (Reason.SHARD_UNREADABLE,), JobAction.FAIL_INDEX),
    ExitRule(67, (Reason.TOO_MANY_QUARANTINED,), JobAction.FAIL_INDEX),
    ExitRule(69, (Reason.MODEL_UNAVAILABLE,), JobAction.COUNT),
    ExitRule(70, (Reason.INTERNAL,), JobAction.COUNT),
    ExitRule(71, (Reason.SIDECAR_LOST,), JobAction.COUNT),
    ExitRule(72, (Reason.OUTPUT_SIZE_LIMIT,), JobAction.FAIL_INDEX),
    ExitRule(73, (Reason.OUTPUT_FOREIGN, Reason.OUTPUT_IDENTITY, Reason.OUTPUT_UNWRITABLE), JobAction.FAIL_JOB),
    ExitRule(74, (Reason.OUTPUT_VOLUME_FULL,), JobAction.IGNORE),
    ExitRule(75, (Reason.COMMIT_TIMEOUT,), JobAction.COUNT),
    ExitRule(77, (Reason.NO_DEVICE,), JobAction.COUNT),
    ExitRule(78, (Reason.MODEL_UNSUPPORTED, Reason.MODEL_BROKEN), JobAction.FAIL_JOB),
    ExitRule(135, (Reason.SHM_TOO_SMALL,), JobAction.COUNT),
    ExitRule(137, (Reason.OUT_OF_MEMORY,), JobAction.COUNT),
    ExitRule(143, (Reason.TERMINATED,), JobAction.COUNT),
)

_CODE_OF: dict[Reason, int] = {reason: rule.code for rule in EXIT_RULES for reason in rule.reasons}
