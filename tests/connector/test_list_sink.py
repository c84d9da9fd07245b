"""Samples of an in-process sink are whole when they are handed over, and in order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from drillcore.records import QuarantineEntry, QuarantineReason, SampleEnd
from drillcore_server.connector.list_sink import ListSink, StateShape


@pytest.fixture
def sink() -> ListSink:
    return ListSink(StateShape(2, 3, torch.bfloat16, torch.device("cpu")))


def end_of(row: int, num_states: int) -> SampleEnd:
    zeros = np.zeros(2)
    ids = np.arange(num_states)
    return SampleEnd(row, None, ids, num_states, num_states, None, num_states, None, None, zeros, zeros)


def fill(chunk, value: float) -> None:
    states = torch.frombuffer(chunk.buffer, dtype=torch.bfloat16).view(-1, 2, 3)
    assert len(states) == chunk.num_states
    states.fill_(value)


def test_a_sample_is_handed_over_when_its_last_chunk_is_sealed(sink):
    first, second = sink.reserve(2), sink.reserve(1)
    sink.end_sample(end_of(0, 3))
    fill(first, 1)
    fill(second, 2)

    sink.seal(first, row=0, first_state=0)
    assert sink.samples == []
    sink.seal(second, row=0, first_state=2)

    (sample,) = sink.samples
    assert sample.hidden_states.dtype is torch.bfloat16
    assert sample.hidden_states[:, 0, 0].tolist() == [1, 1, 2]


def test_samples_come_in_the_order_of_their_ends(sink):
    chunks = []
    for row in range(3):
        chunks.append(sink.reserve(1))
        sink.end_sample(end_of(row, 1))
    for row, chunk in enumerate(chunks):
        fill(chunk, row)
        sink.seal(chunk, row=row, first_state=0)

    assert [sample.end.row for sample in sink.samples] == [0, 1, 2]
    assert [float(sample.hidden_states[0, 0, 0]) for sample in sink.samples] == [0, 1, 2]
    assert sorted(sink.by_row()) == [0, 1, 2]


def test_chunks_are_sealed_in_the_order_of_reserve(sink):
    sink.reserve(1)
    later = sink.reserve(1)

    with pytest.raises(ValueError, match="row 7, state 0: chunks must be sealed in the order of reserve"):
        sink.seal(later, row=7, first_state=0)


def test_an_aborted_sample_leaves_nothing(sink):
    chunk = sink.reserve(1)
    sink.abort_sample(0)
    other = sink.reserve(2)
    sink.end_sample(end_of(1, 2))
    sink.seal(chunk, row=0, first_state=0)
    sink.seal(other, row=1, first_state=0)

    (sample,) = sink.samples
    assert (sample.end.row, len(sample.hidden_states)) == (1, 2)


def test_a_sample_without_states_is_a_sample(sink):
    sink.end_sample(end_of(5, 0))

    assert sink.samples[0].hidden_states.shape == (0, 2, 3)


def test_quarantine_entries_are_kept(sink):
    entry = QuarantineEntry(3, "a", 1, None, QuarantineReason.EMPTY, "no text")

    assert sink.quarantine(entry)
    assert sink.quarantined == [entry]


def test_there_is_always_room(sink):
    sink.poll()
    sink.wait(10.0)

    assert sink.has_room()
