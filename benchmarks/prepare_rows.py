"""How fast rows become tokens, beside transformers on the same rows in the same run.

    python benchmarks/prepare_rows.py [--model DIR] [--rows 20000]

Conversations of examples/data, repeated, with assistant masks. Ours goes from the file through a feed, in a thread and
in a process of its own; transformers' `apply_chat_template` gets conversations that are parsed already, a batch at a
time, and makes no masks. Prints one line of JSON; ends with 1 when a GPU that takes 450,000 tokens/s would need more
than the 4 CPUs that a job asks for by default.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from conditions import conditions
from transformers import AutoTokenizer

from drillcore_server.data import RowFeed, RowPreparer, open_dataset, prepared_batches
from drillcore_server.data.feed import Batch
from drillcore_server.data.feed_process import FeedTask, ProcessFeed
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import DatasetSource

ROOT = Path(__file__).parents[1]
GPU_TOKENS_PER_S = 450_000
BATCH_ROWS = 256
MAX_CPUS = 4
"""spec.server.resources.cpu by default."""


def main() -> int:
    """Measure the three, print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=ROOT / "volumes/models/smollm2-135m-instruct")
    parser.add_argument("--rows", type=int, default=20_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        lines = (ROOT / "examples/data/quickstart.jsonl").read_text().splitlines(keepends=True)
        path.write_text("".join(islice(cycle(lines), arguments.rows)))
        rates = _rates(arguments.model, path)
    cpus_needed, lock_share = (rates.pop(name) * GPU_TOKENS_PER_S for name in ("cpuSeconds", "lockSeconds"))
    result = {
        "benchmark": "prepare_rows",
        "tokensPerSecond": {name: round(rate) for name, rate in rates.items()},
        "ratio": round(max(rates["thread"], rates["process"]) / rates["transformers"], 3),
        "cpusAt450k": round(cpus_needed, 2),
        "lockShareAt450k": round(lock_share, 2),
        "cpus": os.cpu_count(),
        **conditions(torch.device("cpu"), f"{os.cpu_count()} CPUs"),
    }
    print(json.dumps(result))
    return 0 if cpus_needed <= MAX_CPUS else 1


def _rates(model: Path, path: Path) -> dict[str, float]:
    """Tokens per second of each; and of ours, for one token, CPU seconds and seconds with the interpreter's lock."""
    source = DatasetSource.model_validate({"uri": f"file://{path}", "columns": {"messages": "messages", "id": "id"}})
    dataset = open_dataset(source, Volumes(path.parent))
    rows = range(dataset.num_rows)
    preparer = RowPreparer(model, source, 8192)
    began, thread_began = time.process_time(), time.thread_time()
    num_tokens = _num_tokens(prepared_batches(dataset, preparer, rows))
    costs = {
        "cpuSeconds": (time.process_time() - began) / num_tokens,
        "lockSeconds": (time.thread_time() - thread_began) / num_tokens,
    }
    with RowFeed(prepared_batches(dataset, preparer, rows)) as feed:
        thread = _rate(feed)
    with ProcessFeed(FeedTask(dataset, RowPreparer(model, source, 8192), rows)) as feed:
        # The child's start runs beside the loading of a model: it is not part of the rate.
        next(feed)
        process = _rate(feed)
    return {"thread": thread, "process": process, "transformers": _transformers_rate(model, path)} | costs


def _rate(batches: Iterable[Batch]) -> float:
    began = time.perf_counter()
    return _num_tokens(batches) / (time.perf_counter() - began)


def _num_tokens(batches: Iterable[Batch]) -> int:
    return sum(row.original_tokens for batch in batches for row in batch if hasattr(row, "original_tokens"))


def _transformers_rate(model: Path, path: Path) -> float:
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    conversations = [json.loads(line)["messages"] for line in path.read_text().splitlines()]
    began = time.perf_counter()
    num_tokens = 0
    for batch in (conversations[start : start + BATCH_ROWS] for start in range(0, len(conversations), BATCH_ROWS)):
        num_tokens += sum(map(len, tokenizer.apply_chat_template(batch, return_dict=True)["input_ids"]))
    return num_tokens / (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
