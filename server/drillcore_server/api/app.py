"""The application: routes over services."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI
from starlette.types import ASGIApp

from drillcore_server.api.answers import install_error_handlers
from drillcore_server.api.generate import router as generate_router
from drillcore_server.api.guard import Guard
from drillcore_server.api.hidden_states import router as hidden_states_router
from drillcore_server.api.openapi import install_document
from drillcore_server.api.process import router as process_router
from drillcore_server.api.services import Services


def create_app(services: Services, api_key: str | None = None) -> ASGIApp:
    """The server's application. `api_key` None: nobody is asked for one."""
    return Guard(create_api(services), api_key, services.metrics)


def create_api(services: Services) -> FastAPI:
    """The routes, without what holds for every request."""
    api = FastAPI(
        title="drillcore serve",
        version=version("drillcore"),
        description="Hidden states of chosen layers as files, by an OpenAI-compatible API.",
        openapi_url="/openapi.json",
        # Both of FastAPI's own pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    api.state.services = services
    install_error_handlers(api)
    install_document(api)
    for router in (generate_router, hidden_states_router, process_router):
        # As they are: an included router is matched anew, layer by layer, for every request.
        api.router.routes += router.routes
    return api
