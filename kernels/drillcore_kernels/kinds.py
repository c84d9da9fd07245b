"""The variants of norms and activations, named by the models that have them."""

from __future__ import annotations

from enum import Enum


class NormKind(Enum):
    """Where an RMS norm casts back to the model's dtype, and what its weight means.

    Source: the `*RMSNorm.forward` methods of transformers 5.17.
    """

    LLAMA = "llama"
    """Normalise in float32, cast to the dtype of x, then multiply by the weight."""
    GEMMA = "gemma"
    """Normalise and multiply by (1 + weight) in float32, then cast."""
    GPT_OSS = "gpt-oss"
    """Normalise and multiply by the weight in float32, then cast."""


class Activation(Enum):
    """The gate's activation in a gated MLP."""

    SILU = "silu"
    """x * sigmoid(x)."""
    GELU_TANH = "gelu-tanh"
    """GELU by its tanh approximation."""
