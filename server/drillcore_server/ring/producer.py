"""The server's end of the ring: the records in memory, and the sidecar at the doorbell.

All methods run in the engine's thread. Nothing blocks but `connect` and `wait`.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Final

from drillcore.json_fields import canonical_json
from drillcore.records import QuarantineEntry, SampleEnd
from drillcore_server.errors import ShardError
from drillcore_server.ring.connection import connect_to
from drillcore_server.ring.doorbell import (
    Committed,
    Doorbell,
    DoorbellClosedError,
    Failed,
    Hello,
    Message,
    Ready,
    Released,
    Sealed,
)
from drillcore_server.ring.errors import RingCorruptError, SidecarGoneError
from drillcore_server.ring.header import RingShape
from drillcore_server.ring.layout import RecordFlag, RecordKind, Word
from drillcore_server.ring.record_writer import RecordWriter, RingChunk
from drillcore_server.ring.ring_file import RingMapping, create_ring
from drillcore_server.ring.sample_codec import encode_sample_end
from drillcore_spec.reasons import Reason

_ANNOUNCE_RECORDS: Final = 64
_ANNOUNCE_BYTES: Final = 4 * 1024 * 1024
"""Sealed records are told to the sidecar at the next poll, or at once when so many have come together."""
_HEARTBEAT_S: Final = 1.0


class RingProducer:
    """Creates and seals records; learns what the sidecar has released, journaled and committed."""

    def __init__(self, ring_dir: Path, mapping: RingMapping) -> None:
        self._ring_dir = ring_dir
        self._mapping = mapping
        self._header = mapping.header
        self._records = RecordWriter(mapping)
        self._doorbell: Doorbell | None = None
        self._announced = Sealed(0, ended=False)
        self._announced_bytes = 0
        self._ended = False
        self._durable = 0
        self._committed = False
        self._header[Word.SERVER_EPOCH] = self._server_epoch = secrets.randbits(63)

    @classmethod
    def create(cls, ring_dir: Path, size_bytes: int, *, dtype: str, columns: int, hidden: int) -> RingProducer:
        """Makes the ring's file in `ring_dir` and faults all of its memory in.

        Args:
            ring_dir: the folder that the two processes share.
            size_bytes: of the whole file.
            dtype: F32, F16 or BF16.
            columns: states of one token.
            hidden: elements of a state.

        Raises:
            ShardError: ShmTooSmall, with the numbers.
        """
        try:
            shape = RingShape.plan(size_bytes, dtype=dtype, columns=columns, hidden=hidden)
        except ValueError as error:
            raise ShardError(Reason.SHM_TOO_SMALL, f"`ring.size`: {error}; raise ring.size") from None
        return cls(ring_dir, create_ring(ring_dir, shape))

    @property
    def buffer(self) -> memoryview:
        """The whole data area, page-aligned, for registering it with the device; every chunk lies in it."""
        return self._mapping.data

    @property
    def address(self) -> int:
        """Address of `buffer`."""
        return self._mapping.data_address

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's states."""
        return self._mapping.shape.row_bytes

    @property
    def created(self) -> int:
        """Records created so far."""
        return self._records.created

    @property
    def released(self) -> int:
        """Records below this cursor are written; their space is free again."""
        return self._records.released

    @property
    def durable(self) -> int:
        """Records below this cursor are journaled on the volume, or were dropped."""
        return self._durable

    @property
    def committed(self) -> bool:
        """Whether the sidecar said that commit.json is published."""
        return self._committed

    @property
    def sidecar_heartbeat_age_s(self) -> float:
        """Seconds since the sidecar's event loop last turned; it turns at least once a second while it is well."""
        return (time.monotonic_ns() - self._header[Word.SIDECAR_HEARTBEAT_NS]) / 1e9

    def connect(self, timeout_s: float) -> Ready:
        """Meets a sidecar, at first or after `SidecarGoneError`, and drops every record of before.

        Nobody may write into the buffer of an older chunk any more. When it returns, committed.npy beside the ring
        holds the rows that need not be sent (again). The time that the sidecar needs to recover the shard does
        not count.

        Args:
            timeout_s: how long no sidecar may be there.

        Raises:
            ShardError: with the sidecar's own reason, or SidecarLost when none came in time.
        """
        self.close()
        self._records.drop_all()
        self._ended = self._committed = False
        self._announced = Sealed(self._records.created, ended=False)
        self._announced_bytes = self._records.bytes_created
        self._durable = self._records.created
        budget_s = timeout_s
        while budget_s >= 0:
            started = time.monotonic()
            connection = connect_to(self._ring_dir, budget_s)
            budget_s -= time.monotonic() - started
            if connection is not None and (ready := self._greet(Doorbell(connection))) is not None:
                return ready
        raise ShardError(
            Reason.SIDECAR_LOST,
            f"expected the sidecar to answer at {self._ring_dir} within {timeout_s:g} s; none was ready. "
            "See the sidecar container's log",
        )

    def has_room(self) -> bool:
        """Whether `reserve` can be expected to succeed."""
        return self._records.has_room()

    def reserve(self, max_states: int) -> RingChunk | None:
        """Room for up to `max_states` states; `None` while the ring is full."""
        return self._records.reserve(max_states)

    def seal(self, chunk: RingChunk, *, row: int, first_state: int) -> None:
        """Makes a filled chunk immutable; `first_state` counts the states of the sample.

        Raises:
            ValueError: when it is not the oldest open chunk.
        """
        self._records.seal(chunk, row, first_state)
        self._announce_when_due()

    def abort(self, chunk: RingChunk) -> None:
        """Seals a chunk whose bytes are to be skipped; in the same order as `seal`."""
        self._records.seal(chunk, -1, 0, RecordFlag.ABORTED)
        self._announce_when_due()

    def end_sample(self, end: SampleEnd) -> bool:
        """Completes the sample of the chunks reserved since the last one; `False`: no room now."""
        return self._append(RecordKind.SAMPLE_END, end.row, encode_sample_end(end))

    def abort_sample(self, row: int) -> bool:
        """Drops the sample of the chunks reserved since the last one; `False`: no room now."""
        return self._append(RecordKind.SAMPLE_END, row, b"", RecordFlag.ABORTED)

    def quarantine(self, entry: QuarantineEntry) -> bool:
        """Records a row that cannot be extracted; `False`: no room now."""
        return self._append(RecordKind.QUARANTINED, entry.row, canonical_json(entry.to_json()))

    def end(self) -> bool:
        """Publishes that no record will follow, so that the sidecar commits. Always succeeds; needs no room.

        Raises:
            ValueError: while a chunk is open.
        """
        if self._records.sealed != self._records.created:
            raise ValueError(f"record {self._records.sealed} is not sealed yet")
        self._ended = True
        self._header[Word.ENDED] = 1
        self._announce()
        return True

    def poll(self) -> None:
        """Tells the sidecar what is sealed and reads what it says. Does not block.

        Raises:
            SidecarGoneError: when it hung up before it committed.
            ShardError: with the reason that the sidecar gives.
        """
        self._announce()
        self._beat()
        doorbell = self._connected()
        doorbell.flush()
        try:
            while (message := doorbell.receive()) is not None:
                self._handle(message)
        except DoorbellClosedError:
            if not self._committed:
                raise SidecarGoneError("the sidecar ended before it committed the shard") from None

    def wait(self, timeout_s: float) -> None:
        """Blocks until the sidecar says something, at most `timeout_s`, and polls."""
        self._announce()
        self._connected().wait(timeout_s)
        self.poll()

    def close(self) -> None:
        """Hangs up; the sidecar drains what is sealed, journals it and ends. The memory stays mapped."""
        if self._doorbell is not None:
            self._doorbell.close()
            self._doorbell = None

    def _greet(self, doorbell: Doorbell) -> Ready | None:
        """Waits for Ready as long as the sidecar lives; `None` when it hangs up."""
        self._doorbell = doorbell
        doorbell.post(Hello(self._server_epoch, self._records.created))
        try:
            while (message := doorbell.receive()) is None:
                self._beat()
                doorbell.wait(_HEARTBEAT_S)
        except DoorbellClosedError:
            self.close()
            return None
        if not isinstance(message, Ready):
            self._handle(message)
            raise RingCorruptError(f"expected Ready from the sidecar; got {type(message).__name__}")
        self._records.set_epoch(int(message.attempt, 16))
        return message

    def _handle(self, message: Message) -> None:
        match message:
            case Released(released, durable):
                self._records.release_to(released)
                self._durable = durable
            case Committed():
                self._committed = True
            case Failed(reason, text):
                raise ShardError(reason, text)
            case _:
                raise RingCorruptError(f"the sidecar must not send {type(message).__name__} now")

    def _append(self, kind: RecordKind, row: int, payload: bytes, flags: RecordFlag = RecordFlag.NONE) -> bool:
        done = self._records.append(kind, row, payload, flags)
        self._announce_when_due()
        return done

    def _announce_when_due(self) -> None:
        records = self._records.sealed - self._announced.sealed
        if records >= _ANNOUNCE_RECORDS or self._records.bytes_created - self._announced_bytes >= _ANNOUNCE_BYTES:
            self._announce()

    def _announce(self) -> None:
        """One message for everything that was sealed since the last one."""
        news = Sealed(self._records.sealed, self._ended)
        if news != self._announced:
            self._connected().post(news)
            self._announced, self._announced_bytes = news, self._records.bytes_created

    def _beat(self) -> None:
        self._header[Word.SERVER_HEARTBEAT_NS] = time.monotonic_ns()

    def _connected(self) -> Doorbell:
        if self._doorbell is None:
            raise SidecarGoneError("no sidecar is connected; call connect()")
        return self._doorbell
