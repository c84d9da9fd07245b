"""Routes about the process itself: probes, metrics, and how to log in. They need no token and tell of no job."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from drillcore_status.errors import Unavailable
from drillcore_status.metrics import CONTENT_TYPE, RequestMetrics
from drillcore_status.parameters import ServicesOfApp
from drillcore_status.services import HealthCheck
from drillcore_status.views import Login, Status


def process_router(metrics: RequestMetrics) -> APIRouter:
    """The routes, over this process's metrics."""
    router = APIRouter(tags=["process"])
    unhealthy: dict[int | str, dict[str, Any]] = {503: {"model": Status}}

    @router.get("/healthz", summary="Whether the process should go on", responses=unhealthy)
    async def healthz(services: ServicesOfApp) -> PlainTextResponse:
        return await _probe(services.live_check)

    @router.get("/readyz", summary="Whether the process serves", responses=unhealthy)
    async def readyz(services: ServicesOfApp) -> PlainTextResponse:
        return await _probe(services.ready_check)

    @router.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
    async def read_metrics() -> Response:
        return Response(metrics.exposition(), media_type=CONTENT_TYPE)

    @router.get("/v1/login", summary="How to log in")
    async def login(services: ServicesOfApp) -> Login:
        return services.login

    return router


async def _probe(check: HealthCheck | None) -> PlainTextResponse:
    problem = await check() if check else None
    if problem is not None:
        raise Unavailable(problem)
    return PlainTextResponse("ok")
