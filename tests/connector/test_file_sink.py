"""Samples go to writer threads: nobody waits for another's file, and what lies in memory is bounded."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import numpy as np
import pytest
import torch

from drillcore.records import SampleEnd
from drillcore_server.connector.file_sink import FileSink
from drillcore_server.connector.list_sink import StateShape

STATE_BYTES = 2 * 4 * 4
TIMEOUT_S = 20


def end_of(row: int, num_states: int) -> SampleEnd:
    ids = np.arange(num_states)
    stats = np.zeros(2)
    return SampleEnd(row, None, ids, num_states, num_states, None, num_states, None, None, stats, stats)


def put(sink: FileSink, row: int, num_states: int) -> None:
    """One sample, as the shipper gives it; there must be room."""
    chunk = sink.reserve(num_states)
    assert chunk is not None
    chunk.states.fill_(row)
    assert sink.end_sample(end_of(row, num_states))
    sink.seal(chunk, row=row, first_state=0)


@pytest.fixture
def make_sink():
    """`make_sink(write, max_held_bytes=...)` gives a sink and the queue of its outcomes."""
    sinks = []

    def make(write, **limits):
        outcomes: SimpleQueue = SimpleQueue()
        shape = StateShape(2, 4, torch.float32, torch.device("cpu"))
        sink = FileSink(shape, write, lambda row, outcome: outcomes.put((row, outcome)), outcomes.put, **limits)
        sinks.append(sink)
        return sink, outcomes

    yield make
    for sink in sinks:
        sink.close()


def test_a_sample_comes_to_the_writer_whole_and_its_outcome_to_whoever_asked(make_sink):
    sink, outcomes = make_sink(lambda sample: (sample.end.num_states, float(sample.hidden_states.sum())))

    put(sink, row=3, num_states=5)

    assert outcomes.get(timeout=TIMEOUT_S) == (3, (5, 3.0 * 5 * 2 * 4))


def test_a_slow_file_keeps_no_other_one_waiting(make_sink):
    release = threading.Event()

    def write(sample):
        if sample.end.row == 0:
            release.wait(TIMEOUT_S)
        return "written"

    sink, outcomes = make_sink(write, num_threads=2)
    for row in range(10):
        put(sink, row, num_states=1)

    assert {outcomes.get(timeout=TIMEOUT_S)[0] for _ in range(9)} == set(range(1, 10))
    release.set()
    assert outcomes.get(timeout=TIMEOUT_S) == (0, "written")


def test_a_failed_write_is_the_outcome_of_its_own_sample_only(make_sink):
    def write(sample):
        if sample.end.row == 0:
            raise OSError("no space left")
        return "written"

    sink, outcomes = make_sink(write, num_threads=1)
    put(sink, 0, num_states=1)
    put(sink, 1, num_states=1)

    (first, failure), second = outcomes.get(timeout=TIMEOUT_S), outcomes.get(timeout=TIMEOUT_S)
    assert (first, str(failure)) == (0, "no space left")
    assert second == (1, "written")


def test_there_is_no_room_while_the_writers_are_behind(make_sink):
    release = threading.Event()
    sink, outcomes = make_sink(lambda sample: release.wait(TIMEOUT_S), num_threads=1, max_held_bytes=2 * STATE_BYTES)
    put(sink, 0, num_states=2)

    assert not sink.has_room()
    assert sink.reserve(1) is None
    release.set()
    outcomes.get(timeout=TIMEOUT_S)
    assert sink.has_room()
    assert sink.held_bytes == 0


def test_waiting_ends_when_a_file_is_written(make_sink):
    release = threading.Event()
    sink, _ = make_sink(lambda sample: release.wait(TIMEOUT_S), num_threads=1, max_held_bytes=1)
    put(sink, 0, num_states=1)
    waiter = threading.Thread(target=sink.wait, args=(TIMEOUT_S,))
    waiter.start()

    release.set()
    waiter.join(TIMEOUT_S / 2)

    assert not waiter.is_alive()


def test_a_sample_larger_than_the_bound_passes_alone(make_sink):
    sink, outcomes = make_sink(lambda sample: "written", max_held_bytes=1)

    put(sink, 0, num_states=50)

    assert outcomes.get(timeout=TIMEOUT_S) == (0, "written")


def test_an_aborted_sample_gives_its_memory_back(make_sink):
    sink, _ = make_sink(lambda sample: pytest.fail("written"))
    chunk = sink.reserve(4)
    assert sink.abort_sample(0)

    sink.seal(chunk, row=0, first_state=0)

    assert sink.held_bytes == 0
