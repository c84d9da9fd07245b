"""Residual add, RMS norm and capture in torch: the oracle of the kernel and the CPU's implementation."""

from __future__ import annotations

import torch
from torch import Tensor

from drillcore_kernels.capture import Capture
from drillcore_kernels.kinds import NormKind


def add_rms_norm(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    eps: float,
    kind: NormKind = NormKind.LLAMA,
    *,
    capture: Capture | None = None,
    capture_normed: Capture | None = None,
) -> tuple[Tensor | None, Tensor]:
    """Give (norm(r) * weight, r) for r = x + residual; see `drillcore_kernels.ops.AddRmsNorm`."""
    r = x if residual is None else residual.add_(x)
    norm = None if weight is None and capture is None else _l2_norm(r)
    if capture is not None:
        _store(r, capture, norm)
    if weight is None or norm is None:
        return None, r
    normed = _scale(r, norm, weight, eps, kind)
    if capture_normed is not None:
        _store(normed, capture_normed, _l2_norm(normed))
    return normed, r


def rms_norm(x: Tensor, weight: Tensor, eps: float, kind: NormKind) -> Tensor:
    """Give norm(x) * weight over the last dimension, without residual or capture."""
    return _scale(x, _l2_norm(x), weight, eps, kind)


def _l2_norm(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    return norm


def _scale(x: Tensor, norm: Tensor, weight: Tensor, eps: float, kind: NormKind) -> Tensor:
    inverse_rms = torch.rsqrt(norm.square() / x.shape[-1] + eps)
    normed = x.float() * inverse_rms
    if kind is NormKind.LLAMA:
        return normed.to(x.dtype).mul_(weight)
    factor = weight.float() + 1.0 if kind is NormKind.GEMMA else weight.float()
    return normed.mul_(factor).to(x.dtype)


def _store(value: Tensor, capture: Capture, norm: Tensor | None) -> None:
    """Write value [T, D] to the capture's slots with its statistics.

    `norm` is that of `value`, which is the norm of what is stored when no cast changes it.
    """
    stored = value.to(capture.cache.dtype)
    if norm is None or stored is not value:
        norm = _l2_norm(stored)
    largest = stored.abs().amax(dim=-1, keepdim=True).float()
    rows = capture.cache.view(-1, *capture.cache.shape[2:])
    rows.select(1, capture.column).index_copy_(0, capture.slot_mapping, stored)
    stats = capture.stats.view(-1, *capture.stats.shape[2:])
    stats.select(1, capture.column).index_copy_(0, capture.slot_mapping, torch.cat((norm, largest), dim=-1))
