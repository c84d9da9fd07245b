"""Extraction in this process, without ring and sidecar: for notebooks, checks and tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike

from drillcore_server.connector.list_sink import ExtractedSample, ListSink, StateShape
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.engine import Engine
from drillcore_server.engine.errors import SampleQuarantined
from drillcore_server.engine.request import Request
from drillcore_server.models.decoder import Decoder


def extract(
    decoder: Decoder,
    plan: CapturePlan,
    prompts: Iterable[ArrayLike],
    *,
    config: EngineConfig | None = None,
    store_dtype: torch.dtype | None = None,
) -> list[ExtractedSample]:
    """States of every token of `prompts` (lists of ids), in their order.

    `config` None: limits that hold all prompts at once.

    Raises:
        SampleQuarantined: a prompt is too long for `config`, or its states are not usable.
    """
    token_ids = [np.asarray(prompt, dtype=np.int64) for prompt in prompts]
    sink = ListSink(state_shape(decoder, plan, store_dtype))
    engine = Engine(decoder, plan, config or config_for(token_ids), sink, store_dtype=store_dtype)
    engine.run(Request(row, ids) for row, ids in enumerate(token_ids))
    if sink.quarantined:
        entry = sink.quarantined[0]
        raise SampleQuarantined(f"prompt {entry.row}: {entry.message}")
    samples = sink.by_row()
    return [samples[row] for row in range(len(token_ids))]


def config_for(prompts: Sequence[np.ndarray]) -> EngineConfig:
    """Limits with which every prompt runs whole, and all have their blocks at once."""
    longest = max((len(prompt) for prompt in prompts), default=1)
    block_size = EngineConfig.block_size
    num_blocks = 1 + sum(-(-len(prompt) // block_size) for prompt in prompts)
    return EngineConfig(
        max_model_len=max(longest, 1),
        num_blocks=max(num_blocks, 2),
        max_num_batched_tokens=max(longest, EngineConfig.max_num_batched_tokens),
        prefix_caching=False,
    )


def state_shape(decoder: Decoder, plan: CapturePlan, store_dtype: torch.dtype | None = None) -> StateShape:
    """What an in-process sink must know of the states."""
    weights = decoder.weights.embedding
    return StateShape(plan.num_columns, plan.hidden_size, store_dtype or weights.dtype, weights.device)
