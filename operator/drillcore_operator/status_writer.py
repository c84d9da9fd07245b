"""Writes statuses as seldom as users allow: conditions at once, mere progress every few seconds."""

from __future__ import annotations

from collections.abc import Callable

from drillcore_operator.cluster import ClusterApi
from drillcore_operator.errors import Conflict, NotFound
from drillcore_operator.keys import JobKey
from drillcore_operator.plan import Resource
from drillcore_spec.status import ExtractionJobStatus

_PROGRESS_FIELDS = {"progress", "output"}
"""Fields that change all the time; no condition rests on them."""


class StatusWriter:
    """Remembers when each job's status was written last."""

    def __init__(self, api: ClusterApi, interval_s: float, clock_s: Callable[[], float]) -> None:
        self._api = api
        self._interval_s = interval_s
        self._clock_s = clock_s
        self._written_s: dict[JobKey, float] = {}

    async def write(self, resource: Resource, status: ExtractionJobStatus) -> float | None:
        """Writes the status if it differs; gives when to come back if it is too early, else None.

        Raises:
            ClusterError: but not when the job is gone or was made anew, which its own look will see.
        """
        if status == resource.status:
            return None
        key = JobKey(resource.namespace, resource.name)
        if _only_progress(resource.status, status) and (left_s := self._left_s(key)) > 0:
            return left_s
        try:
            await self._api.apply_status(dict(resource.document), status.model_dump(mode="json"))
        except (NotFound, Conflict):
            return None
        # From the answer on, not from the request: a slow API server then sees them no closer together.
        self._written_s[key] = self._clock_s()
        return None

    def forget(self, key: JobKey) -> None:
        """The job is gone."""
        self._written_s.pop(key, None)

    def _left_s(self, key: JobKey) -> float:
        written_s = self._written_s.get(key)
        return 0.0 if written_s is None else written_s + self._interval_s - self._clock_s()


def _only_progress(before: ExtractionJobStatus, after: ExtractionJobStatus) -> bool:
    return before.model_dump(exclude=_PROGRESS_FIELDS) == after.model_dump(exclude=_PROGRESS_FIELDS)
