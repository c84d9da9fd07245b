"""HTTP to the API server: time limits on both sides, one rate for all, and errors that say what to do.

httpx and not the official client: that one is synchronous (a thread for each call) and turns answers into
generated classes that drop fields which they do not know. kopf's own session is not public.
"""

from __future__ import annotations

import json
import re
from types import TracebackType
from typing import Any, Self

import httpx

from drillcore_operator.cluster.credentials import Credentials
from drillcore_operator.cluster.rate import Rate
from drillcore_operator.errors import ClusterError, Conflict, NotFound, Refused, Throttled, Unavailable

SERVER_TIMEOUT_S = 20
"""The API server gives up a request after this time."""
CLIENT_TIMEOUT_S = 30.0
"""We give up after this time: later than the server, so that its answer is seen."""
CONNECT_TIMEOUT_S = 5.0
MAX_CONNECTIONS = 32
DEFAULT_RETRY_AFTER_S = 5.0
MAX_RETRY_AFTER_S = 60.0

_DENIED = re.compile(r"denied (the )?request")
"""A policy or a webhook, which may answer with the codes of a malformed object and may be changed any day.

Source: k8s.io/apiserver/pkg/admission/plugin/policy/validating and .../plugin/webhook/errors.
"""

JSON = "application/json"

Document = dict[str, Any]


class Connection:
    """Requests as one identity. Belongs to one event loop."""

    def __init__(self, credentials: Credentials, requests_per_second: float) -> None:
        self._credentials = credentials
        self._rate = Rate(requests_per_second)
        self._client = httpx.AsyncClient(
            base_url=credentials.url,
            verify=credentials.tls or False,
            timeout=httpx.Timeout(CLIENT_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS),
            headers={"User-Agent": "drillcore-operator"},
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Document | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        params: dict[str, str] | None = None,
    ) -> Document:
        """One request, tried once; retries are the work queue's.

        Raises:
            ClusterError: the subclass says what kind of failure it is.
        """
        await self._rate.turn()
        try:
            response = await self._client.request(
                method,
                path,
                content=None if body is None else json.dumps(body),
                params=(params or {}) | {"timeout": f"{SERVER_TIMEOUT_S}s"},
                headers={"Content-Type": content_type, "Accept": accept} | self._credentials.authorization(),
            )
        except httpx.TransportError as error:
            raise Unavailable(f"{method} {path}: {type(error).__name__}: {error}") from error
        if not response.is_success:
            raise _error(f"{method} {path}", response)
        return _document(f"{method} {path}", response)


def _error(what: str, response: httpx.Response) -> ClusterError:
    message = _message(response)
    match response.status_code:
        case 404:
            return NotFound(f"{what}: {message}")
        case 409:
            return Conflict(f"{what}: {message}")
        case 400 | 422:
            return Refused(message, is_invalid=_DENIED.search(message) is None)
        case 403:
            return Refused(message, is_invalid=False)
        case 429:
            return Throttled(f"{what}: {message}", retry_after_s=_retry_after_s(response))
        case code:
            return Unavailable(f"{what}: {code}: {message}")


def _document(what: str, response: httpx.Response) -> Document:
    try:
        document: Document = response.json()
    except ValueError as error:
        # A proxy in between said something; the API server speaks JSON only.
        raise Unavailable(f"{what}: expected JSON; got {response.text[:200]!r}") from error
    return document


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]


def _retry_after_s(response: httpx.Response) -> float:
    try:
        asked_s = float(response.headers.get("Retry-After", DEFAULT_RETRY_AFTER_S))
    except ValueError:
        asked_s = DEFAULT_RETRY_AFTER_S
    return min(max(asked_s, 1.0), MAX_RETRY_AFTER_S)
