"""Reading a request's body: bounded in length, time and sum, then checked field by field."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from drillcore_server.api.answers import JSON
from drillcore_server.api.errors import BadRequest, QueueFull, RequestTimeout, TooLarge, UnsupportedMedia

BODY_TIMEOUT_S: Final = 60.0
MAX_PROBLEMS: Final = 5
BODIES_IN_FLIGHT: Final = 64
"""Bodies of the longest kind that may be in memory at a time; many more of the usual length."""

Model = TypeVar("Model", bound=BaseModel)


class BodyReader:
    """Reads bodies of at most `max_bytes`, and at most `BODIES_IN_FLIGHT` times that at once."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = 0

    async def read(self, request: Request, model: type[Model]) -> Model:
        """The request as `model` has it.

        Raises:
            ApiError: 400 naming the field, 408, 413, 415, or 429 while too much is being read.
        """
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != JSON:
            raise UnsupportedMedia(f"the body must be {JSON}; the Content-Type says {media_type[:100]!r}")
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._max_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                await self._collect(request, parts)
            return parse(model, parts[0] if len(parts) == 1 else b"".join(parts))
        except TimeoutError:
            raise RequestTimeout(f"the body must come within {BODY_TIMEOUT_S:g} seconds") from None
        finally:
            self._held_bytes -= sum(map(len, parts))

    async def _collect(self, request: Request, parts: list[bytes]) -> None:
        length = 0
        async for part in request.stream():
            length += len(part)
            if length > self._max_bytes:
                raise self._too_large()
            if part:
                self._hold(part, parts)

    def _hold(self, part: bytes, parts: list[bytes]) -> None:
        if self._held_bytes + len(part) > BODIES_IN_FLIGHT * self._max_bytes:
            raise QueueFull("too many long requests are being read", retry_after_s=1)
        self._held_bytes += len(part)
        parts.append(part)

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the body must have at most {self._max_bytes} bytes; send long lists of prompts in parts")


def parse(model: type[Model], body: bytes) -> Model:
    """The fields of a body.

    Raises:
        BadRequest: naming the first wrong field; the message has the others too. It never repeats what was sent.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)
    shown = "; ".join(f"{_field(p['loc']) or 'body'}: {_said(p['type'], p['msg'])}" for p in problems[:MAX_PROBLEMS])
    more = len(problems) - MAX_PROBLEMS
    raise BadRequest(shown + (f"; and {more} more" if more > 0 else ""), param=_field(problems[0]["loc"]) or None)


def _said(kind: str, message: str) -> str:
    return "there is no such field" if kind == "extra_forbidden" else message


def _field(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:100] for part in loc)


async def client_gone(request: Request) -> None:
    """Returns when the client has left. For a request whose body was read."""
    while True:
        try:
            message = await request.receive()
        except ClientDisconnect:
            return
        if message["type"] == "http.disconnect":
            return
