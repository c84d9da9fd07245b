from __future__ import annotations

import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator

import pytest

from drillcore_server.sidecar.waker import Waker

NUM_THREADS, NUM_EVENTS = 3, 5_000


@pytest.fixture
def waker() -> Iterator[Waker]:
    waker = Waker()
    yield waker
    waker.close()


@pytest.fixture
def _fast_thread_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_many_calls_before_a_turn_wake_once(waker: Waker) -> None:
    waker.wake()
    waker.wake()
    assert select.select([waker], [], [], 0)[0]
    waker.clear()
    assert not select.select([waker], [], [], 0)[0]
    waker.clear()
    waker.wake()
    assert select.select([waker], [], [], 0)[0]


def test_a_turn_between_a_threads_mark_and_its_write_is_harmless(waker: Waker, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.eventfd_write
    monkeypatch.setattr(os, "eventfd_write", lambda fd, value: (waker.clear(), write(fd, value)))
    waker.wake()
    assert select.select([waker], [], [], 0)[0]
    waker.clear()
    assert not select.select([waker], [], [], 0)[0]


def test_a_wake_in_the_middle_of_a_turn_does_not_silence_the_next_one(
    waker: Waker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.eventfd_read
    waker.wake()
    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd_read", lambda fd: (waker.wake(), read(fd)))
        waker.clear()
    waker.wake()
    assert select.select([waker], [], [], 0)[0]


@pytest.mark.usefixtures("_fast_thread_switches")
def test_no_wake_is_lost_between_threads(waker: Waker) -> None:
    events: deque[int] = deque()

    def produce() -> None:
        for number in range(NUM_EVENTS):
            events.append(number)
            waker.wake()

    threads = [threading.Thread(target=produce) for _ in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    seen = 0
    while seen < NUM_THREADS * NUM_EVENTS:
        assert select.select([waker], [], [], 5)[0], f"nothing woke us after {seen} events"
        waker.clear()
        while events:
            events.popleft()
            seen += 1
    for thread in threads:
        thread.join()
