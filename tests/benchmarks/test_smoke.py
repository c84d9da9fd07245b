"""Every benchmark runs with a tiny model, and none reports the speed of wrong states."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROW_FIELDS = {
    *("workload", "system", "tokens_per_s", "samples_per_s", "seconds", "bytes"),
    *("device", "clocks", "versions", "commit", "command", "parity"),
}


OURS = {"drillcore-forward", "drillcore"}
SYSTEMS = {
    **dict.fromkeys(("W1", "W2"), OURS | {"composed-forward", "transformers"}),
    "W3": OURS | {"composed-forward"},
    "W5": OURS,
    "W6": {"drillcore", "transformers"},
    **{name: {"drillcore"} for name in ("W4", "W6-mid", "W1-full-pool", "start", "W1-job")},
    **{name: {"drillcore"} for name in ("W1-quiet", "W1-ring-64Mi", "W1-sidecar-paused-10s")},
}


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / script), "--smoke", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)


def test_every_workload_reports_every_system(tmp_path):
    out = tmp_path / "rows.json"

    result = run("workloads.py", "--out", str(out), "--output-root", str(tmp_path))

    assert result.returncode == 0, result.stdout + result.stderr
    reported = json.loads(out.read_text())
    systems: dict[str, set[str]] = {}
    for row in reported:
        systems.setdefault(row["workload"], set()).add(row["system"])
    assert systems == SYSTEMS
    assert all(row.keys() >= ROW_FIELDS and row["tokens_per_s"] > 0 for row in reported)


def test_the_composed_forward_runs_anywhere(tmp_path):
    result = run("composed_forward.py")

    assert result.returncode == 0, result.stdout + result.stderr


def test_wrong_states_are_not_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    workloads, parity_check = importlib.import_module("workloads"), importlib.import_module("parity_check")
    states, out = parity_check._states, tmp_path / "rows.json"
    monkeypatch.setattr(
        parity_check, "_states", lambda *arguments: [sample.roll(1, dims=0) for sample in states(*arguments)]
    )
    arguments = ["--smoke", "--only", "W3", "--out", str(out), "--output-root", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["workloads.py", *arguments])
    handler = signal.getsignal(signal.SIGALRM)

    try:
        code = workloads.main()
    finally:
        signal.signal(signal.SIGALRM, handler)

    assert code == 1
    assert json.loads(out.read_text()) == []
    assert "its states are wrong" in capsys.readouterr().err
