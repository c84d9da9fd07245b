"""The yardstick: the bare sequence of kernels and matrix products of a decoder's forward pass.

No scheduler, no capture, no KV cache, no copies: documents are packed into steps beforehand, everything is on
the device, and what is timed is embedding, blocks and nothing else. An engine's forward pass can come close to
this number and not beyond it, on the same card in the same run.

    python benchmarks/composed_forward.py --shape llama-3.1-8b --shape qwen3-0.6b --out rows.json
    python benchmarks/composed_forward.py --smoke          # a tiny shape, on the CPU too
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from composed_decoder import SHAPES, DecoderShape, Lap, Step, Weights, forward, in_float32, make_step, random_weights
from conditions import ClockReading, Row, conditions
from documents import NUM_DOCUMENTS, document_lengths, pack

from drillcore_kernels import Ops, select_ops

TOKENS_PER_STEP = 8192
MIN_COSINE = 0.999


def check_parity(shape: DecoderShape, device: torch.device, dtype: torch.dtype) -> float:
    """Give the worst row's cosine between two blocks by the kernels and by float32 references.

    Raises:
        SystemExit: it is below MIN_COSINE; a wrong forward pass has no speed.
    """
    ops, reference = select_ops(device, dtype), select_ops(device, torch.float32)
    weights = random_weights(shape, 2, device, dtype)
    step = make_step([300, 65, 1, 64], shape, ops, device)
    out = forward(ops, shape, weights, step, lambda _: None)
    expected = forward(reference, shape, in_float32(weights), step, lambda _: None)
    cosine = F.cosine_similarity(out.float(), expected, dim=-1).min().item()
    if not cosine >= MIN_COSINE:
        raise SystemExit(f"parity failed: cosine {cosine} of the worst row; at least {MIN_COSINE} needed")
    return cosine


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
