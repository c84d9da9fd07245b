"""Runs steps on the device. Nothing here waits for it.

    bind metadata ─► forward (captures on the way) ─► sample ─► drafter.propose ─► clear
                                                                      │
                                       results on their way to pinned host memory, then an event

The same code serves a GPU and a CPU: on a CPU each call has its result when it returns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from drillcore_server.connector.host_memory import Landing, empty_host, landing
from drillcore_server.connector.metadata import StepMetadata
from drillcore_server.connector.worker import ConnectorWorker, SavedStep
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.drafter import HiddenStateDrafter
from drillcore_server.engine.input_batch import InputBatch, StepInputs
from drillcore_server.engine.sampler import Sampler
from drillcore_server.engine.scheduler_output import SchedulerOutput
from drillcore_server.models.attend import KVCache
from drillcore_server.models.decoder import Decoder


@dataclass(frozen=True, slots=True, eq=False)
class StepInFlight:
    """A step that the device was given. Its host tensors are valid once `done`."""

    output: SchedulerOutput
    saved: SavedStep
    sampled: torch.Tensor
    """int64 host tensor: one id for each request that samples, in batch order."""
    done: Landing

    def sampled_ids(self) -> NDArray[np.int64]:
        """The sampled ids; the step must be done."""
        ids: NDArray[np.int64] = self.sampled.numpy()
        return ids


class ModelRunner:
    """The decoder with its caches, sampler and drafter."""

    def __init__(
        self,
        decoder: Decoder,
        kv_cache: list[KVCache] | None,
        drafter: HiddenStateDrafter,
        connector: ConnectorWorker,
        config: EngineConfig,
    ) -> None:
        self.drafter = drafter
        self._decoder = decoder
        self.kv_cache = kv_cache
        self._connector = connector
        self._sampler = Sampler()
        self._device = drafter.cache.states.device
        self._input_batch = InputBatch(
            config.block_size,
            self._device,
            decoder.ops.plan_tiles,
            keeps_kv=kv_cache is not None,
            skips_unwanted_rows=config.skips_unwanted_rows,
        )

    @torch.inference_mode()
    def execute(self, output: SchedulerOutput, metadata: StepMetadata) -> StepInFlight:
        """Starts a step. Connector metadata is bound for all of it, the drafter included."""
        inputs = self._input_batch.build(output, metadata)
        with self._connector.bound(metadata) as step:
            normed = self._forward(inputs)
            sampled = self._sample(output, inputs, normed)
            sampled = self._draft(output, inputs, sampled)
        assert step.saved is not None, "bound() raises when the step was not saved"
        host = empty_host(sampled.shape, sampled.dtype, self._device).copy_(sampled, non_blocking=True)
        return StepInFlight(output, step.saved, host, landing(self._device))

    def _forward(self, inputs: StepInputs) -> torch.Tensor | None:
        """n_L [R, D] if some request generates."""
        self.drafter.begin(inputs)
        return self._decoder.forward(
            inputs.token_ids,
            inputs.positions,
            inputs.attention,
            self.kv_cache,
            self.drafter,
            want_hidden=inputs.generates,
            rows=inputs.wanted_rows,
        )

    def _sample(self, output: SchedulerOutput, inputs: StepInputs, normed: torch.Tensor | None) -> torch.Tensor:
        """int64 ids of the requests that sample, in batch order."""
        if normed is None or not len(inputs.sample_rows):
            return inputs.sample_rows
        sampling = [scheduled for scheduled in output.requests if scheduled.samples]
        return self._sampler.sample(self._decoder.logits(normed[inputs.sample_rows]), sampling)

    def _draft(self, output: SchedulerOutput, inputs: StepInputs, sampled: torch.Tensor) -> torch.Tensor:
        """The drafter runs in every step, whatever the lengths in `output` are."""
        return self.drafter.propose(inputs, sampled)
