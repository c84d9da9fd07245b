"""Speed of the memory-bound kernels in GB/s, beside a plain device-to-device copy and torch's own operations.

    python benchmarks/kernels_elementwise.py --out rows.json     # needs a CUDA device

Bytes count each input read once and each output written once. Shape: Llama-3.1-8B at T = 16,384 tokens.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from conditions import ClockReading, Row, conditions
from kernels_timing import launch_us, median_us, require_green_checks

from drillcore_kernels import Capture, select_ops

T, HIDDEN, MLP, COLUMNS, NUM_BLOCKS = 16384, 4096, 14336, 4, 300
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
DTYPE, DEVICE = torch.bfloat16, torch.device("cuda")
OPS = select_ops(DEVICE, DTYPE)


@dataclass(frozen=True)
class Case:
    """One operation: what moves, and how it is run."""

    name: str
    num_bytes: int
    run: Callable[[], object]
    peer: Callable[[], object] | None = None
    """What torch offers for the same."""


def random(*shape: int) -> torch.Tensor:
    """Give bf16 values around 0."""
    return torch.randn(shape, dtype=DTYPE, device=DEVICE)


def norm_cases() -> Iterator[Case]:
    """The fused norm: alone, and with a capture."""
    x, residual, weight = random(T, HIDDEN), random(T, HIDDEN), random(HIDDEN)
    cache = torch.zeros(NUM_BLOCKS, 64, COLUMNS, HIDDEN, dtype=DTYPE, device=DEVICE)
    stats = torch.zeros(NUM_BLOCKS, 64, COLUMNS, 2, device=DEVICE)
    slots = torch.randperm(T, device=DEVICE) + 64
    capture = Capture(cache, stats, 1, slots)

    def peer() -> object:
        return F.rms_norm(residual.add_(x), (HIDDEN,), weight, 1e-5)

    row = T * HIDDEN * 2
    yield Case("add_rms_norm", 4 * row, lambda: OPS.add_rms_norm(x, residual, weight, 1e-5), peer)
    run = lambda: OPS.add_rms_norm(x, residual, weight, 1e-5, capture=capture)  # noqa: E731
    yield Case("add_rms_norm with capture", 5 * row, run)
    yield Case("gather_rows", 2 * T * COLUMNS * HIDDEN * 2, lambda: OPS.gather_rows(cache, slots))
    offsets = torch.arange(0, T + 1, 1024, dtype=torch.int32, device=DEVICE)
    yield Case("mean_rows", T * COLUMNS * HIDDEN * 2, lambda: OPS.mean_rows(cache, slots, offsets))


def rope_cases() -> Iterator[Case]:
    """Rotation alone, with the write to pages, and with query and key norms."""
    packed = random(T, HEADS + 2 * KV_HEADS, HEAD_DIM)
    q, k, v = packed.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    angle = torch.rand(4096, HEAD_DIM // 2, device=DEVICE)
    cos, sin, positions = angle.cos(), angle.sin(), torch.arange(T, device=DEVICE) % 4096
    k_cache, v_cache = (random(NUM_BLOCKS, 64, KV_HEADS, HEAD_DIM) for _ in range(2))
    pages = {"k_cache": k_cache, "v_cache": v_cache, "slot_mapping": torch.randperm(T, device=DEVICE) + 64}
    norms = {"q_norm": random(HEAD_DIM), "k_norm": random(HEAD_DIM), "eps": 1e-6}
    head = T * HEAD_DIM * 2
    rotated, written = 2 * head * (HEADS + KV_HEADS), head * 3 * KV_HEADS
    arguments = (q, k, v, cos, sin, positions)
    yield Case("rope", rotated, lambda: OPS.rope_kv_write(*arguments))
    yield Case("rope and KV write", rotated + written, lambda: OPS.rope_kv_write(*arguments, **pages))
    yield Case("norms, rope and KV write", rotated + written, lambda: OPS.rope_kv_write(*arguments, **pages, **norms))


def silu_cases() -> Iterator[Case]:
    """The MLP's activation."""
    gate_up = random(T, 2 * MLP)
    gate, up = gate_up.chunk(2, dim=-1)
    yield Case("silu_mul", 3 * T * MLP * 2, lambda: OPS.silu_mul(gate_up), lambda: F.silu(gate) * up)


def copy_case() -> Case:
    """The ceiling: a copy of 1 GiB."""
    source = random(2**29)
    target = torch.empty_like(source)
    return Case("copy", 2 * source.numel() * 2, lambda: target.copy_(source))


def main() -> None:
    """Print one JSON row an operation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="also write the rows here, as a JSON list")
    options = parser.parse_args()
    require_green_checks()
    rows: list[Row] = []
    for case in (copy_case(), *norm_cases(), *rope_cases(), *silu_cases()):
        us = median_us(case.run)
        row: Row = {"kernel": case.name, "us": round(us, 1), "gb_per_s": round(case.num_bytes / us / 1e3)}
        row["launch_us"] = round(launch_us(case.run), 1)
        if case.peer is not None:
            row["torch_us"] = round(median_us(case.peer), 1)
        print(json.dumps(row), flush=True)
        rows.append({**row, "tokens": T, **conditions(DEVICE, ClockReading(DEVICE).result())})
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
