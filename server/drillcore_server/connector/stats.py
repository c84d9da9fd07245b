"""Norms and largest values of a step's states: checked before anything is shipped, then added up by sample.

Shapes: P states of a step, R requests that have states in it, C columns. The statistics come from the kernels that
store the states (`drillcore_kernels.Capture.stats`): an L2 norm and a largest absolute value of each state; NaN and
infinities show in the largest value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from drillcore.records import QuarantineReason
from drillcore_server.connector.host_memory import empty_host


@dataclass(frozen=True, slots=True, eq=False)
class SliceStats:
    """Statistics of each request's states of one step."""

    norm_sums: NDArray[np.float64]
    """Sums [R, C] of the norms."""
    max_abs: NDArray[np.float64]
    """Largest absolute values [R, C]."""
    faults: dict[int, tuple[QuarantineReason, int]]
    """For each request (index in R) with a fault: which, and the first column that has it."""


def fetch_stats(stats: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """Starts to copy the statistics [P, C, 2] at `slots` [P] to the host, on the current stream.

    `stats` is [num_blocks, block_size, C, 2]. The result is valid once the stream has got there.
    """
    gathered = stats.view(-1, *stats.shape[2:]).index_select(0, slots)
    return empty_host(gathered.shape, gathered.dtype, stats.device).copy_(gathered, non_blocking=True)


def reduce_stats(stats: NDArray[np.float32], counts: NDArray[np.int64], never_zero: NDArray[np.bool_]) -> SliceStats:
    """Adds up the statistics [P, C, 2] of R requests that have `counts` [R] states, all > 0, in this order.

    `never_zero` [C] tells for which columns a state of zeros is a fault.
    """
    starts = np.cumsum(counts) - counts
    norms, largest = stats[..., 0], stats[..., 1]
    norm_sums = np.add.reduceat(norms, starts, axis=0, dtype=np.float64)
    max_abs = np.maximum.reduceat(largest, starts, axis=0).astype(np.float64)
    all_zero = (np.minimum.reduceat(largest, starts, axis=0) == 0) & never_zero
    faults = _first_columns(QuarantineReason.ZERO_STATE, all_zero)
    faults |= _first_columns(QuarantineReason.NON_FINITE_STATE, ~np.isfinite(max_abs))
    return SliceStats(norm_sums, max_abs, faults)


def _first_columns(reason: QuarantineReason, found: NDArray[np.bool_]) -> dict[int, tuple[QuarantineReason, int]]:
    rows = np.flatnonzero(found.any(axis=1))
    return {int(row): (reason, int(found[row].argmax())) for row in rows}
