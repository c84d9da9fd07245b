"""The torch implementation of all operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from drillcore_kernels.add_rms_norm.reference import add_rms_norm
from drillcore_kernels.gather_rows.reference import gather_rows
from drillcore_kernels.mean_rows.reference import mean_rows
from drillcore_kernels.ops import Ops
from drillcore_kernels.paged_decode.reference import paged_decode
from drillcore_kernels.paged_extend.reference import paged_extend
from drillcore_kernels.rope_kv_write.reference import rope_kv_write
from drillcore_kernels.silu_mul.reference import silu_mul
from drillcore_kernels.varlen_prefill.reference import varlen_prefill


def _plan_nothing(query_lens: Sequence[int], seq_lens: Sequence[int], device: torch.device) -> None:
    """The references go through the sequences in order."""


REFERENCE_OPS = Ops(
    name="reference",
    add_rms_norm=add_rms_norm,
    rope_kv_write=rope_kv_write,
    silu_mul=silu_mul,
    varlen_prefill=varlen_prefill,
    paged_extend=paged_extend,
    paged_decode=paged_decode,
    gather_rows=gather_rows,
    mean_rows=mean_rows,
    plan_tiles=_plan_nothing,
)
