"""Which tokens the next step computes.

One loop: every running request catches up with its known tokens within the token budget, then waiting requests
are admitted in order while budget, blocks, seats and the connector allow. Chunked prefill, prefix hits and decode
are the same path. Nobody is ever preempted (see `kv_cache_manager`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.errors import RequestRefused, RequestTooLarge
from drillcore_server.engine.kv_cache_manager import Admission, KVCacheManager
from drillcore_server.engine.request import Request, Sequence, SequenceStatus
from drillcore_server.engine.scheduler_output import ScheduledRequest, SchedulerOutput
from drillcore_spec.enums import PositionsKind


@dataclass(slots=True)
class SchedulerCounters:
    """What was scheduled since the start."""

    steps: int = 0
    computed_tokens: int = 0
    """Tokens of all steps."""
    chunks: int = 0
    """Parts of prompts that a step left unfinished."""
    decodes: int = 0
    """Single tokens computed after a context."""
    without_new_blocks: int = 0
    """Times that a running request got no new block in a step."""


class Scheduler:
    """Holds every live sequence. Lives in the engine's thread."""

    def __init__(self, config: EngineConfig, kv: KVCacheManager, can_admit: Callable[[], bool]) -> None:
        self._config = config
        self._kv = kv
        self._can_admit = can_admit
        self._waiting: OrderedDict[int, Sequence] = OrderedDict()
        self._running: list[Sequence] = []
        self._live: dict[int, Sequence] = {}
        self._ended: list[int] = []
        self.num_waiting_tokens = 0
        """Prompt tokens of the waiting requests."""
        self.counters = SchedulerCounters()

    @property
    def num_waiting(self) -> int:
        """Requests that hold nothing yet."""
        return len(self._waiting)

    @property
    def num_live(self) -> int:
        """Requests that are waiting, running, or still hold blocks."""
        return len(self._live)

    def live_sequences(self) -> Iterator[Sequence]:
        """Every sequence that may hold blocks."""
        return iter(self._live.values())

    def add(self, request: Request) -> None:
        """Queues a request.

        Raises:
            RequestTooLarge: it can never be served; the message has the numbers.
            RequestRefused: its id is in use, it is empty, or it asks for more generation than there is.
        """
        self._check(request)
        sequence = Sequence.of(request)
        self._live[request.request_id] = self._waiting[request.request_id] = sequence
        self.num_waiting_tokens += request.num_prompt_tokens

    def schedule(self) -> SchedulerOutput | None:
        """The next step; None if nothing can be computed now."""
        decodes: list[ScheduledRequest] = []
        extends: list[ScheduledRequest] = []
        prefills: list[ScheduledRequest] = []
        budget = self._config.max_num_batched_tokens
        for sequence, num_tokens in self._assign(budget):
            scheduled = self._schedule_tokens(sequence, num_tokens)
            kind = prefills if scheduled.first_token == 0 else decodes if num_tokens == 1 else extends
            kind.append(scheduled)
            budget -= num_tokens
        if not (requests := (*decodes, *extends, *prefills)):
            return None
        self._publish(requests)
        num_tokens = self._config.max_num_batched_tokens - budget
        self.counters.steps += 1
        self.counters.computed_tokens += num_tokens
        self.counters.decodes += len(decodes)
        ended, self._ended = tuple(self._ended), []
        return SchedulerOutput(requests, ended, num_tokens)

    def update(self, scheduled: ScheduledRequest, sampled: int | None) -> Sequence | None:
        """Takes in one request's result of a step; gives its sequence if that was its last.

        A request that was aborted meanwhile is passed over.
        """
        sequence = self._live.get(scheduled.request.request_id)
        if sequence is None or sequence.header is not scheduled.header:
            return None
        if sequence.status is SequenceStatus.ABORTED:
            return None
        is_last = scheduled.end_token == scheduled.request.num_slots
        complete = is_last if sampled is None else sequence.append(sampled)
        if complete:
            self._end(sequence, SequenceStatus.SHIPPING)
        return sequence if complete else None

    def abort(self, request_id: int) -> SequenceStatus | None:
        """Stops a request in whatever state it is; gives the state, None if it is not known or aborted already.

        A waiting request is gone at once. One that was admitted holds its blocks until `release`.
        """
        sequence = self._live.get(request_id)
        if sequence is None or sequence.status is SequenceStatus.ABORTED:
            return None
        status = sequence.status
        if status is SequenceStatus.WAITING:
            del self._live[request_id]
            self._leave_queue(sequence)
        else:
            self._end(sequence, SequenceStatus.ABORTED)
        return status

    def release(self, request_id: int) -> None:
        """Frees a request's blocks; nothing reads them any more."""
        self._kv.free(self._live.pop(request_id))

    def _check(self, request: Request) -> None:
        name, num_slots, limit = f"request {request.request_id}", request.num_slots, self._config.max_model_len
        if request.request_id in self._live:
            raise RequestRefused(f"{name}: its id must not be in use; another request has it")
        if request.num_prompt_tokens < 1:
            raise RequestRefused(f"{name}: the prompt must have at least 1 token; got 0")
        if not 0 <= request.max_tokens <= self._config.max_tokens:
            allowed = f"max_tokens must be 0 to {self._config.max_tokens}"
            raise RequestRefused(f"{name}: {allowed}; got {request.max_tokens}")
        if self._config.only_last and request.positions is not PositionsKind.LAST:
            raise RequestRefused(f"{name}: positions must be Last in this engine; got {request.positions.value}")
        if num_slots > limit:
            raise RequestTooLarge(
                f"{name}: prompt and generated tokens but the last must be at most max_model_len = {limit}; got "
                f"{num_slots} ({request.num_prompt_tokens} prompt tokens, max_tokens {request.max_tokens})"
            )
        needed, there_are = self._kv.blocks_needed(num_slots), self._config.num_blocks - 1
        if needed > there_are:
            size = self._config.block_size
            raise RequestTooLarge(
                f"{name}: must fit into {there_are} blocks of {size} tokens; got {num_slots} tokens, {needed} blocks"
            )

    def _assign(self, budget: int) -> Iterator[tuple[Sequence, int]]:
        """Tokens for running requests first, then for newly admitted ones, until the budget is spent."""
        self._running = [s for s in self._running if s.status is SequenceStatus.RUNNING]
        for sequence in self._running:
            if budget and (num_tokens := min(sequence.num_new_tokens, budget)):
                budget -= num_tokens
                yield sequence, num_tokens
        for sequence in self._admit(budget):
            num_tokens = min(sequence.num_new_tokens, budget)
            budget -= num_tokens
            yield sequence, num_tokens

    def _admit(self, budget: int) -> Iterator[Sequence]:
        """Admits waiting requests in order, passing over those that wait for a prefix or do not fit the step.

        A request that finds too few blocks ends the admission, so that no later one can starve it.
        """
        whole_prompts = not self._config.needs_kv_cache
        for sequence in list(islice(self._waiting.values(), self._config.look_ahead)):
            if not budget or len(self._running) >= self._config.max_num_seqs or not self._can_admit():
                return
            if whole_prompts and sequence.num_tokens > budget:
                continue
            admission = self._kv.admit(sequence)
            if admission is Admission.NO_BLOCKS:
                return
            if admission is Admission.ADMITTED:
                self._leave_queue(sequence)
                sequence.status = SequenceStatus.RUNNING
                self._running.append(sequence)
                budget -= min(sequence.num_new_tokens, budget)
                yield sequence

    def _schedule_tokens(self, sequence: Sequence, num_tokens: int) -> ScheduledRequest:
        first = sequence.num_computed_tokens
        starts = not sequence.has_started
        grew = self._kv.grow(sequence, num_tokens)
        sequence.has_started = True
        sequence.num_computed_tokens = end = first + num_tokens
        caught_up = end == sequence.num_tokens
        self.counters.without_new_blocks += not grew and not starts
        self.counters.chunks += not caught_up
        if end == sequence.request.num_slots:
            sequence.status = SequenceStatus.SHIPPING
        return ScheduledRequest(
            request=sequence.request,
            header=sequence.header,
            first_token=first,
            token_ids=sequence.token_ids[first:end],
            block_ids=tuple(sequence.block_ids) if grew or starts else None,
            starts=starts,
            samples=caught_up and sequence.request.max_tokens > 0,
        )

    def _publish(self, requests: tuple[ScheduledRequest, ...]) -> None:
        if self._config.prefix_caching:
            for scheduled in requests:
                self._kv.publish_prefix(self._live[scheduled.request.request_id])

    def _leave_queue(self, sequence: Sequence) -> None:
        del self._waiting[sequence.request_id]
        self.num_waiting_tokens -= sequence.request.num_prompt_tokens

    def _end(self, sequence: Sequence, status: SequenceStatus) -> None:
        sequence.status = status
        self._kv.stop_computing(sequence)
        self._ended.append(sequence.request_id)
