"""Means over rows of the hidden cache in one Triton kernel: a program a chunk of a sample's row."""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_MAX_VALUES_PER_PROGRAM = 512
_ROWS_IN_FLIGHT = 8


@triton.jit(do_not_specialize_on_alignment=["slots_ptr", "cu_rows_ptr"])
def _mean_rows_kernel(
    cache_ptr: tl.tensor,
    slots_ptr: tl.tensor,
    cu_rows_ptr: tl.tensor,
    out_ptr: tl.tensor,
    ROW: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Add up a sample's rows in float32, ROWS at a time; no rows give 0 / 0 = NaN."""
    CHUNKS: tl.constexpr = (ROW + BLOCK - 1) // BLOCK
    program = tl.program_id(0).to(tl.int64)
    sample = program // CHUNKS
    offsets = (program % CHUNKS) * BLOCK + tl.arange(0, BLOCK)
    start = tl.load(cu_rows_ptr + sample)
    stop = tl.load(cu_rows_ptr + sample + 1)
    total = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for first in range(start, stop, ROWS):
        rows = first + tl.arange(0, ROWS)
        slots = tl.load(slots_ptr + rows, mask=rows < stop, other=0).to(tl.int64)
        mask = (rows < stop)[:, None] & (offsets < ROW)[None, :]
        values = tl.load(cache_ptr + slots[:, None] * ROW + offsets[None, :], mask=mask, other=0.0)
        total += values.to(tl.float32)
    mean = tl.sum(total, 0) / (stop - start).to(tl.float32)
    tl.store(out_ptr + sample * ROW + offsets, mean.to(out_ptr.dtype.element_ty), mask=offsets < ROW)


def mean_rows(cache: Tensor, slots: Tensor, cu_rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Give [B, C, D]; see `drillcore_kernels.ops.MeanRows`."""
    num_samples = len(cu_rows) - 1
    columns, hidden = cache.shape[2:]
    out = cache.new_empty(num_samples, columns, hidden) if out is None else out
    if num_samples > 0:
        row = columns * hidden
        block = min(triton.next_power_of_2(row), _MAX_VALUES_PER_PROGRAM)
        grid = (num_samples * triton.cdiv(row, block),)
        _mean_rows_kernel[grid](cache, slots, cu_rows, out, ROW=row, BLOCK=block, ROWS=_ROWS_IN_FLIGHT, num_warps=4)
    return out
