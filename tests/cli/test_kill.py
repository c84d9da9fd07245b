"""Both processes of a whole job, killed at points drawn over its run; then the same command again."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

import drillcore
from drillcore.journal import read_journal
from drillcore.layout import Layout, is_journal
from drillcore_spec.reasons import Reason

pytestmark = pytest.mark.kill

SERVER, SIDECAR = "drillcore_server.shard", "drillcore_server.sidecar"


@pytest.fixture
def slow_workplace(workplace):
    """Parts of a few rows and steps of a few tokens, so that a run has many points at which to die."""
    workplace.set("output.partSize", "16Ki")
    workplace.set("engine.maxNumBatchedTokens", 16)
    return workplace


@pytest.mark.parametrize("num_parts", [1, 3, 8])
def test_a_killed_server_loses_nothing_and_computes_no_committed_row_again(slow_workplace, num_parts):
    process = slow_workplace.start("run", "job.yaml")
    kill_when(process, SERVER, lambda: journaled_parts(slow_workplace.output) >= num_parts)
    _, err = process.communicate(timeout=200)

    assert process.returncode == Reason.OUT_OF_MEMORY.exit_code, "137, as a container that was killed"
    assert "Run the same command to go on" in err
    assert slow_workplace.run_json()["code"] == 0
    check_every_row_once(slow_workplace.output)


@pytest.mark.parametrize("num_parts", [0, 2, 6])
def test_a_killed_sidecar_is_started_again_and_the_run_ends_well(slow_workplace, num_parts):
    process = slow_workplace.start("run", "job.yaml")
    kill_when(process, SIDECAR, lambda: journaled_parts(slow_workplace.output) >= num_parts)
    _, err = process.communicate(timeout=200)

    assert process.returncode == 0, err
    assert "the sidecar ended and is started again" in err
    check_every_row_once(slow_workplace.output)


def test_sigterm_at_any_time_stops_the_run_and_the_next_one_goes_on(slow_workplace):
    num_parts = random.Random(5).randrange(0, 6)
    process = slow_workplace.start("run", "job.yaml")
    wait_for(process, SERVER, lambda: journaled_parts(slow_workplace.output) >= num_parts)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=200)

    assert process.returncode == Reason.TERMINATED.exit_code, err
    assert "Run the same command to go on" in err
    assert slow_workplace.run_json()["code"] == 0
    check_every_row_once(slow_workplace.output)


def test_a_killed_run_that_samples_ends_with_the_tokens_of_an_undisturbed_one(slow_workplace):
    slow_workplace.set("generation", {"maxTokens": 6, "temperature": 1.0, "seed": 3})
    undisturbed = slow_workplace.folder / "undisturbed"
    assert slow_workplace.run_json("--output", str(undisturbed))["code"] == 0

    process = slow_workplace.start("run", "job.yaml")
    kill_when(process, SERVER, lambda: journaled_parts(slow_workplace.output) >= 3)
    process.communicate(timeout=200)
    assert slow_workplace.run_json()["code"] == 0

    check_every_row_once(slow_workplace.output)
    expected = {sample.row: sample for sample in drillcore.open(undisturbed)}
    for sample in drillcore.open(slow_workplace.output):
        assert sample.token_ids.tolist() == expected[sample.row].token_ids.tolist()
        assert sample.last_token == expected[sample.row].last_token


def journaled_parts(output: Path) -> int:
    """Lines of all journals of shard 0."""
    folder = Layout(output).shard(0).directory
    journals = folder.glob("journal-*.jsonl") if folder.is_dir() else []
    return sum(journal.read_bytes().count(b"\n") for journal in journals)


def check_every_row_once(output: Path) -> None:
    """The output is whole, and no two journals hold the same row: a committed row never ran again."""
    assert drillcore.verify(output).ok
    assert len(drillcore.open(output)) == 39
    shard = Layout(output).shard(0)
    rows = [
        row
        for path in shard.files(is_journal)
        for part in read_journal(path)[0]
        for first, last in part.rows
        for row in range(first, last + 1)
    ]
    assert len(rows) == len(set(rows))


def kill_when(process, module, condition) -> None:
    os.kill(wait_for(process, module, condition), signal.SIGKILL)


def wait_for(process, module, condition) -> int:
    """The process id of a child of `process` that runs `module`, once its ring is there and `condition` holds."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None:
        for child in children.read_text().split():
            command = (Path("/proc") / child / "cmdline").read_text().split("\0")
            if module in command and condition():
                ring_dir = Path(command[command.index("--ring-dir") + 1])
                if (ring_dir / "committed.npy").exists():
                    return int(child)
    raise AssertionError("the run ended before the condition held")
