"""The sidecar's event loop: one turn a wake-up, blocked in between.

It wakes for the doorbell (records are sealed, the server hung up), for the part threads (a chunk is written, a part is
durable), and for timers (a part is old enough, the heartbeat). A turn does descriptor work only.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from drillcore.part_info import PartInfo
from drillcore_server.errors import ShardError
from drillcore_server.ring.consumer import RingConsumer
from drillcore_server.ring.doorbell import Doorbell, DoorbellClosedError, Released, Sealed
from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.sidecar.part_pool import PartPool
from drillcore_server.sidecar.part_thread import PartClosed
from drillcore_server.sidecar.sample_router import SampleRouter
from drillcore_server.sidecar.waker import Waker

_HEARTBEAT_S: Final = 0.5
_QUARANTINE_SYNC_S: Final = 5.0
"""Quarantined rows are brought to the disk at least so often; losing them to a crash costs little."""


class DrainEnd(Enum):
    """Why there is nothing more to drain."""

    ENDED = auto()
    """The server published END: the shard can commit."""
    SERVER_GONE = auto()
    STOPPED = auto()
    """`stop` was called."""


class Drain:
    """Moves sealed records to the writers until the end, then closes all parts."""

    def __init__(
        self,
        consumer: RingConsumer,
        doorbell: Doorbell,
        router: SampleRouter,
        pool: PartPool,
        waker: Waker,
        on_turn: Callable[[], None],
    ) -> None:
        self._consumer = consumer
        self._doorbell = doorbell
        self._router = router
        self._pool = pool
        self._waker = waker
        self._on_turn = on_turn
        self._sealed = consumer.next_sequence
        self._end: DrainEnd | None = None
        self._stop_asked = False
        self._told = Released(self._sealed, self._sealed)
        self._quarantine_sync_at_s = time.monotonic() + _QUARANTINE_SYNC_S
        self._selector = selectors.DefaultSelector()
        self._selector.register(waker, selectors.EVENT_READ)
        self._selector.register(doorbell, selectors.EVENT_READ)
        self.parts: list[PartInfo] = []
        """Parts of this attempt that are journaled; their rows stand in the journal, not here: memory stays flat."""

    def stop(self) -> None:
        """Ends `run` as soon as what is sealed now is durable. May be called in a signal handler."""
        self._stop_asked = True
        self._waker.wake()

    def run(self) -> DrainEnd:
        """Drains until END, until the server is gone, or until `stop`; then all whole samples are durable.

        Raises:
            WriteError: when the volume refuses.
            RingCorruptError: when records are not what they should be.
            ShardError: OutputSizeLimit or Internal; what was whole before it is durable.
        """
        try:
            while self._end is None or self._consumer.next_sequence < self._sealed:
                self._wait(min(_HEARTBEAT_S, self._pool.next_close_s(self._router.writer_of_open_sample)))
                self._read_doorbell()
                while (record := self._consumer.get(self._sealed)) is not None:
                    self._router.take(record)
                self._collect()
                self._pool.close_due_parts(self._router.writer_of_open_sample)
                self._sync_quarantine_when_due()
                self._tell()
        except ShardError:
            self._close_all_parts()
            raise
        self._close_all_parts()
        return self._end

    def close(self) -> None:
        """Closes the selector."""
        self._selector.close()

    def _close_all_parts(self) -> None:
        self._pool.close_all_parts()
        self._router.sync_quarantine()
        while self._pool.num_open_parts:
            self._wait(_HEARTBEAT_S)
            self._collect()
            self._tell()
        self._tell()

    def _wait(self, timeout_s: float) -> None:
        """Blocks until something happened."""
        if self._end is None:
            unsent = selectors.EVENT_WRITE if self._doorbell.has_unsent else 0
            self._selector.modify(self._doorbell, selectors.EVENT_READ | unsent)
        self._selector.select(max(0.0, timeout_s))
        self._waker.clear()
        self._doorbell.flush()

    def _read_doorbell(self) -> None:
        """Learns what is sealed. After the end the server has nothing to say, and its hanging up must not wake us."""
        if self._end is not None:
            return
        try:
            while (message := self._doorbell.receive()) is not None:
                if not isinstance(message, Sealed):
                    raise RingCorruptError(f"the server must not send {type(message).__name__} now")
                self._sealed = message.sealed
                self._end = DrainEnd.ENDED if message.ended else None
        except DoorbellClosedError:
            # What a dead server sealed, or ended, without telling stands in the header.
            self._sealed = self._consumer.sealed_in_header()
            self._end = DrainEnd.ENDED if self._consumer.ended_in_header() else DrainEnd.SERVER_GONE
        if self._stop_asked and self._end is None:
            self._end = DrainEnd.STOPPED
        if self._end is not None:
            self._selector.unregister(self._doorbell)

    def _collect(self) -> None:
        for event in self._pool.collect():
            self._router.apply(event)
            if isinstance(event, PartClosed) and event.part is not None:
                self.parts.append(replace(event.part, rows=()))

    def _sync_quarantine_when_due(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._quarantine_sync_at_s:
            self._quarantine_sync_at_s = now_s + _QUARANTINE_SYNC_S
            if self._router.has_unsynced_quarantine:
                self._router.sync_quarantine()

    def _tell(self) -> None:
        """Publishes the cursors if they moved, and shows that this process is alive."""
        news = Released(self._router.released, self._router.durable)
        if news != self._told:
            self._consumer.publish(news.released, news.durable)
            self._doorbell.post(news)
            self._told = news
        self._consumer.beat()
        self._on_turn()
