from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.ring.doorbell import (
    MAX_MESSAGE_BYTES,
    Committed,
    Doorbell,
    DoorbellClosedError,
    Failed,
    Hello,
    Message,
    Ready,
    Released,
    Sealed,
    decode_message,
    encode_message,
)
from drillcore_server.ring.errors import RingCorruptError
from drillcore_spec.reasons import Reason

cursors = st.integers(0, 2**64 - 1)
messages = st.one_of(
    st.builds(Hello, cursors, cursors),
    st.builds(Ready, st.just("5f2c9a10"), cursors, st.booleans()),
    st.builds(Sealed, cursors, st.booleans()),
    st.builds(Released, cursors, cursors),
    st.builds(Committed, st.just("5f2c9a10")),
    st.builds(Failed, st.sampled_from(Reason), st.text(max_size=50)),
)


@given(messages)
def test_a_message_comes_back(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(st.binary(min_size=1, max_size=60))
def test_foreign_bytes_give_a_message_or_our_error(data: bytes) -> None:
    with contextlib.suppress(RingCorruptError):
        assert isinstance(decode_message(data), Message)


def test_the_longest_error_text_fits_one_message() -> None:
    data = encode_message(Failed(Reason.INTERNAL, "\U0001f600" * 100_000))
    assert len(data) <= MAX_MESSAGE_BYTES
    assert decode_message(data).message.startswith("\U0001f600")


def test_a_peer_that_does_not_read_gets_the_newest_cursor(doorbell_pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = doorbell_pair
    last = 20_000
    for cursor in range(last + 1):
        ours.post(Released(cursor, cursor))
    assert ours.has_unsent
    received = []
    while not received or received[-1].released < last:
        while (message := theirs.receive()) is not None:
            received.append(message)
        ours.flush()
    assert not ours.has_unsent
    assert len(received) < last
    assert received == sorted(received, key=lambda message: message.released)


def test_cursors_never_overtake_the_message_behind_them(doorbell_pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = doorbell_pair
    while not ours.has_unsent:
        ours.post(Released(1, 0))
    ours.post(Released(2, 2))
    ours.post(Committed("5f2c9a10"))
    received = []
    while not received or not isinstance(received[-1], Committed):
        while (message := theirs.receive()) is not None:
            received.append(message)
        ours.flush()
    assert received[-2] == Released(2, 2)


def test_what_a_peer_said_before_it_died_is_still_read(doorbell_pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = doorbell_pair
    ours.post(Sealed(5, ended=False))
    failure = Failed(Reason.OUTPUT_VOLUME_FULL, "the volume is full")
    theirs.post(failure)
    theirs.close()
    ours.post(Sealed(6, ended=False))
    assert ours.receive() == failure
    with pytest.raises(DoorbellClosedError):
        ours.receive()


def test_waiting_ends_with_the_time_or_with_a_message(doorbell_pair: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = doorbell_pair
    ours.wait(0.0)
    assert ours.receive() is None
    theirs.post(Released(3, 1))
    ours.wait(None)
    assert ours.receive() == Released(3, 1)
