"""`spec.engine`, `spec.shards` and `spec.ring`: how the work is run."""

from __future__ import annotations

from typing import Annotated

from drillcore_spec.base import SpecModel
from drillcore_spec.forms import ByteQuantity, Flag, PositiveTokenCount, ShardCount, integer


class EngineOptions(SpecModel):
    """Limits of the inference engine."""

    max_model_len: PositiveTokenCount | None = None
    """Longest sequence, in tokens. Default: the model's."""
    max_num_batched_tokens: PositiveTokenCount = 8192
    """Most tokens in one forward pass; longer prompts are prefilled in chunks."""
    prefix_caching: Flag = True
    """Share the key-value and hidden blocks of prompts that begin alike."""
    tensor_parallel_size: Annotated[int, integer(1, 64)] = 1
    """GPUs that share one copy of the model."""


class Shards(SpecModel):
    """How the rows are split."""

    count: ShardCount = 1
    """Number of contiguous ranges of rows, each extracted by a pod of its own."""


class Ring(SpecModel):
    """The shared memory between the server and the sidecar that writes."""

    size: ByteQuantity = "4Gi"
    """Size of the ring; it counts against the server's memory."""
