"""Gathers the observation of one job with as few reads as the decision needs.

A job whose pods are all ready costs two reads. Pods, events and claims are read only while something is not
ready, and pods once more when the job is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drillcore_operator.cluster import ClusterApi
from drillcore_operator.keys import JobKey
from drillcore_operator.observed import ChildJob, Claim, ClusterEvent, Pod, is_made_by
from drillcore_operator.plan import Observation, ProgressSeen, Refusal, Resource
from drillcore_operator.plan.acceptance import SpecProblem, read_spec
from drillcore_operator.plan.aspects import find
from drillcore_operator.resources.claims import all_claims
from drillcore_spec import names
from drillcore_spec.job import ExtractionJobSpec
from drillcore_spec.status import ConditionStatus, ConditionType

MAX_EXPLAINED_PODS = 3
"""Pods whose events are read: they wait for the same thing most of the time."""


async def observe(
    api: ClusterApi, resource: Resource, progress: ProgressSeen, refusal: Refusal | None = None
) -> Observation:
    """What is to be known of a job now."""
    key = JobKey(resource.namespace, resource.name)
    job = await api.get_job(key.namespace, names.child_name(key.name, resource.uid))
    child = ChildJob.from_api(job) if job else None
    if resource.is_terminal:
        return Observation(resource, child)
    spec = read_spec(resource.document)
    owned = child if child is not None and child.owner_uid == resource.uid else None
    pods = await _pods(api, key, owned, wants_suspension=bool(resource.document["spec"].get("suspend")))
    return Observation(
        resource=resource,
        child=child,
        pods=pods,
        events=await _events(api, key, owned, pods),
        claims={} if isinstance(spec, SpecProblem) else await _claims(api, resource, spec, owned),
        progress=progress,
        refusal=refusal,
    )


async def _pods(api: ClusterApi, key: JobKey, child: ChildJob | None, *, wants_suspension: bool) -> tuple[Pod, ...]:
    if child is None or child.is_deleted:
        return ()
    all_ready = child.ready >= child.num_wanted_pods and not child.terminating and child.active <= child.ready
    if all_ready and not child.is_finished and not wants_suspension:
        return ()
    return await pods_of(api, key, child)


async def pods_of(api: ClusterApi, key: JobKey, child: ChildJob) -> tuple[Pod, ...]:
    """The pods that the Job controller made for the child."""
    found = await api.list_pods(key.namespace, child.uid)
    return tuple(Pod.from_api(pod) for pod in found if is_made_by(child.uid, pod))


async def _events(
    api: ClusterApi, key: JobKey, child: ChildJob | None, pods: tuple[Pod, ...]
) -> tuple[ClusterEvent, ...]:
    """Of the Job while pods are missing, of pods that were scheduled and do not start."""
    if child is None or child.ready >= child.num_wanted_pods:
        return ()
    documents: list[dict[str, Any]] = []
    if child.active < child.num_wanted_pods:
        documents += await api.list_events(key.namespace, "Job", child.name)
    for pod in _stuck(pods)[:MAX_EXPLAINED_PODS]:
        documents += await api.list_events(key.namespace, "Pod", pod.name)
    return tuple(ClusterEvent.from_api(document) for document in documents)


def _stuck(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.node and pod.phase == "Pending" and pod.deletion_due is None]


async def _claims(
    api: ClusterApi, resource: Resource, spec: ExtractionJobSpec, child: ChildJob | None
) -> dict[str, Claim | None]:
    """Every claim before the child is made; afterwards the output's until it is ready."""
    output = find(resource.status.conditions, ConditionType.OUTPUT_READY)
    if child is None:
        wanted = all_claims(spec)
    elif output is None or output.status is not ConditionStatus.TRUE:
        wanted = (spec.output.claim_name,)
    else:
        return {}
    found: dict[str, Claim | None] = {}
    for name in wanted:
        claim = await api.get_claim(resource.namespace, name)
        found[name] = Claim.from_api(claim) if claim else None
    return found
