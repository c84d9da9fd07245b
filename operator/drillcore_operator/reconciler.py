"""One look at one job: observe, decide, act, say.

Everything is read anew each time and every action can be done twice, so that the process may be killed
between any two calls, and two of them may run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from drillcore_operator.cluster import ClusterApi
from drillcore_operator.errors import Conflict, Refused
from drillcore_operator.keys import JobKey
from drillcore_operator.observer import observe
from drillcore_operator.pacer import Pacer
from drillcore_operator.plan import (
    Action,
    CreateJob,
    DeleteJob,
    DeleteResource,
    Observation,
    PatchJob,
    PublishEvent,
    Refusal,
    Resource,
    SetWorkloadActive,
    plan,
)
from drillcore_operator.plan.acceptance import SpecProblem, read_spec
from drillcore_operator.progress import ProgressBook
from drillcore_operator.resources import PodDefaults, build_child_job
from drillcore_operator.resources.event import build_event, count_up
from drillcore_operator.status_writer import StatusWriter

_LOG = logging.getLogger(__name__)

SOON_S = 1.0
"""After an action of ours, the next look: the cluster answers within this time."""


class Reconciler:
    """Looks at jobs; holds no lock, because the work queue gives each key to one worker at a time."""

    def __init__(
        self,
        api: ClusterApi,
        defaults: PodDefaults,
        progress: ProgressBook,
        writer: StatusWriter,
        pacer: Pacer,
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._defaults = defaults
        self._progress = progress
        self._writer = writer
        self._pacer = pacer
        self._now = now

    async def reconcile(self, key: JobKey) -> float | None:
        """Looks at a job once; gives when to look again, None: when something changes.

        Raises:
            ClusterError: a call did not succeed; nothing is lost by trying again.
        """
        document = await self._api.get_resource(*key)
        if document is None or "deletionTimestamp" in document["metadata"]:
            self._progress.forget(key)
            self._writer.forget(key)
            self._pacer.forget(key)
            return None
        resource = Resource.from_api(document)
        self._progress.forget(key, keep_uid=resource.uid)
        seen = await observe(self._api, resource, self._progress.seen(key, resource.uid))
        return await self._carry_out(seen)

    async def _carry_out(self, seen: Observation) -> float | None:
        decided = plan(seen, self._now())
        again_s = [decided.look_again_s]
        refused: Refused | None = None
        for action in decided.actions:
            try:
                again_s.append(await self._act_in_time(seen, action))
            except _CreationRefused as error:
                return await self._carry_out(replace(seen, refusal=error.refusal))
            except Refused as error:
                # By a policy of the namespace. What was seen is told all the same, unless the status is what
                # the next try rests on.
                if isinstance(action, SetWorkloadActive):
                    raise
                refused = error
        again_s.append(await self._writer.write(seen.resource, decided.status))
        if refused is not None:
            raise refused
        return min((time_s for time_s in again_s if time_s is not None), default=None)

    async def _act_in_time(self, seen: Observation, action: Action) -> float | None:
        """Acts, unless somebody else undoes it all the time; gives when to look again for that, if so."""
        if not isinstance(action, CreateJob | PatchJob):
            await self._act(seen, action)
            return None
        key = JobKey(seen.resource.namespace, seen.resource.name)
        if (wait_s := self._pacer.wait_s(key)) > 0:
            return wait_s
        await self._act(seen, action)
        self._pacer.did(key)
        return SOON_S if isinstance(action, CreateJob) else None

    async def _act(self, seen: Observation, action: Action) -> None:
        resource, child = seen.resource, seen.child
        match action:
            case CreateJob():
                await self._create(seen)
            case PatchJob(suspended, parallelism):
                assert child is not None
                await self._api.patch_job(resource.namespace, child.name, suspended=suspended, parallelism=parallelism)
            case DeleteJob():
                assert child is not None
                await self._api.delete_job(resource.namespace, child.name, child.uid)
            case SetWorkloadActive(job_uid, active):
                await self._api.set_workload_active(resource.namespace, job_uid, active=active)
            case DeleteResource():
                await self._api.delete_resource(resource.namespace, resource.name, resource.uid)
            case PublishEvent():
                await self._publish(resource, action)

    async def _create(self, seen: Observation) -> None:
        resource = seen.resource
        spec = read_spec(resource.document)
        assert not isinstance(spec, SpecProblem), "the plan creates nothing for a spec that it refused"
        manifest = build_child_job(
            spec,
            namespace=resource.namespace,
            name=resource.name,
            uid=resource.uid,
            defaults=self._defaults,
            access_modes={claim.name: claim.access_modes for claim in seen.claims.values() if claim},
        )
        try:
            await self._api.create_job(manifest)
        except Conflict:
            # Ours from a run that was killed, or somebody else's: the next look tells.
            _LOG.info("%s/%s: its Job is there already", resource.namespace, resource.name)
        except Refused as refused:
            raise _CreationRefused(Refusal(refused.is_invalid, str(refused))) from refused

    async def _publish(self, resource: Resource, event: PublishEvent) -> None:
        now = self._now()
        manifest = build_event(
            namespace=resource.namespace,
            name=resource.name,
            uid=resource.uid,
            reason=event.reason,
            message=event.message,
            is_warning=event.is_warning,
            now=now,
        )
        try:
            await self._api.create_event(manifest)
        except Conflict:
            name = manifest["metadata"]["name"]
            existing = await self._api.get_event(resource.namespace, name)
            if existing is not None:
                await self._api.count_event(resource.namespace, name, count_up(existing, now))


class _CreationRefused(Exception):
    """The API server refused the child; the plan is made anew with what it said."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
