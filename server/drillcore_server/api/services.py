"""What the routes work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from fastapi import Request

from drillcore_server.api.admission import Admission
from drillcore_server.api.body import BodyReader
from drillcore_server.api.chat import ChatRenderer
from drillcore_server.api.extraction import Extractor, Model
from drillcore_server.api.metrics import ServeMetrics


@dataclass(frozen=True)
class Services:
    """One server's parts. Live in the event loop."""

    model: Model
    extractor: Extractor
    admission: Admission
    bodies: BodyReader
    chat: ChatRenderer
    metrics: ServeMetrics
    started_s: int
    """Unix time."""


def services_of(request: Request) -> Services:
    """The services of the application that got the request. No dependency of FastAPI's: those cost more than this."""
    return cast(Services, request.app.state.services)
