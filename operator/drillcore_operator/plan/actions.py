"""What the operator may do in the cluster, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CreateJob:
    """Create the child Job."""


@dataclass(frozen=True)
class PatchJob:
    """Set the only two fields of the child that ever change; others may have changed the rest."""

    suspended: bool
    parallelism: int


@dataclass(frozen=True)
class DeleteJob:
    """Delete the child Job and, in the background, its pods."""


@dataclass(frozen=True)
class SetWorkloadActive:
    """Tell Kueue whether the user wants this Job to run."""

    job_uid: str
    active: bool


@dataclass(frozen=True)
class DeleteResource:
    """Delete the ExtractionJob itself, whose time to live is over; its child follows."""


@dataclass(frozen=True)
class PublishEvent:
    """Tell something once more in the job's events; the same reason and message count up one event."""

    reason: str
    message: str
    is_warning: bool


Action = CreateJob | PatchJob | DeleteJob | SetWorkloadActive | DeleteResource | PublishEvent
