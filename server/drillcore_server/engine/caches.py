"""The tensors that blocks stand for: the hidden cache with its statistics, and the KV cache.

Both have the same blocks: block b of the hidden cache holds the states of the tokens whose keys and values block b
of the KV cache holds. Block 0 is the null block and stays finite. All others are written before they are read, so
they are not initialised.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from drillcore_server.engine.block_pool import NULL_BLOCK
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.models.attend import KVCache
from drillcore_server.models.spec import ModelSpec

_STATS_BYTES = 8
"""Norm and largest value, float32 each."""


@dataclass(frozen=True, slots=True, eq=False)
class HiddenCache:
    """States of every captured layer, by slot."""

    states: torch.Tensor
    """[num_blocks, block_size, C, D] in the store dtype."""
    stats: torch.Tensor
    """[num_blocks, block_size, C, 2] float32: norm and largest absolute value of each state."""

    @classmethod
    def allocate(
        cls, plan: CapturePlan, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> HiddenCache:
        """The cache for the columns of `plan`."""
        shape = (num_blocks, block_size, plan.num_columns)
        states = torch.empty(*shape, plan.hidden_size, dtype=dtype, device=device)
        stats = torch.empty(*shape, 2, dtype=torch.float32, device=device)
        states[NULL_BLOCK].zero_()
        stats[NULL_BLOCK].zero_()
        return cls(states, stats)


def allocate_kv_cache(
    spec: ModelSpec, num_layers: int, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
) -> list[KVCache]:
    """Key and value cache [num_blocks, block_size, Hkv, Dh] of each block of the model that runs."""
    shape = (num_blocks, block_size, spec.num_kv_heads, spec.head_dim)
    caches = [tuple(torch.empty(shape, dtype=dtype, device=device) for _ in range(2)) for _ in range(num_layers)]
    for keys, values in caches:
        keys[NULL_BLOCK].zero_()
        values[NULL_BLOCK].zero_()
    return [(keys, values) for keys, values in caches]


def hidden_block_bytes(plan: CapturePlan, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of a block of the hidden cache: block_size * C * (D * itemsize + statistics)."""
    return block_size * plan.num_columns * (plan.hidden_size * dtype.itemsize + _STATS_BYTES)


def kv_block_bytes(spec: ModelSpec, num_layers: int, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of a block of the KV cache over `num_layers` layers."""
    return num_layers * 2 * block_size * spec.num_kv_heads * spec.head_dim * dtype.itemsize
