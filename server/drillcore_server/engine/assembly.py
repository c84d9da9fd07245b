"""Puts the parts of an engine together: who owns what, and what knows whom.

decoder ──asks──► drafter (hidden cache, capture plan) ──saves to──► connector worker ──ships to──► sink
   ▲                  ▲                                                    ▲
   └── model runner ──┴──────── binds metadata ────────────────────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from drillcore_kernels import select_ops
from drillcore_server.connector.base import SampleSink
from drillcore_server.connector.copies import copier_for
from drillcore_server.connector.worker import ConnectorWorker, StateColumns
from drillcore_server.engine.caches import HiddenCache, allocate_kv_cache
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.drafter import HiddenStateDrafter
from drillcore_server.engine.model_runner import ModelRunner
from drillcore_server.errors import ShardError
from drillcore_server.models.attend import KVCache
from drillcore_server.models.decoder import Decoder
from drillcore_spec.reasons import Reason


@dataclass(frozen=True, slots=True, eq=False)
class DeviceParts:
    """What an engine has on its device."""

    device: torch.device
    connector: ConnectorWorker
    drafter: HiddenStateDrafter
    runner: ModelRunner


def assemble(
    decoder: Decoder,
    plan: CapturePlan,
    config: EngineConfig,
    sink: SampleSink,
    store_dtype: torch.dtype | None,
) -> DeviceParts:
    """Allocates the caches beside the decoder's weights; see `Engine`."""
    weights = decoder.weights.embedding
    num_layers = plan.num_layers_to_run(generates=config.max_tokens > 0)
    _check_decoder(decoder, num_layers, config)
    connector, drafter = _hidden_side(plan, config, sink, weights.device, store_dtype or weights.dtype)
    kv_cache = _kv_cache(decoder, num_layers, config)
    runner = ModelRunner(decoder, kv_cache, drafter, connector, config)
    return DeviceParts(weights.device, connector, drafter, runner)


def _check_decoder(decoder: Decoder, num_layers: int, config: EngineConfig) -> None:
    num_positions, num_blocks = len(decoder.cos), len(decoder.weights.blocks)
    if config.max_model_len > num_positions:
        expected = f"engine.maxModelLen must be at most {num_positions}, the positions of the model"
        raise ShardError(Reason.BAD_SPEC, f"{expected}; got {config.max_model_len}")
    if num_blocks < num_layers:
        raise ValueError(f"the capture plan needs {num_layers} blocks of the model; {num_blocks} are loaded")
    if config.max_tokens > 0 and decoder.weights.lm_head is None:
        raise ValueError(f"max_tokens {config.max_tokens} needs lm_head; the decoder was loaded without it")


def _hidden_side(
    plan: CapturePlan, config: EngineConfig, sink: SampleSink, device: torch.device, dtype: torch.dtype
) -> tuple[ConnectorWorker, HiddenStateDrafter]:
    cache = HiddenCache.allocate(plan, config.num_blocks, config.block_size, dtype, device)
    copier = copier_for(cache.states, select_ops(device, dtype))
    connector = ConnectorWorker(sink, copier, cache.stats, StateColumns(plan.column_names, plan.never_zero))
    return connector, HiddenStateDrafter(plan, cache, connector)


def _kv_cache(decoder: Decoder, num_layers: int, config: EngineConfig) -> list[KVCache] | None:
    if not config.needs_kv_cache:
        return None
    weights = decoder.weights.embedding
    return allocate_kv_cache(
        decoder.spec, num_layers, config.num_blocks, config.block_size, weights.dtype, weights.device
    )
