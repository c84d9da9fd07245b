"""The producer against a sidecar whose part the test plays by hand, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.errors import ShardError
from drillcore_server.ring.consumer import RingConsumer
from drillcore_server.ring.doorbell import Committed, Failed, Hello, Released, Sealed
from drillcore_server.ring.errors import RingCorruptError, SidecarGoneError
from drillcore_server.ring.layout import RecordKind, Word
from drillcore_server.ring.producer import RingProducer
from drillcore_spec.reasons import Reason

ENTRY = QuarantineEntry(3, "data.jsonl", 4, None, QuarantineReason.EMPTY, "no token")


@pytest.fixture
def producer(tmp_path: Path) -> Iterator[RingProducer]:
    producer = RingProducer.create(tmp_path, 1024 * 1024, dtype="F32", columns=1, hidden=16)
    yield producer
    producer.close()


@pytest.fixture
def aside() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Runs the sidecar's half of a dialogue while the test runs the server's."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def connect(producer: RingProducer, sidecar: Any, aside: Any) -> Hello:
    greeting = aside(sidecar.greet)
    producer.connect(10)
    return greeting.result()


def seal_one(producer: RingProducer, row: int = 0, states: int = 1) -> None:
    chunk = producer.reserve(states)
    assert chunk is not None
    assert chunk.num_states == states
    producer.seal(chunk, row=row, first_state=0)


def test_seals_are_told_at_the_next_poll_in_one_message(producer: Any, played_sidecar: Any, aside: Any) -> None:
    connect(producer, played_sidecar, aside)
    for row in range(5):
        seal_one(producer, row)
    assert played_sidecar.doorbell.receive() is None
    producer.poll()
    producer.poll()
    assert played_sidecar.next_message() == Sealed(5, ended=False)
    assert played_sidecar.doorbell.receive() is None


def test_many_seals_are_told_without_a_poll(producer: Any, played_sidecar: Any, aside: Any) -> None:
    connect(producer, played_sidecar, aside)
    for row in range(100):
        seal_one(producer, row)
    assert played_sidecar.next_message() == Sealed(64, ended=False)
    assert played_sidecar.doorbell.receive() is None


def test_a_record_behind_an_open_chunk_is_not_told(
    producer: Any, played_sidecar: Any, aside: Any, sample_end: Callable[..., Any]
) -> None:
    connect(producer, played_sidecar, aside)
    chunk = producer.reserve(2)
    assert producer.end_sample(sample_end(0, 2))
    producer.poll()
    assert played_sidecar.doorbell.receive() is None
    with pytest.raises(ValueError, match="record 0 is not sealed"):
        producer.end()
    producer.seal(chunk, row=0, first_state=0)
    assert producer.end()
    assert played_sidecar.next_message() == Sealed(2, ended=True)


def test_released_records_make_room_and_durable_ones_are_known(producer: Any, played_sidecar: Any, aside: Any) -> None:
    connect(producer, played_sidecar, aside)
    while producer.has_room():
        seal_one(producer, states=10)
    while (chunk := producer.reserve(1)) is not None:
        producer.abort(chunk)
    assert not producer.quarantine(ENTRY)
    played_sidecar.say(Released(producer.created, 7))
    producer.wait(10)
    assert (producer.released, producer.durable) == (producer.created, 7)
    assert producer.has_room()
    assert producer.quarantine(ENTRY)


def test_a_sidecar_that_ends_is_noticed_and_the_next_one_gets_nothing_of_before(
    producer: Any, played_sidecar: Any, aside: Any, tmp_path: Path
) -> None:
    assert connect(producer, played_sidecar, aside).first_sequence == 0
    seal_one(producer)
    left_open = producer.reserve(1)
    played_sidecar.hang_up()
    with pytest.raises(SidecarGoneError):
        producer.wait(10)
    hello = connect(producer, played_sidecar, aside)
    assert hello.first_sequence == producer.released == producer.durable == 2
    with pytest.raises(ValueError, match="order of reserve"):
        producer.seal(left_open, row=0, first_state=0)
    seal_one(producer, row=9)
    producer.poll()
    consumer = RingConsumer.attach(
        tmp_path, server_epoch=hello.server_epoch, first_sequence=hello.first_sequence, sidecar_epoch=7
    )
    record = consumer.get(played_sidecar.next_message().sealed)
    assert record is not None
    assert (record.sequence, record.kind, record.row) == (2, RecordKind.CHUNK, 9)
    assert consumer.get(3) is None


def test_records_of_another_sidecars_time_are_refused(
    producer: Any, played_sidecar: Any, aside: Any, tmp_path: Path
) -> None:
    hello = connect(producer, played_sidecar, aside)
    seal_one(producer)
    successor = RingConsumer.attach(tmp_path, server_epoch=hello.server_epoch, first_sequence=0, sidecar_epoch=8)
    with pytest.raises(RingCorruptError, match="for sidecar 00000008"):
        successor.get(1)


def test_the_ring_of_another_server_is_refused(producer: Any, tmp_path: Path) -> None:
    with pytest.raises(RingCorruptError, match="server epoch"):
        RingConsumer.attach(tmp_path, server_epoch=1, first_sequence=0, sidecar_epoch=8)


def test_the_sidecars_reason_ends_the_shard(producer: Any, played_sidecar: Any, aside: Any) -> None:
    connect(producer, played_sidecar, aside)
    played_sidecar.say(Failed(Reason.OUTPUT_VOLUME_FULL, "the output volume is full"))
    played_sidecar.hang_up()
    seal_one(producer)
    with pytest.raises(ShardError, match="volume is full") as raised:
        producer.wait(10)
    assert raised.value.reason is Reason.OUTPUT_VOLUME_FULL


def test_a_sidecar_may_fail_before_it_is_ready(producer: Any, played_sidecar: Any, aside: Any) -> None:
    def fail() -> None:
        played_sidecar.accept()
        played_sidecar.say(Failed(Reason.OUTPUT_IDENTITY, "the folder holds another job"))
        played_sidecar.hang_up()

    aside(fail)
    with pytest.raises(ShardError, match="another job") as raised:
        producer.connect(10)
    assert raised.value.reason is Reason.OUTPUT_IDENTITY


def test_no_sidecar_in_time_is_sidecar_lost(producer: Any) -> None:
    with pytest.raises(ShardError, match=r"within 0\.01 s") as raised:
        producer.connect(0.01)
    assert raised.value.reason is Reason.SIDECAR_LOST


def test_a_sidecar_that_hangs_up_before_it_is_ready_is_replaced(producer: Any, played_sidecar: Any, aside: Any) -> None:
    def dialogue() -> None:
        played_sidecar.accept()
        played_sidecar.hang_up()
        played_sidecar.greet("0000000a")

    done = aside(dialogue)
    assert producer.connect(10).attempt == "0000000a"
    done.result()


def test_after_committed_the_sidecar_may_go(producer: Any, played_sidecar: Any, aside: Any) -> None:
    connect(producer, played_sidecar, aside)
    producer.end()
    played_sidecar.say(Committed("00000007"))
    played_sidecar.hang_up()
    producer.wait(10)
    producer.poll()
    assert producer.committed


@pytest.mark.parametrize("released", [3, 2**63])
def test_a_sidecar_that_releases_what_is_not_sealed_is_refused(
    producer: Any, played_sidecar: Any, aside: Any, released: int
) -> None:
    connect(producer, played_sidecar, aside)
    seal_one(producer)
    producer.reserve(1)
    played_sidecar.say(Released(released, 0))
    with pytest.raises(RingCorruptError, match="expected 0 to 1"):
        producer.wait(10)


def test_without_a_sidecar_polling_says_so(producer: Any) -> None:
    with pytest.raises(SidecarGoneError, match=r"connect\(\)"):
        producer.poll()


def test_the_heartbeat_of_the_sidecar_ages(producer: Any, tmp_path: Path) -> None:
    hello_epoch = producer._header[Word.SERVER_EPOCH]
    RingConsumer.attach(tmp_path, server_epoch=hello_epoch, first_sequence=0, sidecar_epoch=8)
    assert 0 <= producer.sidecar_heartbeat_age_s < 5


def test_an_unknown_dtype_or_a_ring_too_small_for_a_state_is_shm_too_small(tmp_path: Path) -> None:
    with pytest.raises(ShardError, match=r"ring\.size") as raised:
        RingProducer.create(tmp_path, 1024 * 1024, dtype="F32", columns=64, hidden=4096)
    assert raised.value.reason is Reason.SHM_TOO_SMALL


def test_waiting_ends_when_another_thread_of_the_sidecar_speaks(producer: Any, played_sidecar: Any, aside: Any) -> None:
    connect(producer, played_sidecar, aside)
    seal_one(producer)
    timer = threading.Timer(0.05, played_sidecar.say, [Released(1, 0)])
    timer.start()
    producer.wait(30)
    timer.join()
    assert producer.released == 1
