"""The engine's limits for a job."""

from __future__ import annotations

import torch

from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.sizing import step_tokens, with_blocks
from drillcore_server.models.decoder import Decoder
from drillcore_server.shard.preparation import Preparation
from drillcore_spec.enums import PositionsKind


def engine_config(preparation: Preparation, decoder: Decoder, stored: torch.dtype) -> EngineConfig:
    """Limits of the engine, with as many blocks as are useful and fit.

    Raises:
        ShardError: OutOfMemory; not even one step's blocks fit.
    """
    options = preparation.spec.engine
    limits = EngineConfig(
        max_model_len=preparation.max_model_len,
        num_blocks=2,
        max_num_batched_tokens=step_tokens(options.max_num_batched_tokens, decoder),
        max_tokens=preparation.spec.generation.max_tokens,
        prefix_caching=options.prefix_caching,
        only_last=preparation.spec.extraction.positions is PositionsKind.LAST,
    )
    return with_blocks(limits, preparation.plan, decoder, stored)
