"""The child Job as the Job controller sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from drillcore_operator.observed.fields import (
    ConditionView,
    Manifest,
    conditions_of,
    parse_indexes,
    parse_time,
)


@dataclass(frozen=True)
class ChildJob:
    """What decisions need of a batch/v1 Job."""

    name: str
    uid: str
    owner_uid: str | None
    """uid of the controlling owner."""
    suspended: bool
    parallelism: int
    completions: int
    is_deleted: bool = False
    """Deletion was asked for and is under way."""
    start_time: datetime | None = None
    """When it was last unsuspended; None while suspended."""
    active: int = 0
    """Pods that are pending or running."""
    ready: int = 0
    """Pods that are ready."""
    terminating: int = 0
    """Pods whose deletion is under way."""
    num_failed_pods: int = 0
    """Failed pods that count; disrupted and ignored ones do not."""
    completed: frozenset[int] = frozenset()
    """Indexes that succeeded."""
    failed: frozenset[int] = frozenset()
    """Indexes that failed for good."""
    failed_text: str = ""
    """The same as Kubernetes writes it."""
    conditions: dict[str, ConditionView] = field(default_factory=dict)

    @classmethod
    def from_api(cls, job: Manifest) -> Self:
        """Reads a Job of the API server."""
        metadata, spec, status = job["metadata"], job["spec"], job.get("status", {})
        owners = [o["uid"] for o in metadata.get("ownerReferences") or () if o.get("controller")]
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            owner_uid=owners[0] if owners else None,
            suspended=bool(spec.get("suspend")),
            parallelism=spec.get("parallelism", 1),
            completions=spec.get("completions", 1),
            is_deleted="deletionTimestamp" in metadata,
            start_time=parse_time(status.get("startTime")),
            active=status.get("active", 0),
            ready=status.get("ready", 0),
            terminating=status.get("terminating", 0),
            num_failed_pods=status.get("failed", 0),
            completed=parse_indexes(status.get("completedIndexes")),
            failed=parse_indexes(status.get("failedIndexes")),
            failed_text=status.get("failedIndexes") or "",
            conditions=conditions_of(status),
        )

    @property
    def is_complete(self) -> bool:
        """Every index succeeded and no pod is left."""
        return self._holds("Complete")

    @property
    def failure(self) -> ConditionView | None:
        """Why it failed for good; None: it did not."""
        return self.conditions["Failed"] if self._holds("Failed") else None

    @property
    def is_finished(self) -> bool:
        """Complete or failed: its status does not change any more."""
        return self.is_complete or self.failure is not None

    @property
    def num_wanted_pods(self) -> int:
        """Pods that should run now."""
        if self.suspended or self.is_finished:
            return 0
        return min(self.parallelism, self.num_unfinished)

    @property
    def num_unfinished(self) -> int:
        """Indexes that have neither succeeded nor failed for good."""
        return self.completions - len(self.completed) - len(self.failed)

    def _holds(self, condition: str) -> bool:
        view = self.conditions.get(condition)
        return view is not None and view.status == "True"
