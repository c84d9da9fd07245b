"""Unmodified speculators 0.9, in a virtual environment of its own, against `drillcore serve`.

Its offline command keeps many requests in flight, looks for `<path>.lock`, moves each file away as soon as the answer
is there, and reads and checks it. Its trainer reads each file with hs-connectors' class and deletes it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

PEERS = Path(__file__).parent / "peers"
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1500
NUM_COMPARED = 50
DEMO_LAYERS = (2, 15, 27, 30)
TINY_LAYERS = (0, 1, 3)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 5e-3}

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * TIMEOUT_S)]


@contextmanager
def drillcore_serve(model: Path, layers: tuple[int, ...], storage: Path) -> Iterator[str]:
    """The command with vLLM's two blobs, as a process of its own; gives its endpoint."""
    hf_config = {"eagle_aux_hidden_state_layer_ids": layers}
    speculative = {"method": "extract_hidden_states", "num_speculative_tokens": 1}
    speculative["draft_model_config"] = {"hf_config": hf_config}
    transfer = {"kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer"}
    transfer["kv_connector_extra_config"] = {"shared_storage_path": str(storage)}
    blobs = ["--speculative_config", json.dumps(speculative), "--kv_transfer_config", json.dumps(transfer)]
    command = [sys.executable, "-m", "drillcore_server.cli", "serve", str(model), *blobs]
    process = subprocess.Popen(
        [*command, "--no-enable-chunked-prefill", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"] + "/v1"
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        process.stdout.close()


def rows_of(model: Path, count: int, longest: int) -> list[list[int]]:
    """Random ids of the model's vocabulary."""
    vocab_size = json.loads((model / "config.json").read_text())["vocab_size"]
    pick = random.Random(5)
    return [[pick.randrange(vocab_size) for _ in range(pick.randint(1, longest))] for _ in range(count)]


def run_peer(python: Path, *arguments: Any) -> str:
    """Proxies of this machine are not for this machine's own server."""
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HF_HUB_OFFLINE": "1"}
    command = [python, *map(str, arguments)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@pytest.fixture(scope="session")
def assert_states(reference_states: Any, row_criterion: Callable[..., None]) -> Callable[..., None]:
    """`assert_states(model, layers, folder, rows)`: every file has its ids and shape; of some, every state is right."""

    def check(model: Path, layers: tuple[int, ...], folder: Path, rows: list[list[int]]) -> None:
        paths = [folder / f"hs_{index}.safetensors" for index in range(len(rows))]
        assert sorted(folder.glob("*")) == sorted(paths)
        compared = set(random.Random(1).sample(range(len(rows)), NUM_COMPARED))
        for index, (path, row) in enumerate(zip(paths, rows, strict=True)):
            tensors = load_file(path)
            states = tensors["hidden_states"]
            assert tensors["token_ids"].tolist() == row
            assert states.shape[:2] == (len(row), len(layers))
            if index in compared:
                expected = reference_states(model, row).residual
                row_criterion(states, torch.stack([expected[i] for i in layers], dim=1), TOLERANCE[states.dtype])

    return check


@pytest.fixture(scope="module", params=["demo", "tiny"])
def workload(request: pytest.FixtureRequest, tiny_folder: Path) -> tuple[Path, tuple[int, ...], list[list[int]]]:
    """The model, its layers, and the rows."""
    if request.param == "tiny":
        return tiny_folder, TINY_LAYERS, rows_of(tiny_folder, 2000, 64)
    model = request.getfixturevalue("demo_model")
    return model, DEMO_LAYERS, rows_of(model, 200, 64)


@pytest.mark.parametrize("concurrency", [32, 256])
def test_its_offline_command_gets_every_file_right(
    peer_python: Path,
    workload: tuple[Path, tuple[int, ...], list[list[int]]],
    assert_states: Callable[..., None],
    tmp_path: Path,
    concurrency: int,
) -> None:
    model, layers, rows = workload
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    run_peer(peer_python, PEERS / "save_rows.py", tmp_path / "rows.json", tmp_path / "dataset")

    with drillcore_serve(model, layers, tmp_path / "storage") as endpoint:
        command = [peer_python.with_name("speculators"), "generate-offline-data", "--validate-outputs"]
        command += ["--endpoint", endpoint, "--preprocessed-data", tmp_path / "dataset", "--output", tmp_path / "out"]
        run_peer(peer_python, *command, "--concurrency", concurrency, "--fail-on-error", "--max-retries", 0)

    assert list((tmp_path / "storage").iterdir()) == []
    assert_states(model, layers, tmp_path / "out", rows)


def test_its_trainer_fetches_on_the_fly(
    peer_python: Path, workload: tuple[Path, tuple[int, ...], list[list[int]]], tmp_path: Path
) -> None:
    model, layers, rows = workload
    (tmp_path / "rows.json").write_text(json.dumps(rows[:NUM_COMPARED]))
    hidden = json.loads((model / "config.json").read_text())["hidden_size"]

    with drillcore_serve(model, layers, tmp_path / "storage") as endpoint:
        fetched = run_peer(peer_python, PEERS / "fetch_on_the_fly.py", tmp_path / "rows.json", endpoint, tmp_path)

    assert json.loads(fetched) == [[len(row), len(layers), hidden] for row in rows[:NUM_COMPARED]]
    assert list((tmp_path / "storage").iterdir()) == []
