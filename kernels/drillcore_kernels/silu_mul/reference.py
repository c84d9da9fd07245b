"""The gated MLP's activation in torch: oracle of the kernel, and what the CPU runs."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from drillcore_kernels.kinds import Activation


def silu_mul(gate_up: Tensor, activation: Activation = Activation.SILU) -> Tensor:
    """Give activation(gate) * up; see `drillcore_kernels.ops.SiluMul`."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    activated = F.silu(gate) if activation is Activation.SILU else F.gelu(gate, approximate="tanh")
    return activated.mul_(up).to(gate_up.dtype)
