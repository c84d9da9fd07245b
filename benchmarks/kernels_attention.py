"""Speed of the attention kernels in TFLOP/s (prefill, extend) and GB/s (decode), beside torch's attention.

    python benchmarks/kernels_attention.py --out rows.json             # needs a CUDA device
    python benchmarks/kernels_attention.py --tiles --out rows.json     # how the tile table was chosen

FLOPs count the causal half only: 4 * Hq * Dh * n * (n + 1) / 2 for each document of n tokens.
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
from documents import document_lengths
from kernels_timing import launch_us, median_us, require_green_checks
from torch import Tensor
from triton.errors import TritonError

from drillcore_kernels import select_ops
from drillcore_kernels.attention import launch
from drillcore_kernels.attention.tiles import TileConfig

T, BLOCK_SIZE = 16384, 64
DTYPE, DEVICE = torch.bfloat16, torch.device("cuda")
OPS = select_ops(DEVICE, DTYPE)
HEADS = {"8B": (32, 8, 128), "0.6B": (16, 8, 128), "head 64": (32, 8, 64), "head 256": (16, 8, 256)}
CONFIGS = {
    128: [TileConfig(4, 2, 3), TileConfig(4, 3, 5), TileConfig(4, 4, 7), TileConfig(8, 3, 5)],
    64: [TileConfig(4, 2, 3), TileConfig(4, 3, 5), TileConfig(4, 4, 7)],
    256: [TileConfig(8, 2, 3), TileConfig(4, 2, 3), TileConfig(8, 1, 2)],
}


@dataclass(frozen=True)
class Batch:
    """Packed queries, keys and values of documents, and the same keys and values in pages."""

    lengths: list[int]
    q: Tensor
    k: Tensor
    v: Tensor
    k_cache: Tensor
    v_cache: Tensor
    table: Tensor
    cu_seqlens: Tensor
    seq_lens: Tensor
    tiles: Tensor | None

    @property
    def flops(self) -> int:
        """Of causal attention over these documents."""
        return sum(2 * self.q.shape[1] * self.q.shape[2] * n * (n + 1) for n in self.lengths)


def ordinary_lengths() -> list[int]:
    """Give W1's documents until they fill T tokens, the last one cut."""
    lengths: list[int] = []
    for length in document_lengths(0):
        lengths.append(min(length, T - sum(lengths)))
        if sum(lengths) == T:
            break
    return lengths


def make_batch(lengths: list[int], heads: tuple[int, int, int]) -> Batch:
    """Give random values in fresh rows and in shuffled pages."""
    num_heads, num_kv_heads, head_dim = heads
    packed = torch.randn(sum(lengths), num_heads + 2 * num_kv_heads, head_dim, dtype=DTYPE, device=DEVICE)
    q, k, v = packed.split([num_heads, num_kv_heads, num_kv_heads], dim=1)
    counts = [-(-length // BLOCK_SIZE) for length in lengths]
    order = (torch.randperm(sum(counts)) + 1).to(torch.int32)
    table = torch.zeros(len(lengths), max(counts), dtype=torch.int32)
    for sequence, blocks in enumerate(order.split(counts)):
        table[sequence, : len(blocks)] = blocks
    shape = (sum(counts) + 1, BLOCK_SIZE, num_kv_heads, head_dim)
    k_cache, v_cache = (torch.randn(shape, dtype=DTYPE, device=DEVICE) for _ in range(2))
    seq_lens = torch.tensor(lengths, dtype=torch.int32)
    cu_seqlens = F.pad(seq_lens.cumsum(0, dtype=torch.int32), (1, 0))
    tiles = OPS.plan_tiles(lengths, lengths, DEVICE)
    on_device = (x.to(DEVICE) for x in (table, cu_seqlens, seq_lens))
    return Batch(lengths, q, k, v, k_cache, v_cache, *on_device, tiles)


def prefill(batch: Batch) -> Tensor:
    """Attend to fresh rows."""
    limits = {"max_seqlen": max(batch.lengths), "scale": 0.1, "tiles": batch.tiles}
    return OPS.varlen_prefill(batch.q, batch.k, batch.v, batch.cu_seqlens, **limits)


def extend(batch: Batch) -> Tensor:
    """Attend to the same keys through pages."""
    longest = max(batch.lengths)
    limits = {"max_seqlen_q": longest, "max_seqlen": longest, "scale": 0.1, "tiles": batch.tiles}
    pages = (batch.k_cache, batch.v_cache, batch.table, batch.cu_seqlens, batch.seq_lens)
    return OPS.paged_extend(batch.q, *pages, **limits)


def torch_peer(batch: Batch) -> Callable[[], object] | None:
    """Give torch's fused attention for one document; it has none for many of unequal lengths with GQA."""
    if len(batch.lengths) > 1:
        return None
    q, k, v = (x.transpose(0, 1).unsqueeze(0).contiguous() for x in (batch.q, batch.k, batch.v))
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def prefill_rows() -> Iterator[Row]:
    """Prefill and extend on ordinary documents and on one long one."""
    for name, heads in HEADS.items():
        for documents, lengths in (("ordinary", ordinary_lengths()), ("one long", [T])):
            batch = make_batch(lengths, heads)
            peer = torch_peer(batch)
            for operation in (prefill, extend):
                us = median_us(lambda operation=operation, batch=batch: operation(batch))
                row: Row = {"kernel": operation.__name__, "heads": name, "documents": documents, "us": round(us, 1)}
                row["tflops_per_s"] = round(batch.flops / us / 1e6, 1)
                row["launch_us"] = round(launch_us(lambda operation=operation, batch=batch: operation(batch)), 1)
                if peer is not None:
                    row["torch_us"] = round(median_us(peer), 1)
                yield row


def decode_rows() -> Iterator[Row]:
    """Decode of 1 and 64 sequences of 2,048 tokens."""
    for name, heads in HEADS.items():
        for num_sequences in (1, 64):
            batch = make_batch([2048] * num_sequences, heads)
            q = batch.q[:num_sequences].contiguous()
            pages = (batch.k_cache, batch.v_cache, batch.table, batch.seq_lens)
            us = median_us(lambda q=q, pages=pages: OPS.paged_decode(q, *pages, scale=0.1))
            num_bytes = 2 * num_sequences * 2048 * heads[1] * heads[2] * 2
            row: Row = {"kernel": "decode", "heads": name, "documents": f"{num_sequences} x 2048", "us": round(us, 1)}
            yield {**row, "gb_per_s": round(num_bytes / us / 1e3)}


def tile_rows() -> Iterator[Row]:
    """Prefill and extend under each configuration of `CONFIGS`."""
    for name, heads in HEADS.items():
        batch = make_batch(ordinary_lengths(), heads)
        for config in CONFIGS[heads[2]]:
            launch.tile_config = lambda head_dim, device, config=config: config
            for operation in (prefill, extend):
                row: Row = {"kernel": operation.__name__, "heads": name, "tile": vars(config)}
                try:
                    us = median_us(lambda operation=operation, batch=batch: operation(batch))
                except TritonError as error:
                    yield {**row, "error": str(error)[:200]}
                    continue
                yield {**row, "us": round(us, 1), "tflops_per_s": round(batch.flops / us / 1e6, 1)}


def main() -> None:
    """Print one JSON row a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", action="store_true", help="try the tile configurations instead")
    parser.add_argument("--out", type=Path, help="also write the rows here, as a JSON list")
    options = parser.parse_args()
    require_green_checks()
    rows: list[Row] = []
    for row in tile_rows() if options.tiles else (*prefill_rows(), *decode_rows()):
        print(json.dumps(row), flush=True)
        rows.append({**row, **conditions(DEVICE, ClockReading(DEVICE).result())})
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
