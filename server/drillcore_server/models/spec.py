"""The flags that tell one decoder apart from another."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RopeSpec:
    """Rotary position embedding of the half-split (GPT-NeoX) kind."""

    inv_freq: tuple[float, ...]
    """float32 values, one for each rotated pair of dimensions: the rotary dimension is twice as many."""
    attention_scaling: float = 1.0
    """Factor on cos and sin (YaRN's mscale; 1 elsewhere)."""


@dataclass(frozen=True)
class ModelSpec:
    """Sizes and flags of one model, as its config.json gives them."""

    model_type: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    dtype: torch.dtype
    """The checkpoint's own dtype: what `dtype: Auto` in a job means."""
    norm_eps: float
    rope: RopeSpec
    attention_scale: float
    """Factor on q k^T, usually head_dim ** -0.5."""
    windows: tuple[int | None, ...]
    """For each block: how many positions a query sees, itself included; None: all before it."""
    qkv_bias: bool = False
    output_bias: bool = False
    """Bias of the attention's output projection."""
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMSNorm on each query and key head before rope."""
    tied_embeddings: bool = False
    """The output embedding is the input embedding."""
