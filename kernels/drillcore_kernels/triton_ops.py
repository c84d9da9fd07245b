"""The Triton implementation of all operations. Importing this needs Triton."""

from __future__ import annotations

from drillcore_kernels.add_rms_norm.kernel import add_rms_norm
from drillcore_kernels.attention.tiles import plan_tiles
from drillcore_kernels.gather_rows.kernel import gather_rows
from drillcore_kernels.mean_rows.kernel import mean_rows
from drillcore_kernels.ops import Ops
from drillcore_kernels.paged_decode.kernel import paged_decode
from drillcore_kernels.paged_extend.kernel import paged_extend
from drillcore_kernels.rope_kv_write.kernel import rope_kv_write
from drillcore_kernels.silu_mul.kernel import silu_mul
from drillcore_kernels.varlen_prefill.kernel import varlen_prefill

TRITON_OPS = Ops(
    name="triton",
    add_rms_norm=add_rms_norm,
    rope_kv_write=rope_kv_write,
    silu_mul=silu_mul,
    varlen_prefill=varlen_prefill,
    paged_extend=paged_extend,
    paged_decode=paged_decode,
    gather_rows=gather_rows,
    mean_rows=mean_rows,
    plan_tiles=plan_tiles,
)
