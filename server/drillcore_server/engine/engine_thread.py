"""An engine in a thread of its own, behind asyncio: submit a request, await what becomes of it, abort it at any time.

    event loop ──commands──► engine's thread ──► sink ──► whoever the sink hands samples to
        ▲                        │                             │
        └────────────────────────┴─────────── inbox ◄──────────┘

The engine sleeps while it has nothing to do. Commands go to it by a queue, results come back by the loop's inbox.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, Self, TypeVar

from drillcore.records import QuarantineEntry
from drillcore_server.engine.engine import Engine
from drillcore_server.engine.errors import (
    EngineError,
    EngineStopped,
    RequestAborted,
    RequestRefused,
    SampleQuarantined,
)
from drillcore_server.engine.loop_inbox import LoopInbox
from drillcore_server.engine.request import Request

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class EngineThread(Generic[Result]):
    """An async context manager. `submit` and `abort` are for the event loop that entered it."""

    def __init__(self, engine: Engine) -> None:
        """`engine`'s sink hands results to `settle` and rows that cannot be used to `reject`."""
        self.engine = engine
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._futures: dict[int, asyncio.Future[Result]] = {}
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._inbox: LoopInbox | None = None
        self._failure: BaseException | None = None

    async def __aenter__(self) -> Self:
        """Starts the engine's thread."""
        self._inbox = LoopInbox(asyncio.get_running_loop())
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stops the thread after its current turn; what is unfinished fails with `EngineStopped`."""
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)
        self._fail_all(EngineStopped("the engine was stopped"))

    @property
    def is_alive(self) -> bool:
        """Whether requests are served."""
        return self._inbox is not None and self._thread.is_alive()

    @property
    def inbox(self) -> LoopInbox:
        """The way into the event loop, once it was entered."""
        assert self._inbox is not None, "the thread is started with the loop"
        return self._inbox

    def submit(self, request: Request) -> asyncio.Future[Result]:
        """Queues a request; cancelling the future aborts it.

        Awaiting raises `RequestRefused`, `RequestAborted`, `SampleQuarantined`, or the engine's own failure.

        Raises:
            RequestRefused: its id is in use.
            EngineStopped: the engine is not running.
        """
        future = self._accept(request)
        self._begin(request)
        return future

    def _accept(self, request: Request) -> asyncio.Future[Result]:
        """What becomes of a request that the engine has not heard of; raises as `submit` does."""
        if not self.is_alive:
            raise EngineStopped("the engine is not running") from self._failure
        if request.request_id in self._futures:
            raise RequestRefused(f"request {request.request_id}: its id must not be in use; another request has it")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._futures[request.request_id] = future
        future.add_done_callback(lambda done: self.abort(request.request_id) if done.cancelled() else None)
        return future

    def _begin(self, request: Request) -> None:
        """Hands an accepted request to the engine, whose threads may be done with it before this returns."""
        self._commands.put(lambda: self._add(request))

    def abort(self, request_id: int) -> None:
        """Drops a request in whatever state it is; its future raises `RequestAborted`. Unknown ids are ignored."""
        self._commands.put(lambda: self._abort(request_id))

    def call(self, function: Callable[[], None]) -> None:
        """Has the engine's thread call `function` between two turns."""
        self._commands.put(function)

    def settle(self, request_id: int, outcome: Result | BaseException) -> None:
        """Tells what became of a request. Any thread."""
        self.inbox.post(lambda: self._resolve(request_id, outcome))

    def reject(self, entry: QuarantineEntry) -> None:
        """Tells that a request's states cannot be used. Any thread."""
        self.settle(entry.row, SampleQuarantined(f"request {entry.row}: {entry.message}"))

    def _serve(self) -> None:
        """The engine's thread: commands, a turn; until it is told to stop or fails."""
        try:
            while self._take_commands():
                if not self.engine.step() and self.engine.has_unfinished:
                    self.engine.wait()
        except BaseException as failure:
            # Raising here would end a thread that nobody watches: it goes to every caller that waits instead.
            logger.exception("the engine failed")
            self._failure = failure
            self.inbox.post(functools.partial(self._fail_all, failure))

    def _take_commands(self) -> bool:
        """Runs the queued commands, waiting for one if there is nothing else to do; gives whether to go on."""
        while True:
            try:
                command = self._commands.get(block=not self.engine.has_unfinished)
            except Empty:
                return True
            if command is None:
                return False
            command()

    def _add(self, request: Request) -> None:
        try:
            self.engine.add_request(request)
        except EngineError as refusal:
            self.settle(request.request_id, refusal)

    def _abort(self, request_id: int) -> None:
        if self.engine.abort(request_id):
            self.settle(request_id, RequestAborted(f"request {request_id} was aborted"))

    def _resolve(self, request_id: int, outcome: Result | BaseException) -> None:
        """Runs in the event loop."""
        future = self._futures.pop(request_id, None)
        if future is None or future.done():
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def _fail_all(self, failure: BaseException) -> None:
        """Runs in the event loop."""
        for request_id in list(self._futures):
            self._resolve(request_id, failure)
