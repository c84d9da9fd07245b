"""The engine behind asyncio: submit a request, await its sample, abort it at any time.

The engine runs in a thread of its own and sleeps while it has nothing to do. Commands go to it by a queue, results
come back to the event loop once a turn, so that thousands of requests cost a few wake-ups.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

import torch

from drillcore.records import QuarantineEntry
from drillcore_server.connector.list_sink import ExtractedSample, InProcessSink
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.engine import Engine
from drillcore_server.engine.errors import (
    EngineError,
    EngineStopped,
    RequestAborted,
    RequestRefused,
    SampleQuarantined,
)
from drillcore_server.engine.offline import state_shape
from drillcore_server.engine.request import Request
from drillcore_server.models.decoder import Decoder

logger = logging.getLogger(__name__)

SampleFuture = asyncio.Future[ExtractedSample]
_Outcome = ExtractedSample | BaseException


class AsyncEngine:
    """An async context manager. `submit` and `abort` are for the event loop that entered it."""

    def __init__(
        self,
        decoder: Decoder,
        plan: CapturePlan,
        config: EngineConfig,
        *,
        store_dtype: torch.dtype | None = None,
    ) -> None:
        """See `Engine`."""
        shape = state_shape(decoder, plan, store_dtype)
        sink = InProcessSink(shape, self._on_sample, self._on_quarantine)
        self.engine = Engine(decoder, plan, config, sink, store_dtype=store_dtype)
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._outcomes: list[tuple[int, _Outcome]] = []
        self._futures: dict[int, SampleFuture] = {}
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None

    async def __aenter__(self) -> AsyncEngine:
        """Starts the engine's thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stops the thread after its current turn; what is unfinished fails with `EngineStopped`."""
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)
        self._fail_all(EngineStopped("the engine was stopped"))

    def submit(self, request: Request) -> SampleFuture:
        """Queues a request; cancelling the future aborts it.

        Awaiting raises `RequestRefused`, `RequestAborted`, `SampleQuarantined`, or the engine's own failure.

        Raises:
            RequestRefused: its id is in use.
            EngineStopped: the engine is not running.
        """
        if self._loop is None or not self._thread.is_alive():
            raise EngineStopped("the engine is not running") from self._failure
        if request.request_id in self._futures:
            raise RequestRefused(f"request {request.request_id}: its id must not be in use; another request has it")
        future: SampleFuture = self._loop.create_future()
        self._futures[request.request_id] = future
        future.add_done_callback(lambda done: self.abort(request.request_id) if done.cancelled() else None)
        self._commands.put(lambda: self._add(request))
        return future

    def abort(self, request_id: int) -> None:
        """Drops a request in whatever state it is; its future raises `RequestAborted`. Unknown ids are ignored."""
        self._commands.put(lambda: self._abort(request_id))

    def _serve(self) -> None:
        """The engine's thread: commands, a turn, results; until it is told to stop or fails."""
        try:
            while self._take_commands():
                if not self.engine.step() and self.engine.has_unfinished:
                    self.engine.wait()
                self._publish()
        except BaseException as failure:
            # Raising here would end a thread that nobody watches: it goes to every caller that waits instead.
            logger.exception("the engine failed")
            self._failure = failure
            self._call_in_loop(functools.partial(self._fail_all, failure))

    def _take_commands(self) -> bool:
        """Runs the queued commands, waiting for one if there is nothing else to do; gives whether to go on."""
        while True:
            try:
                command = self._commands.get(block=not self.engine.has_unfinished and not self._outcomes)
            except Empty:
                return True
            if command is None:
                return False
            command()

    def _add(self, request: Request) -> None:
        try:
            self.engine.add_request(request)
        except EngineError as refusal:
            self._outcomes.append((request.request_id, refusal))

    def _abort(self, request_id: int) -> None:
        if self.engine.abort(request_id):
            self._outcomes.append((request_id, RequestAborted(f"request {request_id} was aborted")))

    def _on_sample(self, sample: ExtractedSample) -> None:
        self._outcomes.append((sample.end.row, sample))

    def _on_quarantine(self, entry: QuarantineEntry) -> None:
        self._outcomes.append((entry.row, SampleQuarantined(f"request {entry.row}: {entry.message}")))

    def _publish(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if outcomes:
            self._call_in_loop(lambda: self._resolve(outcomes))

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        assert self._loop is not None, "the thread is started with the loop"
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _resolve(self, outcomes: list[tuple[int, _Outcome]]) -> None:
        """Runs in the event loop."""
        for request_id, outcome in outcomes:
            future = self._futures.pop(request_id, None)
            if future is None or future.done():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _fail_all(self, failure: BaseException) -> None:
        """Runs in the event loop."""
        self._resolve([(request_id, failure) for request_id in list(self._futures)])
