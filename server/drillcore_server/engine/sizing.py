"""How large the engine's caches may be on this device."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from drillcore_server.engine.caches import hidden_block_bytes, kv_block_bytes
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig, num_blocks_for
from drillcore_server.errors import ShardError
from drillcore_server.models.attention import AttentionMetadata
from drillcore_server.models.capture import NoCapture
from drillcore_server.models.decoder import Decoder
from drillcore_spec.reasons import Reason

logger = logging.getLogger(__name__)

_GPU_FRACTION: Final = 0.95
"""Of the memory that is free after weights and activations; the rest is for the allocator's fragmentation."""
_CPU_FRACTION: Final = 0.25
_CPU_STEP_TOKENS: Final = 1024
"""Longest step on a CPU: its activations stay near the caches, and progress and SIGTERM are seen in seconds."""
_CPU_BUDGETS: Final = 4
"""Token budgets that the caches of a CPU hold: enough for full steps, and for prefixes that come soon again."""
_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def step_tokens(asked: int, decoder: Decoder) -> int:
    """The token budget of a step on the decoder's device, when `asked` is what the user allows."""
    return asked if decoder.weights.embedding.device.type == "cuda" else min(asked, _CPU_STEP_TOKENS)


def with_blocks(limits: EngineConfig, plan: CapturePlan, decoder: Decoder, stored: torch.dtype) -> EngineConfig:
    """`limits` with as many blocks as are useful and fit beside the decoder's weights.

    Raises:
        ShardError: OutOfMemory; not even one step's blocks fit.
    """
    device, block_bytes = decoder.weights.embedding.device, _block_bytes(limits, plan, decoder, stored)
    if device.type == "cuda":
        budget_bytes = _free_on_gpu(decoder, limits.max_num_batched_tokens)
        useful = budget_bytes // block_bytes
    else:
        budget_bytes = int(memory_limit_bytes() * _CPU_FRACTION)
        tokens = max(limits.max_model_len, _CPU_BUDGETS * limits.max_num_batched_tokens)
        useful = 1 + num_blocks_for(tokens, limits.block_size)
    num_blocks = min(useful, budget_bytes // block_bytes)
    if num_blocks < 2:
        raise ShardError(
            Reason.OUT_OF_MEMORY,
            f"the caches need at least 2 blocks of {block_bytes:,} bytes; {budget_bytes:,} bytes are left on {device} "
            "after the weights. Capture fewer layers, lower engine.maxNumBatchedTokens, or use a larger device",
        )
    longest = (num_blocks - 1) * limits.block_size
    if longest < limits.max_model_len:
        logger.warning("rows of more than %d tokens do not fit into memory and will be quarantined", longest)
    logger.info("%d blocks of %d tokens, %.2f GB", num_blocks, limits.block_size, num_blocks * block_bytes / 1e9)
    return replace(limits, num_blocks=num_blocks)


def _block_bytes(limits: EngineConfig, plan: CapturePlan, decoder: Decoder, stored: torch.dtype) -> int:
    """Bytes of one block in all caches."""
    block_bytes = hidden_block_bytes(plan, limits.block_size, stored)
    if limits.needs_kv_cache:
        num_layers = plan.num_layers_to_run(generates=limits.max_tokens > 0)
        dtype = decoder.weights.embedding.dtype
        block_bytes += kv_block_bytes(decoder.spec, num_layers, limits.block_size, dtype)
    return block_bytes


def _free_on_gpu(decoder: Decoder, num_tokens: int) -> int:
    """Bytes left for caches, after what one full step was seen to use beside the weights."""
    device = decoder.weights.embedding.device
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    token_ids = torch.zeros(num_tokens, dtype=torch.int64, device=device)
    positions = torch.arange(num_tokens, dtype=torch.int64, device=device) % decoder.cos.shape[0]
    attention = AttentionMetadata.build([num_tokens], [num_tokens], device=device)
    decoder.forward(token_ids, positions, attention, None, NoCapture(len(decoder.weights.blocks)), want_hidden=False)
    torch.cuda.synchronize(device)
    activations = torch.cuda.max_memory_allocated(device) - before
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    return int((free - activations) * _GPU_FRACTION)


def memory_limit_bytes() -> int:
    """Memory that this process may use: the machine's, or its control group's limit."""
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in map(Path, _CGROUP_LIMITS):
        if path.exists() and (text := path.read_text().strip()).isdecimal():
            limit = min(limit, int(text))
    return limit
