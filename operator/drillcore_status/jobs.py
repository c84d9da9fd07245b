"""Routes that read: jobs, shards, events, throughput, and the stream of one job."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from drillcore_spec import names
from drillcore_status.parameters import JobName, Namespace, ServicesOfApp, SlotsOfApp, Token, check_reader
from drillcore_status.stream import JobStream
from drillcore_status.views import Job, JobEventList, JobList, ShardList, Status, Throughput

_ERRORS: dict[int | str, dict[str, Any]] = {code: {"model": Status} for code in (401, 403, 404, 503)}

router = APIRouter(
    prefix=f"/v1/namespaces/{{namespace}}/{names.PLURAL}",
    tags=["jobs"],
    dependencies=[Depends(check_reader)],
    responses=_ERRORS,
)


@router.get("", summary="The jobs of a namespace")
async def list_jobs(services: ServicesOfApp, namespace: Namespace) -> JobList:
    """All ExtractionJobs of the namespace, by name."""
    return JobList(items=tuple(await services.source.list_jobs(namespace)))


@router.get("/{name}", summary="One job")
async def get_job(services: ServicesOfApp, namespace: Namespace, name: JobName) -> Job:
    """Its spec and its status; the progress is as new as the last report."""
    return await services.source.get_job(namespace, name)


@router.get("/{name}/shards", summary="Its shards")
async def list_shards(services: ServicesOfApp, namespace: Namespace, name: JobName) -> ShardList:
    """Where each shard stands, and why its last attempt failed."""
    return ShardList(items=tuple(await services.source.list_shards(namespace, name)))


@router.get("/{name}/events", summary="What was told about it")
async def list_events(services: ServicesOfApp, namespace: Namespace, name: JobName) -> JobEventList:
    """The events of the job, the newest last."""
    return JobEventList(items=tuple(await services.source.list_events(namespace, name)))


@router.get("/{name}/throughput", summary="How far it was over time")
async def get_throughput(services: ServicesOfApp, namespace: Namespace, name: JobName) -> Throughput:
    """At most some dozens of moments, evenly over the time that this process has seen."""
    return Throughput(items=tuple(await services.source.throughput(namespace, name)))


@router.get(
    "/{name}/stream",
    summary="All of it as it changes",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events `job`, `shards`, `events` and `throughput`, each with the JSON of the"
            " route of that name (of `shards` only those that changed), `unavailable` with a Status while the cluster"
            " cannot be asked; the last one is `gone` when the job was deleted or `error` when the token is not good"
            " any more, with a Status.",
            "content": {"text/event-stream": {}},
        }
    },
)
async def stream_job(
    services: ServicesOfApp, slots: SlotsOfApp, namespace: Namespace, name: JobName, token: Token
) -> StreamingResponse:
    """Begins with everything, then says what is new; ends with the job's deletion or the token's."""
    slots.check()
    await services.source.get_job(namespace, name)
    messages = JobStream(services, namespace, name, token).messages(slots)
    return StreamingResponse(messages, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
