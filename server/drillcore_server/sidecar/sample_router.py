"""Records of the ring to samples, samples to writers. Runs in the drain thread.

A sample's records are all records after the end of the sample before it, up to its own SAMPLE_END. They are durable
together: when the part that holds the sample is journaled, or at once when the sample is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from drillcore.journal import QuarantineLog
from drillcore.json_fields import parse_json
from drillcore.records import QuarantineEntry, SampleEnd
from drillcore_server.errors import ShardError
from drillcore_server.ring.consumer import Record
from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.layout import RecordKind
from drillcore_server.ring.sample_codec import decode_sample_end
from drillcore_server.sidecar.cursors import InOrderCursor, Spans
from drillcore_server.sidecar.part_pool import PartPool
from drillcore_server.sidecar.part_thread import Event, PartClosed
from drillcore_server.sidecar.progress import ShardProgress
from drillcore_server.sidecar.row_ledger import RowLedger
from drillcore_server.sidecar.writer_load import WriterLoad
from drillcore_spec.reasons import Reason

_QUARANTINE_RECORD = Path("quarantine record")


@dataclass
class _OpenSample:
    """The sample whose records come now."""

    load: WriterLoad | None = None
    """Its writer; `None` before its first chunk."""
    row: int = -1
    num_states: int = 0
    num_bytes: int = 0
    pieces: list[bytes] = field(default_factory=list)
    """Bytes of a record that comes in several pieces."""


class SampleRouter:
    """Takes records one by one; owns the cursors."""

    def __init__(
        self,
        pool: PartPool,
        ledger: RowLedger,
        quarantine: QuarantineLog,
        progress: ShardProgress,
        *,
        first_sequence: int,
        size_limit_bytes: int | None,
    ) -> None:
        self._pool = pool
        self._ledger = ledger
        self._quarantine = quarantine
        self._progress = progress
        self._size_limit_bytes = size_limit_bytes
        self._bytes_taken = 0
        self._sample = _OpenSample()
        self._sample_first = first_sequence
        self._released = InOrderCursor(first_sequence)
        self._durable = InOrderCursor(first_sequence)
        self._unsynced = Spans()

    @property
    def released(self) -> int:
        """Records below this cursor are written or need not be: the server may reuse their bytes."""
        return self._released.value

    @property
    def durable(self) -> int:
        """Records below this cursor are on the volume, or were dropped."""
        return min(self._durable.value, self._released.value)

    @property
    def writer_of_open_sample(self) -> WriterLoad | None:
        """The writer whose part cannot close now."""
        return self._sample.load

    @property
    def has_unsynced_quarantine(self) -> bool:
        """Whether entries wait for `sync_quarantine`."""
        return bool(self._unsynced)

    def take(self, record: Record) -> None:
        """Hands one record on.

        Raises:
            RingCorruptError: when it does not continue its sample.
            ShardError: OutputSizeLimit, or Internal for a row that is not the shard's or came before.
        """
        if record.kind is RecordKind.CHUNK and not record.aborted:
            self._take_chunk(record)
            return
        # The bytes of every other record are copied here: they are free.
        self._released.complete(record.sequence, record.sequence + 1)
        if record.kind is RecordKind.SAMPLE_END and record.aborted:
            self._drop_sample(record)
        elif record.kind is not RecordKind.CHUNK:
            payload = self._whole_payload(record)
            if payload is not None and record.kind is RecordKind.SAMPLE_END:
                self._finish_sample(record, decode_sample_end(record.row, payload))
            elif payload is not None:
                self._quarantine_row(record, payload)

    def apply(self, event: Event) -> None:
        """Moves the cursors over what a part thread has done."""
        if isinstance(event, PartClosed):
            for first, end in event.spans:
                self._durable.complete(first, end)
            if event.part is not None:
                self._progress.add_durable(event.part)
        else:
            self._released.complete(event.sequence, event.sequence + 1)

    def sync_quarantine(self) -> None:
        """Brings the quarantined rows to the disk."""
        self._quarantine.sync()
        for first, end in self._unsynced.take():
            self._durable.complete(first, end)

    def _take_chunk(self, record: Record) -> None:
        sample, size = self._sample, len(record.payload)
        if sample.load is None:
            sample.load = self._pool.begin_sample()
            sample.row = record.row
        if (record.row, record.first) != (sample.row, sample.num_states):
            raise RingCorruptError(
                f"record {record.sequence}: expected state {sample.num_states} of row {sample.row}; "
                f"got state {record.first} of row {record.row}"
            )
        self._require_space(size)
        sample.num_states += record.num_states
        sample.num_bytes += size
        self._pool.write(sample.load, record.sequence, record.payload)

    def _whole_payload(self, record: Record) -> bytes | None:
        """The payload of a record that is no chunk, once its last piece is there."""
        pieces = self._sample.pieces
        if record.first == 0:
            pieces.clear()
        have = sum(map(len, pieces))
        if record.first != have:
            raise RingCorruptError(f"record {record.sequence}: expected the piece at {have}; got {record.first}")
        pieces.append(bytes(record.payload))
        return None if record.continued else b"".join(pieces)

    def _finish_sample(self, record: Record, end: SampleEnd) -> None:
        sample = self._sample
        if end.num_states != sample.num_states or (sample.load is not None and sample.row != end.row):
            raise RingCorruptError(
                f"record {record.sequence}: row {end.row} ends with {end.num_states} states; "
                f"{sample.num_states} of row {sample.row} came"
            )
        self._ledger.store(end.row)
        load = sample.load or self._pool.begin_sample()
        self._pool.finish_sample(load, self._sample_first, record.sequence + 1, end)
        self._progress.add_written(len(end.token_ids), sample.num_bytes)
        self._next_sample(record)

    def _drop_sample(self, record: Record) -> None:
        if self._sample.load is not None:
            self._pool.drop_sample(self._sample.load)
            self._bytes_taken -= self._sample.num_bytes
        self._durable.complete(self._sample_first, record.sequence + 1)
        self._next_sample(record)

    def _quarantine_row(self, record: Record, payload: bytes) -> None:
        entry = QuarantineEntry.from_json(parse_json(payload, _QUARANTINE_RECORD), _QUARANTINE_RECORD)
        if self._ledger.quarantine(entry.row):
            self._quarantine.append(entry)
            self._progress.add_quarantined()
        self._unsynced.add(self._sample_first, record.sequence + 1)
        self._next_sample(record)

    def _next_sample(self, record: Record) -> None:
        self._sample = _OpenSample()
        self._sample_first = record.sequence + 1

    def _require_space(self, num_bytes: int) -> None:
        limit = self._size_limit_bytes
        self._bytes_taken += num_bytes
        if limit is not None and self._bytes_taken > limit:
            raise ShardError(
                Reason.OUTPUT_SIZE_LIMIT,
                f"this shard's share of `output.sizeLimit` leaves {max(0, limit)} bytes; the next states need "
                f"{self._bytes_taken}. What is committed stays: raise output.sizeLimit in a new job on this output",
            )
