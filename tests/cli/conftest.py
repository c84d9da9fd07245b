"""The `drillcore` command as a person types it, on a job over a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from drillcore_server.estimate import Estimate, estimate_job
from drillcore_server.volumes import Volumes
from drillcore_spec import parse_spec

NUM_ROWS = 40
TIMEOUT_S = 240


@dataclass
class Workplace:
    """A folder with a job file, its volumes, and an output."""

    folder: Path
    job: dict

    @property
    def output(self) -> Path:
        return self.folder / "volumes" / "out" / "states"

    def set(self, path: str, value: object) -> None:
        """Sets one field of the job's spec."""
        *parents, last = path.split(".")
        target = self.job["spec"]
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value

    def drillcore(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=TIMEOUT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        (self.folder / "job.yaml").write_text(yaml.safe_dump(self.job))
        return subprocess.Popen(
            [sys.executable, "-m", "drillcore_server.cli", *arguments],
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run_json(self, *arguments: str) -> dict:
        """`drillcore run` with `--json`; its summary."""
        return json.loads(self.drillcore("run", "job.yaml", "--json", *arguments).stdout)

    def run_counts(self) -> dict[str, int]:
        """The counts of a run that must succeed."""
        summary = self.run_json()
        assert summary["code"] == 0, summary
        return summary["counts"]

    def estimate(self) -> Estimate:
        """What `drillcore estimate` prints, without a process of its own."""
        return estimate_job(parse_spec(json.dumps(self.job["spec"])), Volumes(self.folder / "volumes"))


@pytest.fixture(scope="session")
def make_workplace(tiny_model_folder):
    """`make_workplace(folder, lines)`: a job over the lines of a dataset, for a model with three layers."""

    def make(folder: Path, lines: list[str]) -> Workplace:
        data = folder / "volumes" / "data"
        data.mkdir(parents=True)
        (data / "rows.jsonl").write_text("\n".join(lines) + "\n")
        spec = {
            "model": {"uri": tiny_model_folder().as_uri()},
            "dataset": {"uri": "pvc://data/rows.jsonl", "columns": {"text": "text", "id": "id"}},
            "extraction": {"layers": [3, 0, 2], "finalNorm": True, "storeDtype": "Float32"},
            "output": {"claimName": "out", "subPath": "states"},
            "engine": {"maxNumBatchedTokens": 96},
            "failurePolicy": {"maxQuarantinedPercent": 10},
            "ring": {"size": "1Mi"},
        }
        names = {"apiVersion": "drillcore.dev/v1alpha1", "kind": "ExtractionJob", "metadata": {"name": "tiny"}}
        return Workplace(folder, names | {"spec": spec})

    return make


@pytest.fixture
def workplace(make_workplace, tmp_path):
    """40 rows of 3 to 200 characters, one of them broken."""
    lines = [json.dumps({"id": f"row-{i}", "text": "core " * (1 + i % 40)}) for i in range(NUM_ROWS)]
    lines[7] = '{"id": "row-7", "text": '
    return make_workplace(tmp_path, lines)
