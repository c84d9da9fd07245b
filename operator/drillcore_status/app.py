"""The application: routes over services."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI
from starlette.types import ASGIApp

from drillcore_status.answers import install_error_handlers
from drillcore_status.jobs import router as jobs_router
from drillcore_status.metrics import RequestMetrics
from drillcore_status.middleware import Guard
from drillcore_status.pages import pages_router
from drillcore_status.process import process_router
from drillcore_status.progress import progress_router
from drillcore_status.services import Services
from drillcore_status.stream import StreamSlots


def create_app(services: Services) -> ASGIApp:
    """The API and the page over these services, as an ASGI application."""
    slots = StreamSlots()
    metrics = RequestMetrics(services.registry, slots)
    return Guard(create_api(services, slots, metrics), services.allowed_hosts, metrics)


def create_api(services: Services, slots: StreamSlots, metrics: RequestMetrics) -> FastAPI:
    """The routes, without what holds for every request."""
    api = FastAPI(
        title="drillcore job status",
        version=version("drillcore"),
        description="ExtractionJobs: how far they are, and why they are not further.",
        openapi_url="/openapi.json",
        # Both of FastAPI's own pages load scripts from elsewhere; /docs is ours.
        docs_url=None,
        redoc_url=None,
    )
    api.state.services = services
    api.state.slots = slots
    install_error_handlers(api)
    api.include_router(jobs_router)
    if services.reports is not None:
        api.include_router(progress_router(services.reports))
    api.include_router(process_router(metrics))
    api.include_router(pages_router())
    return api
