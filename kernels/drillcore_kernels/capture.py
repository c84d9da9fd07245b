"""Where a captured residual-stream value goes: one column of the paged hidden cache."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Capture:
    """One column of the hidden cache, and the slots of this step's T tokens in it.

    The hidden cache has C columns (one for each captured state) of D values in blocks of `block_size`
    slots. Slot `block * block_size + offset` is row `offset` of block `block`. Two tokens may share a slot
    only in the null block (block 0); which of them stays is then not defined.
    """

    cache: Tensor
    """[num_blocks, block_size, C, D] in the store dtype; contiguous; written by the operation."""
    stats: Tensor
    """[num_blocks, block_size, C, 2] float32, contiguous: (L2 norm, largest absolute value) as stored.

    NaN in a stored row makes both NaN. An infinity makes both infinite. The sum of squares is a float32 sum:
    the norm alone also overflows for values above 1.8e19 and underflows to 0 below 1e-23, so finiteness and
    "all zero" are read from the largest absolute value.
    """
    column: int
    """Index in [0, C)."""
    slot_mapping: Tensor
    """[T] int64 slots on the cache's device."""
