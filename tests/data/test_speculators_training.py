"""speculators 0.9 trains on a job's output: its prepared dataset in, layout PerSample out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import drillcore

ROOT = Path(__file__).parents[2]
PEERS = Path(__file__).parent / "peers"
MAX_LENGTH = 256
NUM_CONVERSATIONS = 6
LAYERS = [2, 15, 28, 30]
"""Three for the draft, and what enters the final norm: the trainer takes the last one as the verifier's."""

pytestmark = [pytest.mark.long, pytest.mark.demo, pytest.mark.timeout(1800)]


def run_peer(python: Path, script: str, *arguments: object) -> str:
    command = [python, PEERS / script, *map(str, arguments)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


@pytest.fixture(scope="module")
def trained_on(
    peer_python: Path, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], drillcore.Output]:
    """What speculators says of the output of a job over the dataset that it prepared, and that output."""
    folder = tmp_path_factory.mktemp("speculators")
    conversations = [
        {"conversations": json.loads(line)["messages"]}
        for line in (ROOT / "examples/data/quickstart.jsonl").read_text().splitlines()[:NUM_CONVERSATIONS]
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in conversations))
    run_peer(peer_python, "speculators_prepare.py", demo_model, folder / "rows.jsonl", MAX_LENGTH, folder / "prepared")
    job = {
        "apiVersion": "drillcore.dev/v1alpha1",
        "kind": "ExtractionJob",
        "metadata": {"name": "draft"},
        "spec": {
            "model": {"uri": demo_model.as_uri()},
            "dataset": {
                "uri": (folder / "prepared").as_uri(),
                "columns": {"inputIds": "input_ids", "lossMask": "loss_mask"},
            },
            "extraction": {"layers": LAYERS, "storeDtype": "BFloat16"},
            "output": {"claimName": "out", "layout": "PerSample"},
            "engine": {"maxModelLen": MAX_LENGTH},
        },
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    command = [sys.executable, "-m", "drillcore_server.cli", "run", "job.yaml", "--output", str(folder / "out")]
    result = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    report = run_peer(peer_python, "speculators_training.py", folder / "prepared", folder / "out/samples", MAX_LENGTH)
    return json.loads(report), drillcore.open(folder / "out")


def test_its_checks_pass_on_every_file(trained_on: tuple[dict[str, Any], drillcore.Output]) -> None:
    report, output = trained_on
    assert report["indices"] == output.rows.tolist() == list(range(len(report["items"])))
    assert len(output) >= NUM_CONVERSATIONS
    assert report["corrupt"] == {}


def test_its_dataset_gives_the_states_that_the_job_stored(trained_on: tuple[dict[str, Any], drillcore.Output]) -> None:
    report, output = trained_on
    hidden = output.manifest.hidden_size
    assert report["dtype"] == "torch.bfloat16"
    for item, sample in zip(report["items"], output, strict=True):
        tokens = len(sample.token_ids)
        states = sample.hidden_states.astype(np.float64)
        assert item["input_ids"] == sample.token_ids.tolist()
        assert sample.loss_mask is not None
        assert item["loss_mask"] == sample.loss_mask.tolist()
        assert item["hidden_states"] == [[tokens, 3 * hidden], pytest.approx(states[:, :-1].sum())]
        assert item["last"] == [[tokens, hidden], pytest.approx(states[:, -1].sum())]
    assert report["batch"]["hidden_states"] == [1, MAX_LENGTH, 3 * hidden]
