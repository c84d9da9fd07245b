"""Tile sizes of the attention kernels for each head size and chip, and the order of their work.

Measured, not tuned at run time: a run must neither compile nor search in its first steps. The sizes for
compute capability 9.0 are the fastest of those tried on an H200 (see this folder's README); others have the
same tiles with fewer stages, which their shared memory holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

KEY_TILE = 64
"""Keys of a tile: the block size of the KV cache, so that a tile is one page."""
QUERY_TILE = 64
"""Queries of a tile: one warp group's matrix instruction."""
MIN_HEAD_DIM, MAX_HEAD_DIM, HEAD_DIM_STEP = 16, 256, 8


@dataclass(frozen=True)
class TileConfig:
    """How a tile's loop is compiled."""

    num_warps: int
    num_stages: int
    """Of the loop over fresh rows: so many key/value tiles of 2 * 64 * head_dim values are in shared memory."""
    num_paged_stages: int
    """Of the loop over pages: half of it (rounded up) for the tiles, the rest to fetch block ids ahead."""


_HOPPER = {64: TileConfig(4, 2, 3), 128: TileConfig(4, 3, 5), 256: TileConfig(4, 2, 3)}
_OTHER = {64: TileConfig(4, 3, 5), 128: TileConfig(4, 2, 3), 256: TileConfig(8, 1, 1)}


def check_head_dim(head_dim: int) -> None:
    """Raise ValueError for a head size without a kernel."""
    if not MIN_HEAD_DIM <= head_dim <= MAX_HEAD_DIM or head_dim % HEAD_DIM_STEP:
        allowed = f"a multiple of {HEAD_DIM_STEP} from {MIN_HEAD_DIM} to {MAX_HEAD_DIM}"
        raise ValueError(f"head_dim must be {allowed}; got {head_dim}")


@cache
def tile_config(head_dim: int, device: torch.device) -> TileConfig:
    """Give the configuration for a head size, which `check_head_dim` lets pass, on a device."""
    padded = max(64, 1 << (head_dim - 1).bit_length())
    hopper = device.type != "cuda" or torch.cuda.get_device_capability(device)[0] >= 9
    return (_HOPPER if hopper else _OTHER)[padded]


def plan_tiles(query_lens: Sequence[int], seq_lens: Sequence[int], device: torch.device) -> Tensor:
    """Give [W, 2] int32 (sequence, query tile) pairs, those with most keys first.

    With the longest first, the tail of a launch is made of the short ones and all multiprocessors end
    together. The copy to the device is asynchronous.
    """
    queries = np.asarray(query_lens, dtype=np.int64)
    contexts = np.asarray(seq_lens, dtype=np.int64) - queries
    counts = -(-queries // QUERY_TILE)
    sequences = np.repeat(np.arange(len(queries)), counts)
    tiles = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
    num_keys = contexts[sequences] + (tiles + 1) * QUERY_TILE
    order = np.argsort(-num_keys, kind="stable")
    pairs = torch.from_numpy(np.stack((sequences, tiles), axis=1)[order].astype(np.int32))
    if device.type == "cuda":
        return pairs.pin_memory().to(device, non_blocking=True)
    return pairs
