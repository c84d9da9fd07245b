"""The ring against a list: under any interleaving the consumer gets each sealed record once, in order, whole."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drillcore_server.ring.consumer import Record, RingConsumer
from drillcore_server.ring.header import RingShape
from drillcore_server.ring.layout import RecordFlag, RecordKind
from drillcore_server.ring.record_writer import RecordWriter, RingChunk
from drillcore_server.ring.ring_file import attach_ring, create_ring

RING_BYTES = 24 * 1024
"""A header page, a page of 64 descriptors, and 16 KiB of data: it wraps and fills after a few records."""
FIRST_STATE = 7
SIZES = st.one_of(st.just(0), st.integers(1, 400), st.integers(1, 400), st.integers(400, 3 * RING_BYTES))


@dataclass(frozen=True)
class Expected:
    """A record as the producer made it; `content` repeats to the record's length."""

    kind: RecordKind
    row: int
    content: bytes
    aborted: bool = False


class RingMachine(RuleBasedStateMachine):
    """Drives a real file.

    open      chunks that are reserved, not sealed
    expected  records that the consumer has still to see, open chunks among them
    held      records that it has seen and not released
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="ring-model-"))
        self.expected: deque[Expected] = deque()
        self.held: deque[tuple[Record, Expected]] = deque()
        self.open: deque[tuple[RingChunk, int]] = deque()
        self.pending: Expected | None = None
        self.pieces: list[bytes] = []
        self.row = 0

    @initialize(hidden=st.sampled_from([3, 64, 1500]))
    def make(self, hidden: int) -> None:
        shape = RingShape.plan(RING_BYTES, dtype="F32", columns=2, hidden=hidden)
        self.writer = RecordWriter(create_ring(self.directory, shape))
        self.row_bytes = shape.row_bytes
        self.epoch = 1
        self._attach()

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    @precondition(lambda self: self.pending is None)
    @rule(max_states=st.integers(1, 30))
    def reserve(self, max_states: int) -> None:
        chunk = self.writer.reserve(max_states)
        if chunk is None:
            assert self.writer.released < self.writer.created, "refused although everything is free"
            return
        assert 1 <= chunk.num_states <= max_states
        assert len(chunk.buffer) == chunk.num_states * self.row_bytes
        self.row += 1
        self.open.append((chunk, self.row))
        self.expected.append(Expected(RecordKind.CHUNK, self.row, self._pattern(self.row, len(chunk.buffer))))

    @precondition(lambda self: self.open)
    @rule(aborted=st.booleans())
    def seal_oldest(self, aborted: bool) -> None:
        chunk, row = self.open.popleft()
        chunk.buffer[:] = self._pattern(row, len(chunk.buffer))
        self.writer.seal(chunk, row, FIRST_STATE, RecordFlag.ABORTED if aborted else RecordFlag.NONE)
        if aborted:
            index = next(i for i, expected in enumerate(self.expected) if expected.row == row)
            self.expected[index] = replace(self.expected[index], aborted=True)

    @precondition(lambda self: len(self.open) > 1)
    @rule()
    def seal_newest_is_refused(self) -> None:
        chunk, row = self.open[-1]
        with pytest.raises(ValueError, match="in the order of reserve"):
            self.writer.seal(chunk, row, FIRST_STATE)

    @rule(kind=st.sampled_from([RecordKind.SAMPLE_END, RecordKind.QUARANTINED]), size=SIZES)
    def append(self, kind: RecordKind, size: int) -> None:
        if self.pending is None:
            self.row += 1
            self.pending = Expected(kind, self.row, self._pattern(self.row, size))
            self.expected.append(self.pending)
        if self.writer.append(self.pending.kind, self.pending.row, self.pending.content):
            self.pending = None

    @rule(count=st.integers(1, 20))
    def get(self, count: int) -> None:
        for _ in range(count):
            record = self.consumer.get(self.writer.sealed)
            if record is None:
                return
            expected = self.expected[0]
            assert (record.kind, record.row, record.aborted) == (expected.kind, expected.row, expected.aborted)
            if record.kind is RecordKind.CHUNK:
                assert len(record.payload) == record.num_states * self.row_bytes
                assert record.first == FIRST_STATE
                self.expected.popleft()
                self.held.append((record, expected))
                continue
            if record.first == 0:
                self.pieces = []
            assert record.first == sum(map(len, self.pieces))
            self.pieces.append(bytes(record.payload))
            self.held.append((record, expected))
            if not record.continued:
                assert b"".join(self.pieces) == expected.content
                self.expected.popleft()

    @rule(count=st.integers(1, 3))
    def release(self, count: int) -> None:
        """Written records are given back in order; until then their bytes are as they were sealed."""
        for _ in range(min(count, len(self.held))):
            record, expected = self.held.popleft()
            whole = expected.content if record.kind is RecordKind.CHUNK else expected.content[record.first :]
            assert bytes(record.payload) == whole[: len(record.payload)]
            self.consumer.publish(record.sequence + 1, record.sequence + 1)
            self.writer.release_to(record.sequence + 1)

    @rule(sometimes=st.integers(0, 9))
    def restart_consumer(self, sometimes: int) -> None:
        """A new sidecar: every record that was not released is dropped, open chunks too."""
        if sometimes:
            return
        self.writer.drop_all()
        self.expected.clear()
        self.held.clear()
        self.open.clear()
        self.pending = None
        self.pieces = []
        self.epoch += 1
        self._attach()

    @invariant()
    def cursors_are_in_order(self) -> None:
        if not hasattr(self, "writer"):
            return
        assert self.writer.released <= self.consumer.next_sequence <= self.writer.sealed <= self.writer.created

    def _attach(self) -> None:
        self.writer.set_epoch(self.epoch)
        self.consumer = RingConsumer(attach_ring(self.directory), self.writer.created, self.epoch)

    @staticmethod
    def _pattern(row: int, size: int) -> bytes:
        return (row.to_bytes(4, "little") * (size // 4 + 1))[:size]


TestRing = RingMachine.TestCase
TestRing.settings = settings(max_examples=150, stateful_step_count=100, deadline=None)
