"""How many prompts are accepted at a time, and the end of accepting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from drillcore_server.api.errors import BadRequest, QueueFull, Unavailable

RETRY_AFTER_S = 2
"""Long enough for a queue to move, short enough that a client which tries three times is served."""
RESTART_S = 30
"""When to try again at a server that is ending."""


class Admission:
    """Counts prompts from acceptance to their answer. Lives in the event loop."""

    def __init__(self, max_queue: int) -> None:
        self.max_queue = max_queue
        self.num_admitted = 0
        self.is_draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def places(self, count: int, param: str) -> Iterator[None]:
        """Holds `count` places of the queue.

        Raises:
            Unavailable: the server is ending.
            BadRequest: there are never so many places; `param` names the field.
            QueueFull: not now.
        """
        self._refuse(count, param)
        self.num_admitted += count
        self._idle.clear()
        try:
            yield
        finally:
            self.num_admitted -= count
            if not self.num_admitted:
                self._idle.set()

    def drain(self) -> None:
        """Accepts nothing any more."""
        self.is_draining = True

    async def wait_idle(self) -> None:
        """Until every accepted prompt is answered."""
        await self._idle.wait()

    def _refuse(self, count: int, param: str) -> None:
        if self.is_draining:
            raise Unavailable("the server is ending and takes no requests", retry_after_s=RESTART_S)
        if count > self.max_queue:
            raise BadRequest(f"must have at most {self.max_queue} prompts; got {count}", param=param)
        if self.num_admitted + count > self.max_queue:
            raise QueueFull(
                f"the queue is full: {self.num_admitted} of {self.max_queue} prompts are waiting for their answers",
                retry_after_s=RETRY_AFTER_S,
            )
