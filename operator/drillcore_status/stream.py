"""One job as server-sent events.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from drillcore_status.answers import status_of
from drillcore_status.errors import ApiError, NotFound, TooManyRequests, Unavailable
from drillcore_status.services import Services
from drillcore_status.views import JobEventList, Shard, ShardList, Throughput, View

MAX_STREAMS: Final = 200
"""Open streams of one process; each costs a look every few seconds."""
KEEP_ALIVE_S: Final = 15.0
"""Silence after which a comment is sent, so that proxies do not cut the stream and a dead client is noticed."""
RETRY_AFTER_S: Final = 10


class StreamSlots:
    """Counts open streams."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self._limit = limit
        self.num_open = 0

    def check(self) -> None:
        """Raises TooManyRequests when all are taken."""
        if self.num_open >= self._limit:
            message = f"{self._limit} streams are open, more are not served; poll the job instead"
            raise TooManyRequests(message, retry_after_s=RETRY_AFTER_S)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """One of them, while the context lasts."""
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1


class JobStream:
    """What one listener has been told of one job."""

    def __init__(self, services: Services, namespace: str, name: str, token: str | None) -> None:
        self._services = services
        self._job = (namespace, name)
        self._token = token
        self._told: dict[str, View] = {}
        """The last message of each kind."""
        self._shards: dict[int, Shard] = {}

    async def messages(self, slots: StreamSlots) -> AsyncIterator[str]:
        """Messages until the job is deleted, the token is no longer good, or the server ends."""
        told_s = time.monotonic()
        with slots.taken():
            while not self._services.closing.is_set():
                news, is_over = await self._look()
                for message in news:
                    yield message
                if is_over:
                    return
                if news:
                    told_s = time.monotonic()
                elif time.monotonic() - told_s > KEEP_ALIVE_S:
                    yield ": still here\n\n"
                    told_s = time.monotonic()
                await asyncio.sleep(self._services.stream_interval_s)

    async def _look(self) -> tuple[list[str], bool]:
        """What is new, and whether that was the last. The token is judged anew each time."""
        try:
            await self._services.authorizer.check_reader(self._token, self._job[0])
            return await self._news(), False
        except NotFound as error:
            return [_message("gone", status_of(error))], True
        except Unavailable as error:
            told = self._if_new("unavailable", status_of(error))
            return [told] if told else [], False
        except ApiError as error:
            return [_message("error", status_of(error))], True

    async def _news(self) -> list[str]:
        """What differs from what was told last."""
        source = self._services.source
        job = await source.get_job(*self._job)
        self._told.pop("unavailable", None)
        news = [
            self._if_new("job", job),
            self._if_new("throughput", Throughput(items=tuple(await source.throughput(*self._job)))),
            self._if_new("events", JobEventList(items=tuple(await source.list_events(*self._job)))),
            self._changed_shards({shard.index: shard for shard in await source.list_shards(*self._job)}),
        ]
        return [message for message in news if message is not None]

    def _if_new(self, kind: str, view: View) -> str | None:
        if self._told.get(kind) == view:
            return None
        self._told[kind] = view
        return _message(kind, view)

    def _changed_shards(self, shards: dict[int, Shard]) -> str | None:
        changed = tuple(shard for index, shard in shards.items() if self._shards.get(index) != shard)
        self._shards = shards
        return _message("shards", ShardList(items=changed)) if changed else None


def _message(kind: str, view: View) -> str:
    """One data line: JSON in ASCII has no line break of any kind, not even one that only Unicode knows."""
    return f"event: {kind}\ndata: {json.dumps(view.model_dump(mode='json'))}\n\n"
