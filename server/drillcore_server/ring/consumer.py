"""The sidecar's end of the ring: get, release.

Only memory is touched here; which records are sealed is told by the doorbell, or by the header once the server
is dead. Used by one thread; the payloads may be read in any thread until their records are released.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from drillcore_server.ring.descriptor import unpack_descriptor
from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.header import RingShape
from drillcore_server.ring.layout import RecordFlag, RecordKind, SidecarState, Word
from drillcore_server.ring.ring_file import RingMapping, attach_ring


@dataclass(frozen=True, slots=True)
class Record:
    """One sealed record. Its payload is the ring's memory: valid until the record is released."""

    sequence: int
    kind: RecordKind
    row: int
    first: int
    """Chunk: index of its first state in the sample. Otherwise: offset of these bytes in the whole payload."""
    num_states: int
    payload: memoryview
    aborted: bool
    continued: bool
    """The payload goes on in the next record."""


class RingConsumer:
    """Reads sealed records in order and publishes how far they are written and durable."""

    def __init__(self, mapping: RingMapping, first_sequence: int, sidecar_epoch: int) -> None:
        self._mapping = mapping
        self._header = mapping.header
        self._num_slots = mapping.shape.descriptor_count
        self._next = first_sequence
        self._released = first_sequence
        self._epoch = sidecar_epoch
        self._header[Word.SIDECAR_EPOCH] = sidecar_epoch
        self._header[Word.SIDECAR_ERROR] = 0
        self.beat()

    @classmethod
    def attach(cls, ring_dir: Path, *, server_epoch: int, first_sequence: int, sidecar_epoch: int) -> RingConsumer:
        """Maps the ring of the server that said hello.

        Raises:
            RingCorruptError: when the ring is not there, of another version, or of another server.
        """
        mapping = attach_ring(ring_dir)
        found = mapping.header[Word.SERVER_EPOCH]
        if found != server_epoch:
            raise RingCorruptError(f"expected the ring of server epoch {server_epoch:x}; got {found:x}")
        return cls(mapping, first_sequence, sidecar_epoch)

    @property
    def shape(self) -> RingShape:
        """Size, dtype, columns and hidden size."""
        return self._mapping.shape

    @property
    def next_sequence(self) -> int:
        """The record that `get` gives next."""
        return self._next

    def get(self, sealed: int) -> Record | None:
        """The next record below the cursor `sealed`, or `None` when all were given.

        Raises:
            RingCorruptError: when its descriptor is not what was sealed.
        """
        if self._next >= sealed:
            return None
        found = unpack_descriptor(self._mapping.descriptors, self._next % self._num_slots)
        end = found.offset + found.length
        if (found.sequence, found.sidecar_epoch) != (self._next, self._epoch) or end > self.shape.data_bytes:
            raise RingCorruptError(
                f"expected record {self._next} for sidecar {self._epoch:08x} within {self.shape.data_bytes} bytes; "
                f"got record {found.sequence} for {found.sidecar_epoch:08x} up to byte {end}"
            )
        self._next += 1
        return Record(
            found.sequence,
            found.kind,
            found.row,
            found.first_state,
            found.num_states,
            self._mapping.data[found.offset : end],
            bool(found.flags & RecordFlag.ABORTED),
            bool(found.flags & RecordFlag.CONTINUED),
        )

    def publish(self, released: int, durable: int) -> None:
        """Writes both cursors into the header; the doorbell carries them too.

        Raises:
            ValueError: when a cursor would go back, or pass the records that were given.
        """
        if not self._released <= released <= self._next or durable > released:
            raise ValueError(
                f"expected {self._released} <= released <= {self._next} and durable <= released; "
                f"got {released}, {durable}"
            )
        self._released = released
        self._header[Word.RELEASED] = released
        self._header[Word.DURABLE] = durable

    def sealed_in_header(self) -> int:
        """The sealed cursor of a server that is dead: what it sealed without telling is there too."""
        return self._header[Word.SEALED]

    def ended_in_header(self) -> bool:
        """Whether a server that is dead had published END."""
        return bool(self._header[Word.ENDED])

    def set_state(self, state: SidecarState, exit_code: int = 0) -> None:
        """Shows how far this attempt is, and the exit code of the reason when it failed."""
        self._header[Word.SIDECAR_ERROR] = exit_code
        self._header[Word.SIDECAR_STATE] = state

    def beat(self) -> None:
        """Shows that this process is alive."""
        self._header[Word.SIDECAR_HEARTBEAT_NS] = time.monotonic_ns()
