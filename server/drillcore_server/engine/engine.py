"""The engine: requests in, samples in a sink.

A turn of the loop (`step`):

    ship what is computed ─► free blocks ─► schedule ─► launch ─► if enough steps are in flight: take in the oldest

On a GPU up to `max_steps_in_flight` steps are queued, so that scheduling, shipping and bookkeeping hide behind the
device. A request whose next token is being sampled is not scheduled meanwhile; nothing else has to wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.connector.base import SampleSink
from drillcore_server.connector.metadata import SampleText, TokenRange
from drillcore_server.connector.scheduler_side import ConnectorScheduler
from drillcore_server.engine.assembly import assemble
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.errors import EngineStalled, RequestRefused, RequestTooLarge
from drillcore_server.engine.feed import RequestFeed
from drillcore_server.engine.kv_cache_manager import KVCacheManager, PrefixCounters
from drillcore_server.engine.model_runner import StepInFlight
from drillcore_server.engine.request import Request, Sequence, SequenceStatus
from drillcore_server.engine.scheduler import Scheduler, SchedulerCounters
from drillcore_server.engine.scheduler_output import ScheduledRequest
from drillcore_server.models.decoder import Decoder

_SINK_WAIT_S = 0.1
"""Longest time between two looks at a full sink when nothing can be computed."""
_STEP_WAIT_S = 0.001
"""The same while a step runs, whose end must be noticed soon."""


@dataclass(slots=True)
class RequestCounters:
    """What became of requests since the start."""

    finished: int = 0
    aborted: int = 0
    quarantined: int = 0


class Engine:
    """One model on one device. All calls come from one thread."""

    def __init__(
        self,
        decoder: Decoder,
        plan: CapturePlan,
        config: EngineConfig,
        sink: SampleSink,
        *,
        store_dtype: torch.dtype | None = None,
    ) -> None:
        """Allocates the caches beside the decoder's weights; `store_dtype` None: the weights' dtype.

        The first `plan.num_layers_to_run(...)` blocks must be loaded, with lm_head if `config.max_tokens` > 0.

        Raises:
            ShardError: BadSpec; the model has fewer positions than `config.max_model_len`.
            ValueError: the decoder was not loaded as the plan needs it.
        """
        parts = assemble(decoder, plan, config, sink, store_dtype)
        self.config = config
        self.connector = parts.connector
        self.drafter = parts.drafter
        self.runner = parts.runner
        self.kv = KVCacheManager(config)
        self._sink = sink
        self._vocab_size = decoder.spec.vocab_size
        self._connector_scheduler = ConnectorScheduler(sink)
        self.scheduler = Scheduler(config, self.kv, self._connector_scheduler.can_admit)
        self._max_in_flight = config.max_steps_in_flight if parts.device.type == "cuda" else 1
        self._in_flight: deque[StepInFlight] = deque()
        self.counters = RequestCounters()

    @property
    def scheduler_counters(self) -> SchedulerCounters:
        """What was scheduled."""
        return self.scheduler.counters

    @property
    def prefix_counters(self) -> PrefixCounters:
        """How far prefix caching helped."""
        return self.kv.counters

    @property
    def has_unfinished(self) -> bool:
        """Whether something is still to be computed, copied or recorded in the sink."""
        shipper = self.connector.shipper
        return bool(self.scheduler.num_live or self._in_flight) or shipper.is_copying or shipper.awaits_room

    def add_request(self, request: Request) -> None:
        """Queues a request.

        Raises:
            RequestTooLarge: it can never be served; the message has the numbers.
            RequestRefused: its id is in use, it is empty, it has a token id that the model has not, or it asks for
                more generation than there is.
        """
        # A negative id is a huge one without its sign. On a GPU an id out of range would fail every request.
        highest = int(request.prompt_token_ids.view(np.uint64).max(initial=0))
        if highest >= self._vocab_size:
            found = np.int64(np.uint64(highest))
            raise RequestRefused(
                f"request {request.request_id}: token ids must be 0 to {self._vocab_size - 1}; got {found}"
            )
        self.scheduler.add(request)

    def abort(self, request_id: int) -> bool:
        """Drops a request in whatever state it is; gives whether there was one to drop."""
        status = self.scheduler.abort(request_id)
        if status is None:
            return False
        if status is not SequenceStatus.WAITING and not self.connector.abort(request_id):
            self.scheduler.release(request_id)
        self.counters.aborted += 1
        return True

    def run(self, source: Iterable[Request | QuarantineEntry]) -> None:
        """Serves every request of a lazy source, and passes quarantine entries on. Ends when all is in the sink.

        A request that is too large is quarantined.

        Raises:
            RequestRefused: see `add_request`.
        """
        feed = RequestFeed(source, self.config)
        while not feed.is_exhausted or self.has_unfinished:
            self._pull(feed)
            if not self.step() and self.has_unfinished:
                self.wait()

    def step(self) -> bool:
        """One turn; gives whether it brought anything further. If not, `wait` before the next one."""
        released = self._ship()
        launched = self._launch()
        took_in = False
        while self._in_flight and self._must_take_in(launched):
            self._take_in(self._in_flight.popleft())
            took_in = launched = True
        return released or launched or took_in

    def wait(self) -> None:
        """Blocks until the next turn can bring something further, or for a short time.

        Raises:
            EngineStalled: nothing that could be waited for is under way.
        """
        shipper = self.connector.shipper
        if shipper.is_copying:
            shipper.wait_for_copy()
        elif shipper.awaits_room or not self._connector_scheduler.can_admit():
            self._sink.wait(_SINK_WAIT_S)
        else:
            pool = self.kv.pool
            raise EngineStalled(
                f"{self.scheduler.num_live} requests are left ({self.scheduler.num_waiting} waiting), "
                f"{pool.num_free} of {pool.num_blocks - 1} blocks are free, {pool.num_available} available, "
                "and nothing is in flight"
            )

    def reset(self) -> None:
        """Forgets every request, for a sink that starts anew. Waits for steps and copies; seals nothing."""
        for step in self._in_flight:
            step.done.synchronize()
        self._in_flight.clear()
        self.connector.reset()
        for sequence in list(self.scheduler.live_sequences()):
            if self.scheduler.abort(sequence.request_id) is not SequenceStatus.WAITING:
                self.scheduler.release(sequence.request_id)

    def check_integrity(self) -> None:
        """Raises `AssertionError` unless free + cached + in use = total, and promises add up. Any time."""
        self.kv.check_integrity(self.scheduler.live_sequences())

    def _pull(self, feed: RequestFeed) -> None:
        feed.begin_turn()
        while not self.connector.shipper.has_quarantines:
            item = feed.take(self.scheduler.num_waiting, self.scheduler.num_waiting_tokens)
            if item is None:
                return
            if isinstance(item, QuarantineEntry):
                self.connector.shipper.quarantine(item)
            else:
                self._add_or_quarantine(item)

    def _add_or_quarantine(self, request: Request) -> None:
        try:
            self.add_request(request)
        except RequestTooLarge as refusal:
            entry = QuarantineEntry(
                request.request_id,
                request.file,
                request.line,
                request.id,
                QuarantineReason.TOO_LONG,
                str(refusal),
            )
            self.connector.shipper.quarantine(entry)
            self.counters.quarantined += 1

    def _ship(self) -> bool:
        released = self.connector.poll()
        for request_id in released:
            self.scheduler.release(request_id)
        return bool(released)

    def _launch(self) -> bool:
        output = self.scheduler.schedule()
        if output is None:
            return False
        metadata = self._connector_scheduler.build_metadata(map(_available_tokens, output.requests))
        self._in_flight.append(self.runner.execute(output, metadata))
        return True

    def _must_take_in(self, launched: bool) -> bool:
        """Whether to take in the oldest step now: it is done, or there is nothing better to do than to wait."""
        return not launched or len(self._in_flight) >= self._max_in_flight or self._in_flight[0].done.query()

    def _take_in(self, step: StepInFlight) -> None:
        """Waits for a step, and takes in its states and sampled tokens."""
        self._await(step)
        for row in self.connector.absorb(step.saved):
            self.scheduler.abort(row)
            self.counters.quarantined += 1
        sampled = iter(step.sampled_ids().tolist())
        for scheduled in step.output.requests:
            sequence = self.scheduler.update(scheduled, next(sampled) if scheduled.samples else None)
            if sequence is not None:
                has_states = self.connector.finish(sequence.request_id, _text_of(sequence))
                self.counters.finished += has_states
                self.counters.quarantined += not has_states

    def _await(self, step: StepInFlight) -> None:
        """Waits for a step's end; samples go on moving meanwhile. Sleeps, and never spins."""
        shipper = self.connector.shipper
        while not step.done.query():
            if shipper.is_copying:
                shipper.wait_for_copy()
            elif shipper.awaits_room:
                self._sink.wait(_STEP_WAIT_S)
            else:
                step.done.synchronize()
                return
            self._ship()


def _available_tokens(scheduled: ScheduledRequest) -> TokenRange:
    """The tokens whose states a step makes available: a first step brings those of the prefix hit, too."""
    first = 0 if scheduled.starts else scheduled.first_token
    return TokenRange(scheduled.header, first, scheduled.end_token, scheduled.starts)


def _text_of(sequence: Sequence) -> SampleText:
    """Tokens that have states, and the last sampled one, which has none."""
    if sequence.request.max_tokens == 0:
        return SampleText(sequence.request.prompt_token_ids, None)
    num_inputs = sequence.num_tokens - 1
    return SampleText(sequence.token_ids[:num_inputs], int(sequence.token_ids[num_inputs]))
