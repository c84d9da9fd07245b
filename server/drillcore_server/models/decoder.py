"""One decoder for every family and every device: a ModelSpec of flags over the operations of the kernels.

Shapes: T packed tokens, D hidden, H query heads, K key/value heads, Dh head dim, F intermediate, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from drillcore_server.models.attention import AttentionMetadata
from drillcore_server.models.capture import CaptureSink
from drillcore_server.models.spec import ModelSpec

KVCache = tuple[torch.Tensor, torch.Tensor]
"""K and V cache of one block, each [num_blocks, block_size, K, Dh]."""


@dataclass(frozen=True)
class Decoder:
    """The blocks that a job needs, and what stands before and after them."""

    spec: ModelSpec

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: AttentionMetadata,
        kv: Sequence[KVCache] | None,
        sink: CaptureSink,
        *,
        want_hidden: bool,
    ) -> torch.Tensor | None:
        """Runs the blocks that `sink` needs, captures on the way, and gives n_L [T, D] if it is wanted.

        Args:
            token_ids: int64 [T] on the device.
            positions: int64 [T] on the device.
            attention: lengths, block tables and slots of the sequences.
            kv: the KV cache of each block; None when every sequence is a prefill whose K and V nobody reads later.
            sink: where the hidden states go.
            want_hidden: compute n_L for `logits`, whether or not the sink asks for it.
        """
        raise NotImplementedError

    def logits(self, normed: torch.Tensor) -> torch.Tensor:
        """Logits [B, V] of n_L rows [B, D]."""
        raise NotImplementedError
