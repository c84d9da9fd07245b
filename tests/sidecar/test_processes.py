"""Two real processes and a real ring: the ordinary ways through a shard, and the ways out of it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from drillcore.layout import Layout, is_part
from drillcore_spec.names import COMMITTED_FILE, PROGRESS_FILE
from drillcore_spec.reasons import Reason

ROW_BYTES = 2 * 16 * 4
MIB = 1 << 20


def test_a_shard_is_committed_and_both_processes_end(shard: Any) -> None:
    sidecar, server = shard.sidecar(), shard.server()
    assert server.wait(60) == 0
    assert sidecar.wait(60) == 0
    shard.check_output()
    progress = json.loads((shard.ring_dir / PROGRESS_FILE).read_text())
    assert (progress["state"], progress["rowsDone"], progress["rowsTotal"]) == ("Committed", 20, 20)


def test_the_server_may_be_there_before_the_sidecar(shard: Any) -> None:
    server = shard.server()
    with pytest.raises(subprocess.TimeoutExpired):
        server.wait(0.3)
    shard.sidecar()
    assert server.wait(60) == 0
    shard.check_output()


def test_a_server_without_a_sidecar_ends_with_sidecar_lost(shard: Any) -> None:
    assert shard.server(wait_for_sidecar_s=0.1).wait(60) == Reason.SIDECAR_LOST.exit_code
    assert "within 0.1 s" in shard.failure()


def test_a_shard_without_rows_commits_empty(make_shard: Callable[..., Any]) -> None:
    shard = make_shard(rows_in=0)
    assert shard.run() == 0
    assert len(shard.check_output()) == 0


def test_quarantined_and_aborted_rows_leave_no_states(make_shard: Callable[..., Any]) -> None:
    shard = make_shard(rows_in=60, quarantine_every=5, abort_every=3)
    assert shard.run() == 0
    output = shard.check_output()
    assert (output.counts.rows_out, output.counts.rows_quarantined) == (48, 12)


def test_too_many_quarantined_rows_do_not_commit_and_a_wider_limit_needs_no_row_again(
    make_shard: Callable[..., Any],
) -> None:
    shard = make_shard(rows_in=20, quarantine_every=10)
    assert shard.run(max_quarantined_percent=9.9) == Reason.TOO_MANY_QUARANTINED.exit_code
    assert "at most 9.9 % of the shard's 20 rows" in shard.failure()
    assert not Layout(shard.output).shard(0).commit.exists()
    assert shard.run(max_quarantined_percent=10.0) == 0
    shard.check_output()
    assert shard.sent()[1][1] == []


def test_a_ring_of_1_mib_carries_samples_of_50_mib(make_shard: Callable[..., Any]) -> None:
    tokens = 50 * MIB // ROW_BYTES
    shard = make_shard(rows_in=2, ring_bytes=MIB, min_tokens=tokens, max_tokens=tokens)
    assert shard.run() == 0
    assert shard.check_output().counts.states == 2 * tokens


def test_several_writers_share_a_full_ring(make_shard: Callable[..., Any]) -> None:
    shard = make_shard(
        rows_in=120, ring_bytes=MIB, min_tokens=100, max_tokens=900, num_writers=4, part_bytes=MIB, abort_every=7
    )
    assert shard.run() == 0
    shard.check_output()
    assert len(Layout(shard.output).shard(0).files(is_part)) > 4


@pytest.mark.kill
def test_an_idle_sidecar_makes_its_part_durable_after_the_interval(make_shard: Callable[..., Any]) -> None:
    shard = make_shard(rows_in=8, commit_interval_s=0.2, hold_after_row=5)
    server, sidecar = shard.server(), shard.sidecar()
    journaled = wait_until(lambda: sum(map(len, shard.journaled().values())) == 6, server)
    sidecar.kill()
    shard.sidecar()
    assert journaled
    assert server.wait(60) == 0
    shard.check_no_row_ran_twice()


def test_running_a_finished_job_again_changes_nothing(shard: Any) -> None:
    assert shard.run() == 0
    before = files_of(shard.output)
    assert shard.run() == 0
    assert files_of(shard.output) == before
    assert shard.sent()[1][1] == []
    assert len(np.load(shard.ring_dir / COMMITTED_FILE)) == 20


def test_a_committed_shard_with_a_missing_part_is_an_error_that_names_it(shard: Any) -> None:
    assert shard.run() == 0
    part = Layout(shard.output).shard(0).files(is_part)[0]
    part.unlink()
    assert shard.run() == Reason.INTERNAL.exit_code
    assert part.name in shard.failure()


def test_more_samples_extend_a_committed_shard_and_fewer_are_refused(
    make_shard: Callable[..., Any], make_manifest: Callable[..., Any]
) -> None:
    def with_samples(count: int) -> Any:
        dataset = make_manifest().dataset | {"maxSamples": count}
        return make_shard(rows_in=count, manifest=make_manifest(dataset=dataset), quarantine_every=7)

    assert with_samples(20).run() == 0
    longer = with_samples(30)
    assert longer.run() == 0
    longer.check_output()
    assert longer.sent()[0][1] == list(range(20, 30))
    shorter = with_samples(10)
    assert shorter.run() == Reason.OUTPUT_IDENTITY.exit_code
    assert "maxSamples" in shorter.failure()
    longer.check_output()


def test_another_job_is_refused_by_the_fields_that_differ(
    shard: Any, make_shard: Callable[..., Any], make_manifest: Callable[..., Any]
) -> None:
    assert shard.run() == 0
    other = make_shard(manifest=make_manifest(layers=(0, 2)))
    assert other.run() == Reason.OUTPUT_IDENTITY.exit_code
    assert "`layers` is [0,1] there, [0,2] in this job" in other.failure()


def test_a_folder_of_something_else_is_refused_and_left_alone(shard: Any) -> None:
    shard.output.mkdir()
    (shard.output / "thesis.tex").write_text("x")
    assert shard.run() == Reason.OUTPUT_FOREIGN.exit_code
    assert "thesis.tex" in shard.failure()
    assert [path.name for path in shard.output.iterdir()] == ["thesis.tex"]


def test_an_output_that_is_no_folder_is_unwritable(shard: Any) -> None:
    shard.output.write_text("a file")
    assert shard.run() == Reason.OUTPUT_UNWRITABLE.exit_code


def test_the_size_limit_keeps_what_is_whole(make_shard: Callable[..., Any]) -> None:
    shard = make_shard(rows_in=40, min_tokens=100, max_tokens=100)
    limit = 10 * 100 * ROW_BYTES + 50
    assert shard.run(size_limit_bytes=limit) == Reason.OUTPUT_SIZE_LIMIT.exit_code
    assert "output.sizeLimit" in shard.failure()
    assert set.union(*shard.journaled().values()) == set(range(10))
    assert shard.run() == 0
    shard.check_output()
    shard.check_no_row_ran_twice()


def test_two_jobs_on_one_folder_leave_one_whole_output(make_shard: Callable[..., Any]) -> None:
    shards = [make_shard(rows_in=60, part_bytes=20_000) for _ in range(2)]
    servers = [shard.server() for shard in shards]
    sidecars = [shard.sidecar() for shard in shards]
    assert [server.wait(60) for server in servers] == [0, 0]
    assert [sidecar.wait(60) for sidecar in sidecars] == [0, 0]
    shards[0].check_output()


def test_sigterm_saves_what_is_sealed_and_a_new_sidecar_goes_on(make_shard: Callable[..., Any]) -> None:
    shard = make_shard(rows_in=30, hold_after_row=19)
    server, sidecar = shard.server(), shard.sidecar()
    wait_until(lambda: progress_of(shard).get("rowsWritten") == 20, server)
    sidecar.terminate()
    assert sidecar.wait(60) == Reason.TERMINATED.exit_code
    assert set.union(*shard.journaled().values()) == set(range(20))
    shard.sidecar()
    assert server.wait(60) == 0
    shard.check_output()
    assert [rows for _, rows in shard.sent()] == [list(range(30)), list(range(20, 30))]


def test_sigterm_before_a_server_comes_ends_the_sidecar(shard: Any) -> None:
    sidecar = shard.sidecar()
    assert wait_until(lambda: (shard.ring_dir / "sidecar.sock").exists(), sidecar)
    sidecar.terminate()
    assert sidecar.wait(60) in (Reason.TERMINATED.exit_code, -signal.SIGTERM)


@pytest.mark.kill
def test_a_server_that_dies_loses_nothing_that_it_sealed(make_shard: Callable[..., Any]) -> None:
    shard = make_shard(rows_in=30, min_tokens=40)
    sidecar, server = shard.sidecar(), shard.server(die_after_records=41)
    assert server.wait(60) == -signal.SIGKILL
    assert sidecar.wait(60) == 1
    assert set.union(*shard.journaled().values()) == set(range(20))
    assert shard.run() == 0
    shard.check_output()
    assert [rows for _, rows in shard.sent()] == [list(range(30)), list(range(20, 30))]


@pytest.mark.kill
def test_a_server_that_dies_after_end_leaves_a_committed_shard(shard: Any) -> None:
    sidecar, server = shard.sidecar(), shard.server(die_after_end=True)
    assert server.wait(60) == -signal.SIGKILL
    assert sidecar.wait(60) == 0
    shard.check_output()


def test_a_stopped_sidecar_makes_the_server_wait_without_spinning(make_shard: Callable[..., Any]) -> None:
    shard = make_shard(rows_in=200, min_tokens=200, max_tokens=400)
    sidecar, server = shard.sidecar(), shard.server()
    assert server.stdout.readline().startswith(b"ready")
    sidecar.send_signal(signal.SIGSTOP)
    assert wait_until(lambda: cpu_seconds_in(server, 0.3) < 0.02, server), "it spins, or has lost samples"
    sidecar.send_signal(signal.SIGCONT)
    assert server.wait(60) == 0
    shard.check_output()


def test_a_progress_url_that_does_not_answer_stops_nothing(shard: Any) -> None:
    sidecar = shard.sidecar(environment={"DRILLCORE_PROGRESS_URL": "http://127.0.0.1:9/progress"})
    assert shard.server().wait(60) == 0
    assert sidecar.wait(60) == 0
    shard.check_output()


def files_of(folder: Path) -> dict[Path, tuple[int, int]]:
    return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(folder.rglob("*")) if p.is_file()}


def progress_of(shard: Any) -> dict[str, Any]:
    path = shard.ring_dir / PROGRESS_FILE
    return json.loads(path.read_text()) if path.exists() else {}


def cpu_seconds_in(process: subprocess.Popen[bytes], seconds: float) -> float:
    """CPU time that a process uses in the next seconds."""
    times = psutil.Process(process.pid).cpu_times
    before = sum(times()[:2])
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return sum(times()[:2]) - before


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> bool:
    """Whether the condition came true while the process ran."""
    deadline = time.monotonic() + 30
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
