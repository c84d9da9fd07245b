"""Answers that take time: stopped as soon as the client has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


async def until_client_leaves(work: Awaitable[T], gone: Callable[[], Awaitable[None]]) -> T:
    """What `work` gives; it is cancelled if `gone` ends first, and has cleaned up when this raises.

    The work runs in the caller's own task, as under `asyncio.timeout`: a task costs more than most requests do.

    Raises:
        ClientLeft: `gone` ended before the answer was there.
    """
    working = asyncio.current_task()
    assert working is not None, "coroutines run in tasks"
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        await gone()
        has_left = True
        working.cancel()

    leaving = asyncio.create_task(watch())
    try:
        result = await work
    except asyncio.CancelledError:
        if has_left and working.uncancel() == 0:
            raise ClientLeft from None
        raise
    finally:
        leaving.cancel()
    if has_left:
        working.uncancel()
        raise ClientLeft
    return result


class WatchedAnswer(Response):
    """Sends parts as they come. A slow reader holds back whoever makes them."""

    def __init__(
        self,
        parts: AsyncIterator[bytes],
        *,
        media_type: str,
        headers: Mapping[str, str] | None = None,
        on_end: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """`on_end` runs once, whatever happens; also when no part was ever asked for."""
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(headers)
        self._parts = parts
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends everything, or as much as somebody reads."""
        try:
            await until_client_leaves(self._send(send), lambda: _gone(receive))
        except ClientLeft:
            return
        finally:
            await self._on_end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._parts) as parts:  # type: ignore[type-var]
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
