"""The same steps without extraction: the engine's scheduler and inputs and the decoder, and nothing is kept.

What an end-to-end run takes longer than this is the cost of extraction: capture, statistics, copies, ring, files.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from end_to_end import plan_of, requests_of
from workload_list import Prompts, Workload

from drillcore_server.connector.host_memory import Landing, landing
from drillcore_server.connector.metadata import StateSlice, StepMetadata
from drillcore_server.engine import EngineConfig
from drillcore_server.engine.caches import allocate_kv_cache
from drillcore_server.engine.feed import RequestFeed
from drillcore_server.engine.input_batch import InputBatch
from drillcore_server.engine.kv_cache_manager import KVCacheManager
from drillcore_server.engine.request import Request
from drillcore_server.engine.scheduler import Scheduler
from drillcore_server.engine.scheduler_output import SchedulerOutput
from drillcore_server.models.capture import NoCapture
from drillcore_server.models.decoder import Decoder

_NO_POSITIONS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Forward:
    """What one run of the forward passes took."""

    seconds: float
    num_tokens: int
    num_samples: int
    num_steps: int


def forward_only(workload: Workload, decoder: Decoder, prompts: Prompts, config: EngineConfig) -> Forward:
    """Runs the workload's prompts through the layers that it needs."""
    run = _ForwardRun(workload, decoder, config)
    began = time.perf_counter()
    run.run(RequestFeed(requests_of(workload, prompts), config))
    seconds = time.perf_counter() - began
    return Forward(seconds, sum(map(len, prompts)), len(prompts), run.scheduler.counters.steps)


class _ForwardRun:
    """A scheduler, a decoder, and some steps in flight."""

    def __init__(self, workload: Workload, decoder: Decoder, config: EngineConfig) -> None:
        self._decoder = decoder
        self._config = config
        self._capture = NoCapture(plan_of(workload, decoder).last_layer)
        self._device = decoder.weights.embedding.device
        self._in_flight: deque[tuple[SchedulerOutput, Landing]] = deque()
        self._kv_cache = None
        if config.needs_kv_cache:
            dtype, num_layers = decoder.weights.embedding.dtype, self._capture.last_layer
            shape = (config.num_blocks, config.block_size, dtype, self._device)
            self._kv_cache = allocate_kv_cache(decoder.spec, num_layers, *shape)
        plan_tiles = decoder.ops.plan_tiles
        self._batch = InputBatch(config.block_size, self._device, plan_tiles, keeps_kv=config.needs_kv_cache)
        self.scheduler = Scheduler(config, KVCacheManager(config), lambda: True)

    def run(self, feed: RequestFeed) -> None:
        """Takes all requests, and waits for the last step."""
        while not feed.is_exhausted or self.scheduler.num_live:
            feed.begin_turn()
            while isinstance(item := self._next(feed), Request):
                self.scheduler.add(item)
            output = self.scheduler.schedule()
            if output is not None:
                self._launch(output)
            if self._in_flight and (output is None or len(self._in_flight) >= self._config.max_steps_in_flight):
                self._take_in()

    def _next(self, feed: RequestFeed) -> object:
        return feed.take(self.scheduler.num_waiting, self.scheduler.num_waiting_tokens)

    @torch.inference_mode()
    def _launch(self, output: SchedulerOutput) -> None:
        nothing = StepMetadata(tuple(StateSlice(r.header, _NO_POSITIONS, r.starts) for r in output.requests))
        inputs = self._batch.build(output, nothing)
        self._decoder.forward(
            inputs.token_ids, inputs.positions, inputs.attention, self._kv_cache, self._capture, want_hidden=False
        )
        self._in_flight.append((output, landing(self._device)))

    def _take_in(self) -> None:
        output, done = self._in_flight.popleft()
        done.synchronize()
        for scheduled in output.requests:
            sequence = self.scheduler.update(scheduled, None)
            if sequence is not None:
                self.scheduler.release(sequence.request_id)
