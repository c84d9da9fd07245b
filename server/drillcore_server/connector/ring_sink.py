"""The sink that ships samples through the shared-memory ring to the sidecar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drillcore_server.ring.record_writer import RingChunk

if TYPE_CHECKING:
    from drillcore.records import QuarantineEntry, SampleEnd
    from drillcore_server.connector.base import Chunk
    from drillcore_server.ring.producer import RingProducer


class RingSink:
    """A `SampleSink` over a connected `RingProducer`, which its owner connects, ends and closes."""

    def __init__(self, producer: RingProducer) -> None:
        self._producer = producer

    def has_room(self) -> bool:
        """Whether a chunk of usual size fits into the ring now."""
        return self._producer.has_room()

    def reserve(self, max_states: int) -> RingChunk | None:
        """A chunk in the ring's memory; `None` while the ring is full."""
        return self._producer.reserve(max_states)

    def seal(self, chunk: Chunk, *, row: int, first_state: int) -> None:
        """Makes the oldest open chunk visible to the sidecar.

        Raises:
            ValueError: when the chunk is not the oldest open one of this ring.
        """
        if not isinstance(chunk, RingChunk):
            raise ValueError(f"expected a chunk of this sink; got {type(chunk).__name__}")
        self._producer.seal(chunk, row=row, first_state=first_state)

    def end_sample(self, end: SampleEnd) -> bool:
        """Completes the sample; `False`: no room now."""
        return self._producer.end_sample(end)

    def abort_sample(self, row: int) -> bool:
        """Drops the open sample; `False`: no room now."""
        return self._producer.abort_sample(row)

    def quarantine(self, entry: QuarantineEntry) -> bool:
        """Records a row that cannot be extracted; `False`: no room now."""
        return self._producer.quarantine(entry)

    def poll(self) -> None:
        """Tells the sidecar what is sealed and reads what it has released.

        Raises:
            SidecarGoneError: when the sidecar ended.
            ShardError: with the reason that the sidecar gives.
        """
        self._producer.poll()

    def wait(self, timeout_s: float) -> None:
        """Blocks until the sidecar says something, at most `timeout_s`, and polls."""
        self._producer.wait(timeout_s)
