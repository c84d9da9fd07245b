"""A client that leaves, in whatever state its request is, leaves nothing behind and harms nobody."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from drillcore.sample_file import SampleFileWriter
from drillcore_server.api.sample_target import SampleTarget
from drillcore_server.engine.engine_thread import EngineThread

IDS = list(range(60, 100))
TIMEOUT_S = 60


class Gate:
    """Stops a thread that passes through it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        self.reached.set()
        assert self._open.wait(TIMEOUT_S)

    def await_reached(self) -> None:
        assert self.reached.wait(TIMEOUT_S)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def stop_in(monkeypatch, owner: object, name: str, gate: Gate, when: Callable[..., bool] = lambda *_: True) -> None:
    """Has `owner.name` pass through the gate first, where `when` says so."""
    real = getattr(owner, name)

    def stopped(*args, **kwargs):
        if when(*args):
            gate.pass_through()
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, stopped)


def assert_others_are_right(server, assert_file) -> None:
    """Nothing of the aborted request is left, and the next ones are served."""
    server.assert_whole()
    assert server.files() == []
    assert server.engine._targets == {}
    told = server.post(prompt=IDS, max_tokens=3).json()["kv_transfer_params"]
    assert_file(told["hidden_states_path"], IDS)
    assert len(server.files()) == 1


def test_a_client_that_leaves_while_its_request_waits(serve, monkeypatch, assert_file):
    server = serve()
    monkeypatch.setattr(server.engine.sink, "has_room", lambda: False)
    connections = [server.connect(prompt=[i, *IDS], max_tokens=2) for i in range(5)]
    server.wait_until(lambda: server.engine.engine.scheduler.num_waiting == 5, "five requests wait")

    for connection in connections:
        connection.close()
    server.wait_until(lambda: server.engine.engine.scheduler.num_waiting == 0, "nobody waits")

    monkeypatch.undo()
    assert_others_are_right(server, assert_file)
    assert server.services.metrics.tally.clients_left == 5


def test_a_client_that_leaves_during_prefill(serve, monkeypatch, gate, assert_file):
    server = serve(max_num_batched_tokens=16)
    stop_in(monkeypatch, server.engine.engine.runner, "execute", gate, lambda output, _: output.requests[0].first_token)
    connection = server.connect(prompt=IDS, max_tokens=2)
    gate.await_reached()

    connection.close()
    server.wait_until(lambda: server.services.admission.num_admitted == 0, "the request is given up")
    gate.open()

    assert_others_are_right(server, assert_file)
    assert server.engine.engine.counters.aborted == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_during_decode(serve, monkeypatch, gate, assert_file, stream):
    server = serve()
    decodes = lambda output, _: output.requests[0].first_token > len(IDS) + 3  # noqa: E731
    stop_in(monkeypatch, server.engine.engine.runner, "execute", gate, decodes)
    connection = server.connect(prompt=IDS, max_tokens=400, ignore_eos=True, stream=stream)
    gate.await_reached()
    if stream:
        assert b"data: " in connection.recv(65536)

    connection.close()
    server.wait_until(lambda: server.services.admission.num_admitted == 0, "the request is given up")
    gate.open()

    assert_others_are_right(server, assert_file)
    assert server.engine.engine.counters.aborted == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("step", ["append", "finish", "publish"])
def test_a_client_that_leaves_while_its_file_is_written(serve, monkeypatch, gate, assert_file, step, stream):
    server = serve()
    stop_in(monkeypatch, SampleFileWriter, step, gate)
    connection = server.connect(prompt=IDS, max_tokens=1, stream=stream)
    gate.await_reached()

    connection.close()
    server.wait_until(lambda: server.services.admission.num_admitted == 0, "the request is given up")
    gate.open()

    assert_others_are_right(server, assert_file)


def test_a_client_that_leaves_when_its_file_is_published_and_not_told(serve, monkeypatch, gate, assert_file):
    server = serve()
    settle = server.engine.settle

    def settle_late(row, outcome):
        gate.pass_through()
        settle(row, outcome)

    monkeypatch.setattr(server.engine.sink, "_settle", settle_late)
    connection = server.connect(prompt=IDS, max_tokens=1)
    gate.await_reached()
    assert len(server.files()) == 1

    connection.close()
    server.wait_until(lambda: server.services.admission.num_admitted == 0, "the request is given up")
    gate.open()

    assert_others_are_right(server, assert_file)


def test_one_of_several_prompts_that_fails_takes_the_files_of_all_with_it(serve, monkeypatch, assert_file):
    server = serve()
    write = SampleTarget.write

    def fail_third(self, sample):
        if sample.end.token_ids[0] == 3:
            raise RuntimeError("a fault")
        return write(self, sample)

    monkeypatch.setattr(SampleTarget, "write", fail_third)
    answer = server.post(prompt=[[i, 5] for i in range(6)], max_tokens=1)

    assert answer.status_code == 500
    monkeypatch.undo()
    assert_others_are_right(server, assert_file)


def test_a_disk_that_fills_up_is_told_and_leaves_no_part(serve, monkeypatch, assert_file):
    server = serve()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    answer = server.post(prompt=IDS, max_tokens=1)

    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "storage_full")
    monkeypatch.undo()
    assert_others_are_right(server, assert_file)


def test_a_request_that_is_done_before_its_submission_returns_gets_its_file(serve, monkeypatch, assert_file):
    server = serve()
    begin = EngineThread._begin

    def begin_and_dawdle(self, request):
        begin(self, request)
        time.sleep(0.5)  # the engine's and the writers' threads go on meanwhile

    monkeypatch.setattr(EngineThread, "_begin", begin_and_dawdle)
    told = server.post(prompt=IDS, max_tokens=1).json()["kv_transfer_params"]
    assert_file(told["hidden_states_path"], IDS)


def test_a_request_never_waits_for_the_file_of_another_one(serve, monkeypatch, gate, assert_file):
    server = serve(num_writer_threads=2)
    publish = SampleFileWriter.publish
    first = threading.Event()

    def publish_late(self, path):
        if not first.is_set():
            first.set()
            gate.pass_through()
        publish(self, path)

    monkeypatch.setattr(SampleFileWriter, "publish", publish_late)
    stuck = server.connect(prompt=IDS, max_tokens=1)
    gate.await_reached()
    for i in range(30):
        told = server.post(prompt=[i, *IDS], max_tokens=1).json()["kv_transfer_params"]
        assert_file(told["hidden_states_path"], [i, *IDS])

    gate.open()
    assert b"200 OK" in stuck.recv(65536)
    stuck.close()
    server.assert_whole()


def test_a_slow_disk_holds_the_engine_back_and_nothing_is_lost(serve, monkeypatch, gate, assert_file):
    server = serve(num_writer_threads=1, max_held_bytes=1)
    stop_in(monkeypatch, SampleFileWriter, "publish", gate)
    prompts = [[i, *IDS] for i in range(20)]
    answers = {}
    threads = [
        threading.Thread(target=lambda i=i: answers.__setitem__(i, server.post(prompt=prompts[i], max_tokens=1)))
        for i in range(len(prompts))
    ]
    for thread in threads:
        thread.start()
    gate.await_reached()
    server.wait_until(lambda: server.services.admission.num_admitted == len(prompts), "all are admitted")
    assert server.engine.sink.held_bytes <= len(prompts) * (1 + len(IDS)) * 3 * 64 * 4

    gate.open()
    for thread in threads:
        thread.join(TIMEOUT_S)
    for i, prompt in enumerate(prompts):
        assert_file(answers[i].json()["kv_transfer_params"]["hidden_states_path"], prompt)
    server.assert_whole()


def test_an_engine_that_fails_fails_every_request_and_the_health(serve, monkeypatch):
    server = serve()

    def fail():
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(server.engine.engine, "step", fail)
    answer = server.post(prompt=IDS, max_tokens=1)

    assert answer.status_code == 500
    assert "the device is lost" not in answer.text
    server.engine._thread.join(TIMEOUT_S)
    assert server.get("/health").status_code == 503
    assert server.post(prompt=IDS, max_tokens=1).status_code == 503


def test_a_thousand_clients_that_leave_harm_nobody(serve, assert_file):
    """Each leaves after a random time: before it is admitted, while it is computed, or when its file is written."""
    server = serve(max_num_batched_tokens=64)
    rng = np.random.default_rng(0)
    stay = {int(i) for i in rng.choice(1000, 50, replace=False)}
    answers: dict[int, object] = {}

    def ask(i: int) -> None:
        answers[i] = server.post(prompt=[i % 256, *IDS], max_tokens=1 + i % 3, return_token_ids=True)

    stayers = []
    leavers = []
    for i in range(1000):
        if i in stay:
            stayers.append(threading.Thread(target=ask, args=(i,)))
            stayers[-1].start()
        else:
            leavers.append(server.connect(prompt=[i % 256, *IDS], max_tokens=1 + i % 3, stream=i % 5 == 0))
        while len(leavers) > rng.integers(1, 60):
            leavers.pop(int(rng.integers(len(leavers)))).close()
    for connection in leavers:
        connection.close()
    for thread in stayers:
        thread.join(TIMEOUT_S)
    server.assert_whole()

    for i, answer in answers.items():
        assert answer.status_code == 200
        assert_file(answer.json()["kv_transfer_params"]["hidden_states_path"], [i % 256, *IDS])
    metrics = server.services.metrics
    assert metrics.tally.clients_left > 300
    assert len(server.files()) == metrics.tally.files, "a file that nobody was told of"
    assert all(path.suffix == ".safetensors" for path in server.files())
    assert server.engine._targets == {}
