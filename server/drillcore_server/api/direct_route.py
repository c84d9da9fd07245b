"""A route whose endpoint reads the request and makes the answer itself: FastAPI only documents it.

Source: https://fastapi.tiangolo.com/how-to/custom-request-and-route/
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response


class DirectRoute(APIRoute):
    """For `async def endpoint(request: Request) -> Response`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The endpoint, without what FastAPI does for parameters and return values."""
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint
