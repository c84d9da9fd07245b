"""The hidden-state drafter: captures a step's states, and never speculates.

It stands where a speculative decoder has its draft model (vLLM's `extract_hidden_states` method): its "draft" is
the sampled token, which always verifies. What it does is to own the hidden cache: the decoder asks it where each
residual goes while it runs, and `propose` finishes the step. It runs in every step and for every request: there is
no check whether a draft would fit into max_model_len, since nothing is drafted beyond the sampled token.
"""

from __future__ import annotations

import torch

from drillcore_kernels import Capture
from drillcore_server.connector.errors import StepNotBound
from drillcore_server.connector.worker import ConnectorWorker
from drillcore_server.engine.caches import HiddenCache
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.input_batch import StepInputs


class HiddenStateDrafter:
    """Owner of hidden cache and capture plan; the `CaptureSink` of the decoder."""

    def __init__(self, plan: CapturePlan, cache: HiddenCache, connector: ConnectorWorker) -> None:
        self.plan = plan
        self.cache = cache
        self._connector = connector
        self._slot_mapping: torch.Tensor | None = None

    @property
    def last_layer(self) -> int:
        """The highest r_i that is needed."""
        return self.plan.last_layer

    def residual(self, i: int) -> Capture | None:
        """Where r_i of the current step goes."""
        return self._capture(self.plan.column_of(i))

    def final_norm(self) -> Capture | None:
        """Where n_L of the current step goes."""
        return self._capture(self.plan.final_norm_column)

    def begin(self, inputs: StepInputs) -> None:
        """Makes the step's slots the target of the captures that follow."""
        self._slot_mapping = inputs.slot_mapping

    def propose(self, inputs: StepInputs, sampled: torch.Tensor) -> torch.Tensor:
        """Finishes the step: hands its states to the connector, and gives `sampled` as the proposal."""
        self._slot_mapping = None
        self._connector.save(inputs.state_slots, inputs.device_state_slots)
        return sampled

    def _capture(self, column: int | None) -> Capture | None:
        if column is None:
            return None
        if self._slot_mapping is None:
            raise StepNotBound("the decoder captures outside a step: call begin first")
        return Capture(self.cache.states, self.cache.stats, column, self._slot_mapping)
