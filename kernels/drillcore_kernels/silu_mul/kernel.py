"""The gated MLP's activation in one Triton kernel: a program a chunk of a token's features."""
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from drillcore_kernels.kinds import Activation

_MAX_FEATURES_PER_PROGRAM = 2048
_SQRT_2_OVER_PI = tl.constexpr(0.7978845608028654)


@triton.jit
def _silu_mul_kernel(
    gate_up_ptr: tl.tensor,
    out_ptr: tl.tensor,
    row_stride: tl.tensor,
    FEATURES: tl.constexpr,
    BLOCK: tl.constexpr,
    GELU: tl.constexpr,
) -> None:
    """Programs of one token follow each other, so that the reads of a row do."""
    CHUNKS: tl.constexpr = (FEATURES + BLOCK - 1) // BLOCK
    program = tl.program_id(0).to(tl.int64)
    token = program // CHUNKS
    offsets = (program % CHUNKS) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < FEATURES
    row_ptr = gate_up_ptr + token * row_stride
    gate = tl.load(row_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(row_ptr + FEATURES + offsets, mask=mask, other=0.0).to(tl.float32)
    argument = gate
    if GELU:
        # 0.5 * (1 + tanh(u)) is sigmoid(2u), so both activations are gate * sigmoid(something).
        argument = 2.0 * _SQRT_2_OVER_PI * (gate + 0.044715 * gate * gate * gate)
    out = gate * tl.sigmoid(argument) * up
    tl.store(out_ptr + token * FEATURES + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def silu_mul(gate_up: Tensor, activation: Activation = Activation.SILU) -> Tensor:
    """Give activation(gate) * up; see `drillcore_kernels.ops.SiluMul`. `gate_up` may have any row stride."""
    num_tokens, features = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(num_tokens, features)
    if num_tokens > 0:
        block = min(triton.next_power_of_2(features), _MAX_FEATURES_PER_PROGRAM)
        _silu_mul_kernel[(num_tokens * triton.cdiv(features, block),)](
            gate_up,
            out,
            gate_up.stride(0),
            FEATURES=features,
            BLOCK=block,
            GELU=activation is Activation.GELU_TANH,
            num_warps=4,
        )
    return out
