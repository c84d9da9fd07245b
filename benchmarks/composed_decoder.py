"""A decoder's forward pass as the bare sequence of kernels and matrix products, on packed documents.

Shapes: T packed tokens of a step, D hidden, H query heads, K key/value heads, Dh head dim, F MLP size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from drillcore_kernels import Ops


@dataclass(frozen=True)
class DecoderShape:
    """The sizes of a Llama-like decoder."""

    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    qk_norm: bool

    @property
    def num_packed_heads(self) -> int:
        """Heads in the packed qkv projection."""
        return self.num_heads + 2 * self.num_kv_heads

    @property
    def flops_per_token(self) -> int:
        """Of the matrix products, without attention."""
        attention = self.hidden * self.head_dim * (self.num_packed_heads + self.num_heads)
        return 2 * self.num_layers * (attention + 3 * self.hidden * self.mlp)


SHAPES = {
    "llama-3.1-8b": DecoderShape(32, 4096, 32, 8, 128, 14336, 128256, qk_norm=False),
    "qwen3-0.6b": DecoderShape(28, 1024, 16, 8, 128, 3072, 151936, qk_norm=True),
    "tiny": DecoderShape(2, 64, 4, 2, 64, 128, 256, qk_norm=True),
}


@dataclass(frozen=True)
class Block:
    """One decoder block's weights, [out, in]."""

    input_norm: Tensor
    qkv: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Weights:
    """A decoder's random weights and its rotary tables."""

    embedding: Tensor
    blocks: tuple[Block, ...]
    cos: Tensor
    sin: Tensor


@dataclass(frozen=True)
class Step:
    """Whole documents packed into one forward pass, on the device."""

    token_ids: Tensor
    positions: Tensor
    cu_seqlens: Tensor
    tiles: Tensor | None
    lengths: tuple[int, ...]


Lap = Callable[[str], None]
"""Called after each operation with its name."""


def random_weights(shape: DecoderShape, num_layers: int, device: torch.device, dtype: torch.dtype) -> Weights:
    """Give `num_layers` blocks with weights around 0 (norms around 1)."""
    generator = torch.Generator(device).manual_seed(0)

    def draw(*size: int, mean: float = 0.0) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device).normal_(mean, 0.02, generator=generator)

    def head_norm() -> Tensor | None:
        return draw(shape.head_dim, mean=1.0) if shape.qk_norm else None

    blocks = tuple(
        Block(
            input_norm=draw(shape.hidden, mean=1.0),
            qkv=draw(shape.num_packed_heads * shape.head_dim, shape.hidden),
            q_norm=head_norm(),
            k_norm=head_norm(),
            output=draw(shape.hidden, shape.num_heads * shape.head_dim),
            post_norm=draw(shape.hidden, mean=1.0),
            gate_up=draw(2 * shape.mlp, shape.hidden),
            down=draw(shape.hidden, shape.mlp),
        )
        for _ in range(num_layers)
    )
    inverse_frequency = 500_000.0 ** -(torch.arange(0, shape.head_dim, 2, device=device) / shape.head_dim)
    angle = torch.arange(4096, device=device)[:, None] * inverse_frequency
    return Weights(draw(shape.vocab, shape.hidden), blocks, angle.cos(), angle.sin())


def make_step(lengths: list[int], shape: DecoderShape, ops: Ops, device: torch.device) -> Step:
    """Give a step of documents with random token ids."""
    cu_seqlens = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    return Step(
        token_ids=torch.randint(shape.vocab, (sum(lengths),), device=device),
        positions=torch.cat([torch.arange(length) for length in lengths]).to(device),
        cu_seqlens=cu_seqlens.to(device),
        tiles=ops.plan_tiles(lengths, lengths, device),
        lengths=tuple(lengths),
    )


def forward(ops: Ops, shape: DecoderShape, weights: Weights, step: Step, lap: Lap) -> Tensor:
    """Give the residual stream [T, D] after the last block."""
    x = F.embedding(step.token_ids, weights.embedding)
    residual: Tensor | None = None
    lap("embedding")
    for block in weights.blocks:
        normed, residual = ops.add_rms_norm(x, residual, block.input_norm, 1e-5)
        lap("add_rms_norm")
        x = attention(ops, shape, weights, block, normed, step, lap)
        normed, residual = ops.add_rms_norm(x, residual, block.post_norm, 1e-5)
        lap("add_rms_norm")
        gate_up = F.linear(normed, block.gate_up)
        lap("gate_up")
        activated = ops.silu_mul(gate_up)
        lap("silu_mul")
        x = F.linear(activated, block.down)
        lap("down")
    _, residual = ops.add_rms_norm(x, residual, None, 1e-5)
    lap("last add")
    return residual


def attention(
    ops: Ops, shape: DecoderShape, weights: Weights, block: Block, normed: Tensor | None, step: Step, lap: Lap
) -> Tensor:
    """Give a block's attention with its projections: [T, D] to [T, D]."""
    heads = (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
    packed = F.linear(normed, block.qkv).view(-1, sum(heads), shape.head_dim)
    q, k, v = packed.split(heads, dim=1)
    lap("qkv")
    norms = {"q_norm": block.q_norm, "k_norm": block.k_norm, "eps": 1e-6}
    ops.rope_kv_write(q, k, v, weights.cos, weights.sin, step.positions, **norms)
    lap("rope")
    out = ops.varlen_prefill(
        q, k, v, step.cu_seqlens, max_seqlen=max(step.lengths), scale=shape.head_dim**-0.5, tiles=step.tiles
    )
    lap("prefill attention")
    out = F.linear(out.flatten(1), block.output)
    lap("output")
    return out


def in_float32(weights: Weights) -> Weights:
    """Give the same weights in float32."""
    blocks = (
        Block(**{name: None if value is None else value.float() for name, value in vars(block).items()})
        for block in weights.blocks
    )
    return Weights(weights.embedding.float(), tuple(blocks), weights.cos, weights.sin)
