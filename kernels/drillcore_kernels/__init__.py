"""Kernels: one operation a folder, each with a torch reference and a Triton kernel.

`select_ops(device, dtype)` is the one place that decides which implementation runs.
"""

from drillcore_kernels.capture import Capture
from drillcore_kernels.kinds import Activation, NormKind
from drillcore_kernels.ops import Ops
from drillcore_kernels.select import select_ops

__all__ = ["Activation", "Capture", "NormKind", "Ops", "select_ops"]
