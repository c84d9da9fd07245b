"""The example jobs, each run once by the command that its file names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import drillcore

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "volumes/models/smollm2-135m-instruct"
TIMEOUT_S = 800


@dataclass(frozen=True)
class ExampleRun:
    """A finished job."""

    counts: dict[str, int]
    path: Path

    @property
    def output(self) -> drillcore.Output:
        return drillcore.open(self.path)


@pytest.fixture(scope="session")
def run_example(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ExampleRun]:
    """`run_example("eagle3")`: examples/jobs/eagle3.yaml on the demo model and the example data."""
    runs: dict[str, ExampleRun] = {}

    def run(name: str) -> ExampleRun:
        if name not in runs:
            if not (MODEL / "config.json").is_file():
                pytest.fail(f"{MODEL} is not there: run `make demo-model`")
            runs[name] = _run(name, tmp_path_factory.mktemp(name) / "output")
        return runs[name]

    return run


def _run(name: str, output: Path) -> ExampleRun:
    mounts = ["--mount", f"models={MODEL.parent}", "--mount", f"datasets={ROOT / 'examples/data'}"]
    command = [sys.executable, "-m", "drillcore_server.cli", "run", f"examples/jobs/{name}.yaml", "--json", *mounts]
    result = subprocess.run(
        [*command, "--output", output],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    summary: dict[str, Any] = json.loads(result.stdout)
    return ExampleRun(summary["counts"], output)
