"""The yardstick: the bare sequence of kernels and matrix products of a decoder's forward pass.

No scheduler, no capture, no KV cache, no copies: documents are packed into steps beforehand, everything is on
the device, and what is timed is embedding, blocks and nothing else. An engine's forward pass can come close to
this number and not beyond it, on the same card in the same run.

    python benchmarks/composed_forward.py --shape llama-3.1-8b --shape qwen3-0.6b --out rows.json
    python benchmarks/composed_forward.py --smoke          # a tiny shape, on the CPU too

Shapes: T packed tokens of a step, D hidden, H query heads, K key/value heads, Dh head dim, F MLP size.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from conditions import ClockReading, Row, conditions
from torch import Tensor

from drillcore_kernels import Ops, select_ops

TOKENS_PER_STEP = 8192
NUM_DOCUMENTS = 512
MIN_COSINE = 0.999


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


def document_lengths(seed: int, count: int = NUM_DOCUMENTS) -> list[int]:
    """Give the lengths of W1's documents in tokens: lognormal, median 900, sigma 0.8, within 32..4096."""
    drawn = np.random.default_rng(seed).lognormal(np.log(900.0), 0.8, count)
    return [int(length) for length in drawn.clip(32, 4096)]


def pack(lengths: list[int], budget: int) -> list[list[int]]:
    """Give the documents of each step, first fit decreasing, so that steps are nearly full."""
    steps: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        step = next((step for step in steps if sum(step) + length <= budget), None)
        if step is None:
            steps.append([length])
        else:
            step.append(length)
    return steps


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


def check_parity(shape: DecoderShape, device: torch.device, dtype: torch.dtype) -> float:
    """Give the worst row's cosine between two blocks by the kernels and by float32 references.

    Raises:
        SystemExit: it is below MIN_COSINE; a wrong forward pass has no speed.
    """
    ops, reference = select_ops(device, dtype), select_ops(device, torch.float32)
    weights = random_weights(shape, 2, device, dtype)
    step = make_step([300, 65, 1, 64], shape, ops, device)
    out = forward(ops, shape, weights, step, lambda _: None)
    expected = forward(reference, shape, _in_float32(weights), step, lambda _: None)
    cosine = F.cosine_similarity(out.float(), expected, dim=-1).min().item()
    if not cosine >= MIN_COSINE:
        raise SystemExit(f"parity failed: cosine {cosine} of the worst row; at least {MIN_COSINE} needed")
    return cosine


def _in_float32(weights: Weights) -> Weights:
    blocks = (
        Block(**{name: None if value is None else value.float() for name, value in vars(block).items()})
        for block in weights.blocks
    )
    return Weights(weights.embedding.float(), tuple(blocks), weights.cos, weights.sin)


def time_pieces(ops: Ops, shape: DecoderShape, weights: Weights, steps: list[Step]) -> dict[str, float]:
    """Give the microseconds of each operation in a step, over all blocks, as the mean of eight of the steps."""
    names: list[str] = []
    events: list[torch.cuda.Event] = []

    def lap(name: str) -> None:
        names.append(name)
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()

    sample = steps[:: max(1, len(steps) // 8)]
    for step in sample:
        lap("start")
        forward(ops, shape, weights, step, lap)
    torch.cuda.synchronize()
    totals = dict.fromkeys(names, 0.0)
    for name, before, after in zip(names[1:], events, events[1:], strict=False):
        totals[name] += 1e3 * before.elapsed_time(after) / len(sample)
    del totals["start"]
    return {name: round(total, 1) for name, total in totals.items()}


def measure(name: str, num_sets: int, device: torch.device, dtype: torch.dtype) -> Iterator[Row]:
    """Give one row for `num_sets` document sets of W1 run back to back."""
    shape = SHAPES[name]
    cosine = check_parity(shape, device, dtype)
    ops = select_ops(device, dtype)
    weights = random_weights(shape, shape.num_layers, device, dtype)
    count = NUM_DOCUMENTS if device.type == "cuda" else 8
    sets = [document_lengths(seed, count) for seed in range(num_sets)]
    steps = [make_step(step, shape, ops, device) for lengths in sets for step in pack(lengths, TOKENS_PER_STEP)]
    no_lap: Lap = lambda _: None  # noqa: E731
    for step in steps[:3]:
        forward(ops, shape, weights, step, no_lap)
    _synchronize(device)
    start = time.perf_counter()
    for step in steps:
        forward(ops, shape, weights, step, no_lap)
    issued_s = time.perf_counter() - start
    clocks = ClockReading(device)
    _synchronize(device)
    seconds = time.perf_counter() - start
    num_tokens = sum(len(step.token_ids) for step in steps)
    yield {
        "workload": f"W1 documents, {name} shape, {num_sets} sets",
        "system": "composed-forward",
        "tokens_per_s": round(num_tokens / seconds, 1),
        "samples_per_s": round(num_sets * count / seconds, 2),
        "seconds": round(seconds, 3),
        "bytes": 0,
        "num_tokens": num_tokens,
        "num_steps": len(steps),
        "issued_seconds": round(issued_s, 3),
        "matmul_tflops_per_s": round(num_tokens * shape.flops_per_token / seconds / 1e12, 1),
        "parity_cosine": round(cosine, 6),
        "dtype": str(dtype),
        "ops": ops.name,
        "pieces_us": time_pieces(ops, shape, weights, steps) if device.type == "cuda" else {},
        **conditions(device, clocks.result()),
    }


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Measure the shapes asked for and print one JSON row a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", choices=SHAPES, help="may be repeated")
    parser.add_argument("--sets", type=int, default=1, help="document sets, run back to back")
    parser.add_argument("--out", type=Path, help="also write the rows here, as a JSON list")
    parser.add_argument("--smoke", action="store_true", help="the tiny shape, where no GPU is needed")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not options.smoke:
        sys.exit("needs a CUDA device; --smoke runs a tiny shape anywhere")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    names = ["tiny"] if options.smoke else options.shape or ["llama-3.1-8b"]
    with torch.inference_mode():
        rows = [row for name in names for row in measure(name, options.sets, device, dtype)]
    for row in rows:
        print(json.dumps(row))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
