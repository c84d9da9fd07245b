"""Rows of the hidden cache by slot in one Triton kernel: a program a chunk of a row, a plain copy."""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_MAX_VALUES_PER_PROGRAM = 4096


@triton.jit(do_not_specialize_on_alignment=["slots_ptr"])
def _gather_rows_kernel(
    cache_ptr: tl.tensor, slots_ptr: tl.tensor, out_ptr: tl.tensor, ROW: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """Copy one chunk of the row at one slot; slots and offsets are int64."""
    CHUNKS: tl.constexpr = (ROW + BLOCK - 1) // BLOCK
    program = tl.program_id(0).to(tl.int64)
    wanted = program // CHUNKS
    offsets = (program % CHUNKS) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots_ptr + wanted).to(tl.int64)
    values = tl.load(cache_ptr + slot * ROW + offsets, mask=offsets < ROW)
    tl.store(out_ptr + wanted * ROW + offsets, values, mask=offsets < ROW)


def gather_rows(cache: Tensor, slots: Tensor, out: Tensor | None = None) -> Tensor:
    """Give [P, C, D]; see `drillcore_kernels.ops.GatherRows`."""
    columns, hidden = cache.shape[2:]
    out = cache.new_empty(len(slots), columns, hidden) if out is None else out
    if len(slots) > 0:
        row = columns * hidden
        block = min(triton.next_power_of_2(row), _MAX_VALUES_PER_PROGRAM)
        grid = (len(slots) * triton.cdiv(row, block),)
        _gather_rows_kernel[grid](cache, slots, out, ROW=row, BLOCK=block, num_warps=4)
    return out
