"""The drain with a real ring, real parts and both ends of the doorbell in this process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drillcore.errors import OutputIOError
from drillcore.journal import read_journal
from drillcore.json_fields import canonical_json
from drillcore.part_writer import PartWriter
from drillcore.records import QuarantineEntry, QuarantineReason, SampleEnd
from drillcore_server.errors import ShardError
from drillcore_server.ring.consumer import RingConsumer
from drillcore_server.ring.doorbell import Doorbell, Message, Released, Sealed
from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.header import RingShape
from drillcore_server.ring.job_file import JobFile
from drillcore_server.ring.layout import RecordFlag, RecordKind, Word
from drillcore_server.ring.record_writer import RecordWriter
from drillcore_server.ring.ring_file import create_ring
from drillcore_server.ring.sample_codec import encode_sample_end
from drillcore_server.sidecar.attempt import ShardAttempt, claim_output
from drillcore_server.sidecar.drain import Drain, DrainEnd
from drillcore_server.sidecar.part_pool import PartLimits, PartPool
from drillcore_server.sidecar.progress import ShardProgress
from drillcore_server.sidecar.sample_router import SampleRouter
from drillcore_server.sidecar.waker import Waker
from drillcore_spec.reasons import Reason

EPOCH = 7


class Bench:
    """A drain in a thread, and the server's side in the test's hands."""

    def __init__(self, folder: Path, manifest: Any, **limits: Any) -> None:
        job = JobFile(manifest, 0, 0, 10, 1 << 30, 60.0, None)
        mapping = create_ring(folder, RingShape.plan(256 * 1024, dtype="F32", columns=2, hidden=16))
        self.header = mapping.header
        self.records = RecordWriter(mapping)
        self.records.set_epoch(EPOCH)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.doorbell = Doorbell(ours)
        self._sidecar_doorbell = Doorbell(theirs)
        self.attempt = ShardAttempt.begin(claim_output(folder / "output", job), job, f"{EPOCH:08x}")
        self._waker = Waker()
        part_limits = PartLimits(limits.get("part_bytes", 1 << 30), limits.get("part_age_s", 60.0), 1 << 20)
        self._pool = PartPool(2, self.attempt.schema, self.attempt.part_journal(), part_limits, self._waker.wake)
        router = SampleRouter(
            self._pool,
            self.attempt.ledger(),
            self.attempt.quarantine,
            ShardProgress(0, self.attempt.attempt),
            first_sequence=0,
            size_limit_bytes=limits.get("size_limit_bytes"),
        )
        consumer = RingConsumer(mapping, 0, EPOCH)
        self.drain = Drain(consumer, self._sidecar_doorbell, router, self._pool, self._waker, lambda: None)
        self._executor = ThreadPoolExecutor(1)
        self.end: Future[DrainEnd] = self._executor.submit(self.drain.run)

    def chunk(self, row: int, first: int, states: int) -> None:
        chunk = self.records.reserve(states)
        assert chunk is not None
        chunk.buffer[:] = bytes(len(chunk.buffer))
        self.records.seal(chunk, row, first)

    def finish(self, row: int, states: int) -> None:
        end = SampleEnd(
            row=row,
            id=None,
            token_ids=np.zeros(states, np.int64),
            num_prompt_tokens=states,
            original_tokens=states,
            last_token=None,
            num_states=states,
            positions=None,
            loss_mask=None,
            norm_sums=np.ones(2),
            max_abs=np.ones(2),
        )
        assert self.records.append(RecordKind.SAMPLE_END, row, encode_sample_end(end))

    def sample(self, row: int, states: int = 2) -> None:
        self.chunk(row, 0, states)
        self.finish(row, states)

    def tell(self, ended: bool = False) -> None:
        self.doorbell.post(Sealed(self.records.sealed, ended))

    def wait_for(self, reached: Callable[[Released], bool]) -> Released:
        """The first message of the drain that is as asked."""
        while True:
            message: Message | None = self.doorbell.receive()
            if message is None:
                self.doorbell.wait(10)
            elif isinstance(message, Released) and reached(message):
                return message

    def durable_rows(self) -> list[tuple[int, int]]:
        parts, errors = read_journal(self.attempt.shard.journal(self.attempt.attempt))
        assert errors == []
        return [rows for part in parts for rows in part.rows]

    def close(self) -> None:
        self.drain.stop()
        self._executor.shutdown(wait=True)
        self._pool.stop()
        self.drain.close()
        self._waker.close()
        self.attempt.close()
        self.doorbell.close()
        self._sidecar_doorbell.close()


@pytest.fixture
def make_bench(tmp_path: Path, make_manifest: Callable[..., Any]) -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(**limits: Any) -> Bench:
        benches.append(Bench(tmp_path, make_manifest(), **limits))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


def test_written_records_are_released_before_they_are_durable(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.sample(0)
    bench.sample(1)
    bench.tell()
    assert bench.wait_for(lambda news: news.released == 4) == Released(4, 0)
    assert bench.durable_rows() == []
    bench.tell(ended=True)
    assert bench.wait_for(lambda news: news.durable == 4) == Released(4, 4)
    assert bench.end.result(10) is DrainEnd.ENDED
    assert bench.durable_rows() == [(0, 1)]
    assert (bench.header[Word.RELEASED], bench.header[Word.DURABLE]) == (4, 4)


def test_an_old_part_closes_while_nothing_comes(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(part_age_s=0.05)
    bench.sample(0)
    bench.tell()
    bench.wait_for(lambda news: news.durable == 2)
    assert bench.durable_rows() == [(0, 0)]


def test_the_part_of_an_open_sample_waits_for_its_end(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(part_age_s=0.0)
    bench.chunk(0, 0, 2)
    bench.tell()
    assert bench.wait_for(lambda news: news.released == 1).durable == 0
    bench.finish(0, 2)
    bench.tell()
    bench.wait_for(lambda news: news.durable == 2)


def test_dropped_and_quarantined_records_become_durable_with_what_is_before_them(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    bench.chunk(0, 0, 3)
    bench.records.append(RecordKind.SAMPLE_END, 0, b"", RecordFlag.ABORTED)
    bench.tell()
    bench.wait_for(lambda news: news == Released(2, 2))
    entry = QuarantineEntry(0, "data.jsonl", 1, None, QuarantineReason.NON_FINITE_STATE, "NaN")
    bench.records.append(RecordKind.QUARANTINED, 0, canonical_json(entry.to_json()))
    bench.sample(1)
    bench.tell()
    assert bench.wait_for(lambda news: news.released == 5).durable == 2
    bench.drain.stop()
    assert bench.end.result(10) is DrainEnd.STOPPED
    assert bench.wait_for(lambda news: news.durable == 5) == Released(5, 5)
    assert bench.durable_rows() == [(1, 1)]
    assert bench.attempt.quarantine.num_rows == 1


def test_what_a_dead_server_sealed_without_telling_is_saved(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.sample(0)
    bench.tell()
    bench.wait_for(lambda news: news.released == 2)
    bench.sample(1)
    bench.chunk(2, 0, 1)
    bench.doorbell.close()
    assert bench.end.result(10) is DrainEnd.SERVER_GONE
    assert bench.durable_rows() == [(0, 1)]


def test_a_dead_server_that_had_ended_leaves_a_shard_to_commit(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.sample(0)
    bench.header[Word.ENDED] = 1
    bench.doorbell.close()
    assert bench.end.result(10) is DrainEnd.ENDED
    assert bench.durable_rows() == [(0, 0)]


def test_the_size_limit_ends_it_with_the_whole_samples_durable(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(size_limit_bytes=2 * 2 * 16 * 4 + 1)
    bench.sample(0)
    bench.sample(1)
    bench.tell()
    with pytest.raises(ShardError, match=r"output\.sizeLimit") as raised:
        bench.end.result(10)
    assert raised.value.reason is Reason.OUTPUT_SIZE_LIMIT
    assert bench.durable_rows() == [(0, 0)]


def wrong_first_state(bench: Bench) -> None:
    bench.chunk(0, 0, 2)
    bench.chunk(0, 3, 1)


def other_row_within_a_sample(bench: Bench) -> None:
    bench.chunk(0, 0, 2)
    bench.chunk(1, 2, 1)


def too_few_states(bench: Bench) -> None:
    bench.chunk(0, 0, 2)
    bench.finish(0, 3)


def end_of_another_row(bench: Bench) -> None:
    bench.chunk(0, 0, 2)
    bench.finish(1, 2)


@pytest.mark.parametrize("mistake", [wrong_first_state, other_row_within_a_sample, too_few_states, end_of_another_row])
def test_records_that_do_not_make_a_sample_are_refused(
    make_bench: Callable[..., Bench], mistake: Callable[[Bench], None]
) -> None:
    bench = make_bench()
    mistake(bench)
    bench.tell()
    with pytest.raises(RingCorruptError):
        bench.end.result(10)


@pytest.mark.parametrize(("row", "problem"), [(0, "came twice"), (10, "is not of this shard")])
def test_a_row_comes_once_and_is_the_shards(make_bench: Callable[..., Bench], row: int, problem: str) -> None:
    bench = make_bench()
    bench.sample(0)
    bench.sample(row)
    bench.tell()
    with pytest.raises(ShardError, match=problem):
        bench.end.result(10)


def test_a_volume_that_refuses_a_writer_ends_the_drain(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: PartWriter, data: memoryview) -> None:
        raise OutputIOError(self.path, "writing failed (Input/output error)")

    monkeypatch.setattr(PartWriter, "append", refuse)
    bench = make_bench()
    bench.sample(0)
    bench.tell()
    with pytest.raises(OutputIOError):
        bench.end.result(10)
