"""One decoder for every family and every device: a ModelSpec of flags over the operations of the kernels.

Shapes: T packed tokens, D hidden, H query heads, K key/value heads, Dh head dim, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from drillcore_kernels import Capture, Ops
from drillcore_server.models.attend import KVCache, attend
from drillcore_server.models.attention import AttentionMetadata
from drillcore_server.models.capture import CaptureSink
from drillcore_server.models.spec import ModelSpec
from drillcore_server.models.weights import DecoderWeights


@dataclass(frozen=True)
class Decoder:
    """The blocks that a job needs, and what stands before and after them.

    No method waits for the device: nothing is read back, and no shape depends on data.
    """

    spec: ModelSpec
    weights: DecoderWeights
    ops: Ops
    cos: torch.Tensor
    """float32 [positions, Dh / 2]"""
    sin: torch.Tensor
    """float32 [positions, Dh / 2]"""

    @torch.inference_mode()
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: AttentionMetadata,
        kv: Sequence[KVCache] | None,
        sink: CaptureSink,
        *,
        want_hidden: bool,
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor | None:
        """Runs the blocks that `sink` needs, captures on the way, and gives n_L [R, D] if it is wanted.

        Args:
            token_ids: int64 [T] on the device, each in [0, V).
            positions: int64 [T] on the device, each below the tables' length.
            attention: lengths, block tables and slots of the sequences.
            kv: the KV cache of each block that runs, written at the attention's slots; may be None when the
                attention has no slots.
            sink: where the hidden states go. r_i is copied at the input of block i, before anything is added
                to the residual stream in place.
            want_hidden: compute n_L for `logits`, whether or not the sink asks for it.
            rows: int64 [R] on the device, ascending: the tokens whose output of the last block is wanted. The others
                leave it after their keys and values, and what is captured behind it is that of `rows` alone.
                None: every token, R = T.

        Raises:
            ValueError: the decoder was loaded with fewer blocks than the sink needs, or without its final norm.
        """
        final_capture = sink.final_norm()
        whole = want_hidden or final_capture is not None
        num_blocks = self.spec.num_layers if whole else sink.last_layer
        self._require(num_blocks, final_norm=whole)
        x, residual = F.embedding(token_ids, self.weights.embedding), None
        for i, block in enumerate(self.weights.blocks[:num_blocks]):
            normed, residual = self._add_norm(x, residual, block.input_norm, sink.residual(i))
            heads = self._attention(i, normed, positions, attention, kv)
            if rows is not None and i == num_blocks - 1:
                heads, residual = heads[rows], residual[rows]
            x = block.output(heads)
            normed, residual = self._add_norm(x, residual, block.post_attention_norm, None)
            x = block.down(self.ops.silu_mul(block.gate_up(normed)))
        rows = rows if num_blocks else None
        hidden, _ = self.ops.add_rms_norm(
            x,
            residual,
            self.weights.final_norm if whole else None,
            self.spec.norm_eps,
            capture=_at_rows(sink.residual(num_blocks), rows),
            capture_normed=_at_rows(final_capture, rows),
        )
        return hidden if want_hidden else None

    @torch.inference_mode()
    def logits(self, normed: torch.Tensor) -> torch.Tensor:
        """Logits [B, V] of n_L rows [B, D].

        Raises:
            ValueError: the decoder was loaded without its output embedding.
        """
        if self.weights.lm_head is None:
            raise ValueError("this decoder was loaded without lm_head")
        return F.linear(normed, self.weights.lm_head)

    def _require(self, num_blocks: int, *, final_norm: bool) -> None:
        """Refuses to run a part of the blocks as if it were all of them."""
        if num_blocks > len(self.weights.blocks):
            raise ValueError(f"{num_blocks} blocks are needed; {len(self.weights.blocks)} were loaded")
        if final_norm and self.weights.final_norm is None:
            raise ValueError("this decoder was loaded without its final norm")

    def _add_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, capture: Capture | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        normed, residual = self.ops.add_rms_norm(x, residual, weight, self.spec.norm_eps, capture=capture)
        assert normed is not None, "a norm with a weight gives a normed value"
        return normed, residual

    def _attention(
        self,
        i: int,
        normed: torch.Tensor,
        positions: torch.Tensor,
        attention: AttentionMetadata,
        kv: Sequence[KVCache] | None,
    ) -> torch.Tensor:
        """The attention of block i, its output projection left out: [T, D] to [T, H * Dh]."""
        spec, block = self.spec, self.weights.blocks[i]
        heads = (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)
        qkv = block.qkv(normed).view(-1, sum(heads), spec.head_dim)
        q, k, v = torch.split_with_sizes(qkv, heads, dim=1)
        cache = kv[i] if kv is not None and attention.slot_mapping is not None else None
        k_cache, v_cache = cache if cache is not None else (None, None)
        self.ops.rope_kv_write(
            q,
            k,
            v,
            self.cos,
            self.sin,
            positions,
            q_norm=block.q_norm,
            k_norm=block.k_norm,
            eps=spec.norm_eps,
            k_cache=k_cache,
            v_cache=v_cache,
            slot_mapping=attention.slot_mapping if cache is not None else None,
        )
        out = attend(self.ops, q, k, v, cache, attention, scale=spec.attention_scale, window=spec.windows[i])
        return out.flatten(1)


def _at_rows(capture: Capture | None, rows: torch.Tensor | None) -> Capture | None:
    """The capture of some tokens only."""
    if capture is None or rows is None:
        return capture
    return replace(capture, slot_mapping=capture.slot_mapping[rows])
