"""Quickstart on a CPU: tokens/s of the engine beside transformers on the same cores, in one process, in turn.

The peer is what a careful user would write: AutoModel without lm_head, sdpa attention, rows sorted by length, padded
batches, the best batch size of 4, 8, 16 and 32. Both start from token ids and end with the wanted states in host
memory, in the store dtype. Every round runs both, in alternating order; the ratio is taken round by round, of wall
time and of CPU time: the second is the one to trust on a machine that has other work.

    python benchmarks/cpu_quickstart.py volumes/models/smollm2-135m-instruct examples/data/quickstart.jsonl
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Took:
    """How long one pass took."""

    wall_s: float
    cpu_s: float


class Watch:
    """Measures from its construction on."""

    def __init__(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()

    def took(self) -> Took:
        """Wall and CPU time until now."""
        return Took(time.perf_counter() - self._wall_s, time.process_time() - self._cpu_s)


def token_ids_of(model: Path, data: Path) -> list[torch.Tensor]:
    """The rows of a JSONL of conversations as token ids."""
    source = DatasetSource(uri=data.absolute().as_uri(), columns=Columns(messages="messages"))
    dataset = open_dataset(source, Volumes(Path.cwd()))
    preparer = RowPreparer(model, source, 8192)
    return [preparer.prepare(row).token_ids for row in dataset.read(range(dataset.num_rows))]


def engine_run(model: Path, rows: list, budget: int) -> Callable[[], Took]:
    """One pass of the engine over all rows; gives what it took."""
    spec = ModelSpec.from_folder(model)
    plan = CapturePlan.resolve(LAYERS, LayerConvention.RESIDUAL_IN, False, spec.num_layers, spec.hidden_size)
    decoder = load_decoder(
        model, spec, device="cpu", dtype=torch.float32, num_layers=plan.last_layer, lm_head=False, final_norm=False
    )
    config = EngineConfig(max_model_len=8192, num_blocks=600, max_num_batched_tokens=budget, prefix_caching=False)

    def run() -> Took:
        engine = Engine(
            decoder, plan, config, ListSink(state_shape(decoder, plan, torch.bfloat16)), store_dtype=torch.bfloat16
        )
        watch = Watch()
        engine.run(Request(i, ids) for i, ids in enumerate(rows))
        return watch.took()

    return run


def transformers_run(model: Path, rows: list, batch_size: int) -> Callable[[], Took]:
    """One pass of transformers over all rows; gives what it took."""
    peer = AutoModel.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa").eval()
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))

    @torch.inference_mode()
    def run() -> Took:
        watch = Watch()
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
        return watch.took()

    return run


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-rows", type=int, help="only the first rows")
    parser.add_argument("--budget", type=int, default=1024, help="token budget of an engine step")
    arguments = parser.parse_args()
    rows = token_ids_of(arguments.model, arguments.data)[: arguments.max_rows]
    peers = {size: transformers_run(arguments.model, rows, size) for size in BATCH_SIZES}
    best = min(peers, key=lambda size: peers[size]().cpu_s)
    ours, theirs = engine_run(arguments.model, rows, arguments.budget), peers[best]
    ours()
    pairs: list[tuple[Took, Took]] = []
    for round_ in range(arguments.rounds):
        runs = [ours, theirs] if round_ % 2 == 0 else [theirs, ours]
        took = {run: run() for run in runs}
        pairs.append((took[ours], took[theirs]))
    print(json.dumps(report(sum(len(row) for row in rows), pairs, best, arguments.budget)))


def report(tokens: int, pairs: list[tuple[Took, Took]], batch_size: int, budget: int) -> dict[str, object]:
    """The figures of all rounds; a ratio above 1 is in favour of drillcore."""
    return {
        "workload": "quickstart",
        "tokens": tokens,
        "drillcore_tokens_per_s": round(statistics.median(tokens / a.wall_s for a, _ in pairs), 1),
        "transformers_tokens_per_s": round(statistics.median(tokens / b.wall_s for _, b in pairs), 1),
        "wall_ratios": [round(b.wall_s / a.wall_s, 3) for a, b in pairs],
        "cpu_ratios": [round(b.cpu_s / a.cpu_s, 3) for a, b in pairs],
        "cpu_ratio": round(statistics.median(b.cpu_s / a.cpu_s for a, b in pairs), 3),
        "transformers_batch_size": batch_size,
        "budget": budget,
        "threads": torch.get_num_threads(),
        "device": platform.processor() or platform.machine(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


if __name__ == "__main__":
    main()
