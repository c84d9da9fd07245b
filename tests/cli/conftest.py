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


@pytest.fixture
def workplace(tiny_model_folder, tmp_path):
    """40 rows of 3 to 200 characters, some of them broken, for a model with three layers."""
    volumes = tmp_path / "volumes"
    (volumes / "data").mkdir(parents=True)
    lines = [json.dumps({"id": f"row-{i}", "text": "core " * (1 + i % 40)}) for i in range(NUM_ROWS)]
    lines[7] = '{"id": "row-7", "text": '
    (volumes / "data" / "rows.jsonl").write_text("\n".join(lines) + "\n")
    spec = {
        "model": {"uri": tiny_model_folder().as_uri()},
        "dataset": {"uri": "pvc://data/rows.jsonl", "columns": {"text": "text", "id": "id"}},
        "extraction": {"layers": [3, 0, 2], "finalNorm": True, "storeDtype": "Float32"},
        "output": {"claimName": "out", "subPath": "states"},
        "engine": {"maxNumBatchedTokens": 96},
        "failurePolicy": {"maxQuarantinedPercent": 10},
        "ring": {"size": "1Mi"},
    }
    metadata = {"name": "tiny"}
    return Workplace(
        tmp_path,
        {"apiVersion": "drillcore.dev/v1alpha1", "kind": "ExtractionJob", "metadata": metadata, "spec": spec},
    )
