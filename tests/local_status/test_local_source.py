"""A run on this machine in the words of an ExtractionJob, and served to this machine only."""

from __future__ import annotations

import asyncio
import socket
import threading

import httpx
import pytest

from drillcore_server.errors import ShardError
from drillcore_server.local import Progress, ShardResult
from drillcore_server.local_status import LocalJobSource, serve_status
from drillcore_spec import ExtractionJob
from drillcore_spec.reasons import Reason
from drillcore_status.errors import NotFound

JOBS = "v1/namespaces/default/extractionjobs"


@pytest.fixture
def source(tmp_path) -> LocalJobSource:
    spec = {
        "model": {"uri": "pvc://models/m"},
        "dataset": {"uri": "pvc://datasets/d.jsonl", "columns": {"text": "text"}},
        "extraction": {"layers": [1]},
        "output": {"claimName": "out"},
        "shards": {"count": 2},
    }
    job = ExtractionJob.from_resource(
        {"apiVersion": "drillcore.dev/v1alpha1", "kind": "ExtractionJob", "metadata": {"name": "here"}, "spec": spec}
    )
    return LocalJobSource(job, tmp_path)


def _status(source: LocalJobSource):
    return asyncio.run(source.get_job("default", "here")).status


def test_the_percentage_moves_with_what_is_written_and_rows_with_what_is_durable(source):
    source.take_progress(0, Progress(rows_total=10, rows_done=2, rows_written=5, tokens=50, state="Running"))
    assert _status(source).progress.rows_total is None, "shard 1 has not counted its rows"
    source.take_progress(1, Progress(rows_total=10, rows_written=3, rows_quarantined=2, rows_done=2, state="Running"))
    progress = _status(source).progress
    assert (progress.rows_done, progress.rows_total, progress.percentage) == (4, 20, 50)
    assert [sample.rows_done for sample in asyncio.run(source.throughput("default", "here"))] == [5, 10]


def test_a_shard_that_has_not_begun_is_pending(source):
    source.take_progress(0, Progress(state="Committed"))
    first, second = asyncio.run(source.list_shards("default", "here"))
    assert (first.phase, second.phase) == ("Committed", "Pending")
    assert _status(source).shards.summary == "1/2"


def test_success_is_said_when_every_shard_is_committed(source):
    source.take_results([ShardResult(0, Reason.COMMITTED, ""), ShardResult(1, Reason.COMMITTED, "")])
    status = _status(source)
    assert (status.phase, status.progress.percentage) == ("Succeeded", 100)
    assert {c.type: c.status for c in status.conditions} == {"Progressing": "False", "Succeeded": "True"}


def test_a_failure_has_its_reason_in_the_summary_and_at_its_shard(source):
    source.take_results([ShardResult(0, Reason.BAD_DATASET, "no column text")])
    status = _status(source)
    assert status.phase == "Failed"
    assert (status.conditions[1].reason, status.conditions[1].message) == ("BadDataset", "shard 0: no column text")
    assert asyncio.run(source.list_shards("default", "here"))[0].message == "no column text"
    assert status.shards.failed_indexes == "0"


def test_a_sidecar_that_was_started_again_is_an_event(source):
    source.take_sidecar_restart(1)
    (event,) = asyncio.run(source.list_events("default", "here"))
    assert (event.type, event.reason) == ("Warning", "SidecarLost")


def test_no_other_job_runs_here(source):
    assert asyncio.run(source.list_jobs("elsewhere")) == []
    with pytest.raises(NotFound, match="only default/here"):
        asyncio.run(source.get_job("default", "other"))


def test_who_looks_sees_the_end_before_the_server_goes(source):
    started, seen = threading.Event(), []

    def look(address: str) -> None:
        with httpx.stream("GET", f"{address}{JOBS}/here/stream", trust_env=False) as response:
            for line in response.iter_lines():
                seen.append(line)
                started.set()

    with serve_status(source, 0) as address:
        watcher = threading.Thread(target=look, args=(address,))
        watcher.start()
        assert started.wait(10)
        source.take_results([ShardResult(0, Reason.COMMITTED, "")])
    watcher.join(10)
    assert not watcher.is_alive()
    assert any('"phase": "Succeeded"' in line for line in seen)


def test_it_needs_no_log_in_and_answers_to_names_of_this_machine_only(source):
    with serve_status(source, 0) as address:
        assert httpx.get(f"{address}v1/login", trust_env=False).json() == {"kind": "None", "namespace": "default"}
        assert httpx.get(f"{address}{JOBS}", trust_env=False).json()["items"][0]["metadata"]["name"] == "here"
        rebound = httpx.get(f"{address}{JOBS}", headers={"Host": "evil.example"}, trust_env=False)
        assert rebound.status_code == 400
        assert httpx.post(f"{address}{JOBS}/here/progress", json={}, trust_env=False).status_code == 404


def test_a_port_that_is_taken_is_refused_by_name(source):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ShardError, match="--status-port") as refused, serve_status(source, port):
            pass
    assert refused.value.reason is Reason.BAD_SPEC
