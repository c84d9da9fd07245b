"""What holds for every request: the API key, and the count of answers.

Plain ASGI, because wrappers that read a whole answer would hold streams back.
"""

from __future__ import annotations

import hashlib
import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drillcore_server.api.answers import error_answer
from drillcore_server.api.errors import Unauthorized
from drillcore_server.api.metrics import ServeMetrics

_OPEN_PATHS = frozenset({"/health", "/metrics", "/openapi.json"})
"""For probes and scrapers, which tell nothing of requests."""
_SCHEME = "bearer "


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, api_key: str | None, metrics: ServeMetrics) -> None:
        self._app = app
        self._digest = None if api_key is None else _digest(api_key)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.count(scope["method"], _route(scope), message["status"])
            await send(message)

        if self._lets_pass(scope):
            await self._app(scope, receive, counted)
        else:
            refusal = Unauthorized("an API key is needed: send it as `Authorization: Bearer KEY`")
            await error_answer(refusal)(scope, receive, counted)

    def _lets_pass(self, scope: Scope) -> bool:
        """Compares digests in constant time, so that neither length nor content of the key shows in the time."""
        if self._digest is None or scope["path"] in _OPEN_PATHS:
            return True
        given = Headers(scope=scope).get("authorization", "")
        is_bearer = given[: len(_SCHEME)].lower() == _SCHEME
        return hmac.compare_digest(_digest(given[len(_SCHEME) :].strip()), self._digest) and is_bearer


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("latin-1", "replace")).digest()


def _route(scope: Scope) -> str:
    """The route's template, so that a metric never holds what somebody typed."""
    return str(getattr(scope.get("route"), "path", "none"))
