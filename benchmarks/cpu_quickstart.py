"""Quickstart on a CPU: tokens/s of the engine beside transformers on the same cores, in one process, in turn.

The peer is what a careful user would write: AutoModel without lm_head, sdpa attention, rows sorted by length, padded
batches, the best batch size of 4, 8, 16 and 32. Both start from token ids and end with the wanted states in host
memory, in the store dtype. Every round runs both, in alternating order; the ratio is taken round by round.

    python benchmarks/cpu_quickstart.py volumes/models/smollm2-135m-instruct examples/data/quickstart.jsonl
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from transformers import AutoModel

from drillcore_server.connector.list_sink import ListSink
from drillcore_server.data.dataset import open_dataset
from drillcore_server.data.preparer import RowPreparer
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.engine import Engine
from drillcore_server.engine.offline import state_shape
from drillcore_server.engine.request import Request
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.spec import ModelSpec
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import Columns, DatasetSource
from drillcore_spec.enums import LayerConvention

LAYERS = (2, 15, 27, 30)
BATCH_SIZES = (4, 8, 16, 32)


def token_ids_of(model: Path, data: Path) -> list[torch.Tensor]:
    """The rows of a JSONL of conversations as token ids."""
    source = DatasetSource(uri=data.absolute().as_uri(), columns=Columns(messages="messages"))
    dataset = open_dataset(source, Volumes(Path.cwd()))
    preparer = RowPreparer(model, source, 8192)
    return [preparer.prepare(row).token_ids for row in dataset.read(range(dataset.num_rows))]


def engine_run(model: Path, rows: list, budget: int) -> Callable[[], float]:
    """One pass of the engine over all rows; gives its seconds."""
    spec = ModelSpec.from_folder(model)
    plan = CapturePlan.resolve(LAYERS, LayerConvention.RESIDUAL_IN, False, spec.num_layers, spec.hidden_size)
    decoder = load_decoder(
        model, spec, device="cpu", dtype=torch.float32, num_layers=plan.last_layer, lm_head=False, final_norm=False
    )
    config = EngineConfig(max_model_len=8192, num_blocks=600, max_num_batched_tokens=budget, prefix_caching=False)

    def run() -> float:
        engine = Engine(
            decoder, plan, config, ListSink(state_shape(decoder, plan, torch.bfloat16)), store_dtype=torch.bfloat16
        )
        started = time.perf_counter()
        engine.run(Request(i, ids) for i, ids in enumerate(rows))
        return time.perf_counter() - started

    return run


def transformers_run(model: Path, rows: list, batch_size: int) -> Callable[[], float]:
    """One pass of transformers over all rows; gives its seconds."""
    peer = AutoModel.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa").eval()
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))

    @torch.inference_mode()
    def run() -> float:
        started = time.perf_counter()
        kept = {}
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size]
            longest = max(len(rows[i]) for i in batch)
            ids = torch.zeros(len(batch), longest, dtype=torch.int64)
            mask = torch.zeros_like(ids)
            for at, i in enumerate(batch):
                ids[at, : len(rows[i])] = torch.as_tensor(rows[i])
                mask[at, : len(rows[i])] = 1
            states = peer(ids, attention_mask=mask, output_hidden_states=True, use_cache=False).hidden_states
            for at, i in enumerate(batch):
                kept[i] = torch.stack([states[layer][at, : len(rows[i])].bfloat16() for layer in LAYERS], dim=1)
        return time.perf_counter() - started

    return run


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=2048, help="token budget of an engine step")
    arguments = parser.parse_args()
    rows = token_ids_of(arguments.model, arguments.data)
    tokens = sum(len(row) for row in rows)
    peers = {size: transformers_run(arguments.model, rows, size) for size in BATCH_SIZES}
    best = min(peers, key=lambda size: min(peers[size]() for _ in range(1)))
    ours, theirs = engine_run(arguments.model, rows, arguments.budget), peers[best]
    ours()
    pairs = []
    for round_ in range(arguments.rounds):
        runs = [ours, theirs] if round_ % 2 == 0 else [theirs, ours]
        seconds = {run: run() for run in runs}
        pairs.append((tokens / seconds[ours], tokens / seconds[theirs]))
    print(
        json.dumps(
            {
                "workload": "quickstart",
                "tokens": tokens,
                "drillcore_tokens_per_s": round(statistics.median(a for a, _ in pairs), 1),
                "transformers_tokens_per_s": round(statistics.median(b for _, b in pairs), 1),
                "ratio": round(statistics.median(a / b for a, b in pairs), 3),
                "ratios": [round(a / b, 3) for a, b in pairs],
                "transformers_batch_size": best,
                "budget": arguments.budget,
                "threads": torch.get_num_threads(),
                "device": platform.processor() or platform.machine(),
                "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            }
        )
    )


if __name__ == "__main__":
    main()
