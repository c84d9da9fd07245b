"""Parts of a request that several routes share.

All are coroutines: FastAPI runs other functions in threads, several hops for each request.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from drillcore_status.services import Services
from drillcore_status.stream import StreamSlots

_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""A DNS label: nothing else reaches a path at the API server."""

Namespace = Annotated[str, Path(pattern=_LABEL, max_length=63, description="The namespace.")]
JobName = Annotated[str, Path(pattern=_LABEL, max_length=63, description="The job's name.")]

_bearer = HTTPBearer(auto_error=False, description="A token of the cluster that may `get extractionjobs`.")


async def services_of(request: Request) -> Services:
    """What the application was made with."""
    services: Services = request.app.state.services
    return services


async def bearer_token(
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> str | None:
    """The token of the Authorization header; None: there is none."""
    return credentials.credentials if credentials else None


async def slots_of(request: Request) -> StreamSlots:
    """The streams that are open."""
    slots: StreamSlots = request.app.state.slots
    return slots


ServicesOfApp = Annotated[Services, Depends(services_of)]
SlotsOfApp = Annotated[StreamSlots, Depends(slots_of)]
Token = Annotated[str | None, Depends(bearer_token)]


async def check_reader(services: ServicesOfApp, token: Token, namespace: Namespace) -> None:
    """Lets nobody further who may not read jobs of the namespace, whether it or the job exists or not."""
    await services.authorizer.check_reader(token, namespace)
