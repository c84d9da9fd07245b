"""The benchmark of the operator runs, with a few jobs, and its figures keep the limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from drillcore_testcluster.control_plane import ControlPlane

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[3]


def test_a_few_jobs_keep_the_limits_of_the_benchmark(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    """It starts a control plane of its own; the fixture only says that this machine can."""
    result_path = tmp_path / "result.json"
    command = [sys.executable, "benchmarks/operator_load.py", "--smoke", "--out", str(result_path)]
    environment = os.environ | {"PYTHONPATH": "tests/cluster"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    figures = json.loads(result_path.read_text())["figures"]
    assert figures["jobs_written"] == 4
    assert figures["reports_per_s"] > 1
