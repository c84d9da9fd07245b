"""What holds for every request: headers, host names, the length of bodies, and the count of answers.

Plain ASGI, because wrappers that read a whole answer would hold streams back.
Source: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drillcore_status.answers import error_response
from drillcore_status.errors import ApiError, BadRequest, TooLarge
from drillcore_status.metrics import RequestMetrics

MAX_BODY_BYTES: Final = 64 * 1024
"""The longest message is a progress report of some hundred bytes."""

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Nothing from elsewhere, nothing inline, and no script can make markup out of text."""

_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, allowed_hosts: frozenset[str] | None, metrics: RequestMetrics) -> None:
        self._app = app
        self._allowed_hosts = allowed_hosts
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send, self._metrics)
        refused = self._refusal(Headers(scope=scope))
        if refused is not None:
            await error_response(refused)(scope, receive, answer.send)
        else:
            await self._app(scope, _LimitedBody(receive).receive, answer.send)

    def _refusal(self, headers: Headers) -> ApiError | None:
        host = _host_name(headers.get("host", ""))
        if self._allowed_hosts is not None and host not in self._allowed_hosts:
            return BadRequest(f"this server answers to {', '.join(sorted(self._allowed_hosts))} only; got {host!r}")
        return None


class _LimitedBody:
    """The request's body, up to a limit; a declared length is not believed."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._num_bytes = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes > MAX_BODY_BYTES:
            raise TooLarge(f"the body must have at most {MAX_BODY_BYTES} bytes")
        return message


class _Answer:
    """Adds the headers to an answer and counts it."""

    def __init__(self, scope: Scope, send: Send, metrics: RequestMetrics) -> None:
        self._scope = scope
        self._send = send
        self._metrics = metrics

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(_HEADERS)
            headers.setdefault("Cache-Control", "no-store")
            self._metrics.count(self._scope["method"], _route(self._scope), HTTPStatus(message["status"]))
        await self._send(message)


def _host_name(host: str) -> str:
    """The name in a Host header: without port, IPv6 without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _route(scope: dict[str, Any] | Scope) -> str:
    """The route's template, so that a metric never holds what somebody typed."""
    return str(getattr(scope.get("route"), "path", "none"))
