"""A small job over a tiny model, as the server process gets it."""

from __future__ import annotations

import copy
import json
import signal

import pytest

from drillcore_server.shard.main import main
from drillcore_spec import names
from drillcore_spec.messages import TerminationMessage

TEXTS = ["The drill went down.", "Chalk.", "Sandstone and clay, then chalk again, and at last the basalt."]


@pytest.fixture
def job_spec(tiny_model_folder, tmp_path):
    """The spec of a valid job as a dict, with `tmp_path` holding its dataset."""
    rows = [{"id": f"row-{i}", "text": text} for i, text in enumerate(TEXTS)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "model": {"uri": tiny_model_folder().as_uri()},
        "dataset": {"uri": (tmp_path / "rows.jsonl").as_uri(), "columns": {"text": "text", "id": "id"}},
        "extraction": {"layers": [0, 2]},
        "output": {"claimName": "out"},
        "engine": {"maxNumBatchedTokens": 64},
    }


@pytest.fixture
def changed(job_spec):
    """`changed("extraction.layers", [9])`: the valid spec with one field set."""

    def change(path, value):
        spec = copy.deepcopy(job_spec)
        *parents, last = path.split(".")
        target = spec
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
        return spec

    return change


@pytest.fixture
def sigterm_restored():
    """A server's main ends with SIGTERM ignored, which every process started later would inherit."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def run_server(tmp_path, monkeypatch, capfd, sigterm_restored):
    """Runs the server's main in this process; gives its exit code, termination message and log."""

    def run(spec, *arguments):
        (tmp_path / "ring").mkdir(exist_ok=True)
        monkeypatch.setenv(names.ENV_JOB, spec if isinstance(spec, str) else json.dumps(spec))
        log = tmp_path / "termination.json"
        folders = ["--ring-dir", str(tmp_path / "ring"), "--output", str(tmp_path / "out")]
        folders += ["--volumes", str(tmp_path / "volumes"), "--termination-log", str(log)]
        code = main([*folders, "--shard", "0", "--local", "--ring-size", str(1 << 20), *arguments])
        return code, TerminationMessage.from_text(log.read_text()), capfd.readouterr().err

    return run
