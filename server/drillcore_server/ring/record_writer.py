"""Records in the server's mapping of the ring: reserve, seal, append, take back.

Records are created in the order of the calls. Chunks are filled later, by asynchronous copies, and sealed in the
order in which they were reserved; all other records are sealed when they are made. The `sealed` cursor stops at
the oldest open chunk, so the sidecar sees every record in the order of creation:

    records   C0 C1 E  C2 C3 E  Q          C chunk, E sample's end, Q quarantined row
    open      .. C1 .. C2 C3
    sealed    ───┘ (1)      created 7

Only memory is touched here; `RingProducer` tells the sidecar.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from drillcore_server.ring.descriptor import Descriptor, pack_descriptor, unpack_descriptor
from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.layout import RecordFlag, RecordKind, Word
from drillcore_server.ring.ring_file import RingMapping
from drillcore_server.ring.space import ByteSpace, Span

FULL_PIECE_BYTES: Final = 2 * 1024 * 1024
"""From this size on a chunk is copied and written at full speed (measured on an H200: single 2 MiB copies reach
52 of 55 GB/s), so a larger wish may be cut, but not into smaller pieces than this."""
_PIECES_PER_RING: Final = 8
"""A small ring is divided into at least so many pieces, so that filling, writing and waiting overlap."""


@dataclass(frozen=True, slots=True)
class RingChunk:
    """Room for consecutive states of one sample: the producer's until it is sealed."""

    buffer: memoryview
    """Writable, `num_states * row_bytes` long, starts at a multiple of 64 bytes."""
    num_states: int
    sequence: int
    span: Span


@dataclass
class _Blob:
    """Bytes that did not fit as one record, and how many of them are in the ring."""

    key: tuple[RecordKind, int]
    payload: bytes
    num_sent: int = 0


class RecordWriter:
    """The producer's cursors, its free space and its open chunks."""

    def __init__(self, mapping: RingMapping) -> None:
        self._mapping = mapping
        self._header = mapping.header
        self._row_bytes = mapping.shape.row_bytes
        self._num_slots = mapping.shape.descriptor_count
        self._space = ByteSpace(mapping.shape.data_bytes)
        self._open: deque[int] = deque()
        self._blob: _Blob | None = None
        self._epoch = 0
        self._piece_bytes = min(FULL_PIECE_BYTES, mapping.shape.data_bytes // _PIECES_PER_RING)
        self._piece_states = max(1, self._piece_bytes // self._row_bytes)
        self.created = 0
        self.released = 0

    @property
    def sealed(self) -> int:
        """Records below this cursor are immutable."""
        return self._open[0] if self._open else self.created

    @property
    def bytes_created(self) -> int:
        """Position in the data area after the newest record."""
        return self._space.head

    def has_room(self) -> bool:
        """Whether a chunk of the size that is always given out whole would fit."""
        return self._has_slot() and self._space.has(self._piece_states * self._row_bytes)

    def reserve(self, max_states: int) -> RingChunk | None:
        """A chunk of up to `max_states` states; `None` when there is no room for a reasonable piece of it."""
        if max_states < 1:
            raise ValueError(f"expected max_states >= 1; got {max_states}")
        span = self._take(min(max_states, self._piece_states) * self._row_bytes, max_states * self._row_bytes)
        if span is None:
            return None
        chunk = RingChunk(self._bytes_of(span), span.length // self._row_bytes, self.created, span)
        self._open.append(chunk.sequence)
        self._advance_created()
        return chunk

    def seal(self, chunk: RingChunk, row: int, first_state: int, flags: RecordFlag = RecordFlag.NONE) -> None:
        """Makes the oldest open chunk immutable.

        Raises:
            ValueError: when it is not the oldest open chunk.
        """
        if not self._open or self._open[0] != chunk.sequence:
            raise ValueError(
                f"chunks are sealed in the order of reserve: expected record {self._open[0] if self._open else None}, "
                f"got {chunk.sequence}"
            )
        self._describe(chunk.sequence, RecordKind.CHUNK, row, chunk.span, first_state, chunk.num_states, flags)
        self._open.popleft()
        self._header[Word.SEALED] = self.sealed

    def append(self, kind: RecordKind, row: int, payload: bytes, flags: RecordFlag = RecordFlag.NONE) -> bool:
        """Adds a record that is no chunk, in several pieces if it must; `False` until its last piece is in.

        After `False` the call is repeated with the same arguments, or never: bytes that are already in are
        dropped by the consumer when another record follows.
        """
        blob = self._blob
        if blob is None or blob.key != (kind, row) or blob.payload != payload:
            blob = self._blob = _Blob((kind, row), payload)
        while self._append_piece(blob, flags):
            if blob.num_sent == len(payload):
                self._blob = None
                self._header[Word.SEALED] = self.sealed
                return True
        return False

    def release_to(self, sequence: int) -> None:
        """Takes back the space and slots of all records below `sequence`.

        Raises:
            RingCorruptError: when those are not sealed.
        """
        if sequence == self.released:
            return
        if not self.released < sequence <= self.sealed:
            raise RingCorruptError(f"the sidecar released up to {sequence}; expected {self.released} to {self.sealed}")
        last = unpack_descriptor(self._mapping.descriptors, (sequence - 1) % self._num_slots)
        self._space.free(last.end)
        self.released = sequence

    def set_epoch(self, sidecar_epoch: int) -> None:
        """Seals what follows for this sidecar."""
        self._epoch = sidecar_epoch

    def drop_all(self) -> None:
        """Gives up every record and open chunk. Nobody may write into their buffers any more."""
        self._open.clear()
        self._blob = None
        self._space.free(self._space.head)
        self.released = self.created
        for word in (Word.RELEASED, Word.DURABLE, Word.SEALED):
            self._header[word] = self.created
        self._header[Word.ENDED] = 0

    def _append_piece(self, blob: _Blob, flags: RecordFlag) -> bool:
        rest = len(blob.payload) - blob.num_sent
        if rest == 0:
            span: Span | None = Span(0, 0, self._space.head) if self._has_slot() else None
        else:
            span = self._take(min(rest, self._piece_bytes), rest, granule=1)
        if span is None:
            return False
        start, end = blob.num_sent, blob.num_sent + span.length
        self._bytes_of(span)[:] = blob.payload[start:end]
        more = RecordFlag.CONTINUED if end < len(blob.payload) else RecordFlag.NONE
        self._describe(self.created, blob.key[0], blob.key[1], span, start, 0, flags | more)
        blob.num_sent = end
        self._advance_created()
        return True

    def _take(self, min_bytes: int, max_bytes: int, granule: int | None = None) -> Span | None:
        if not self._has_slot():
            return None
        return self._space.take(min_bytes, max_bytes, self._row_bytes if granule is None else granule)

    def _has_slot(self) -> bool:
        return self.created - self.released < self._num_slots

    def _bytes_of(self, span: Span) -> memoryview:
        return self._mapping.data[span.offset : span.offset + span.length]

    def _advance_created(self) -> None:
        self.created += 1
        self._header[Word.CREATED] = self.created

    def _describe(
        self,
        sequence: int,
        kind: RecordKind,
        row: int,
        span: Span,
        first: int,
        num_states: int,
        flags: RecordFlag,
    ) -> None:
        descriptor = Descriptor(
            sequence, row, span.offset, span.length, span.end, first, self._epoch, num_states, kind, flags
        )
        pack_descriptor(self._mapping.descriptors, sequence % self._num_slots, descriptor)
