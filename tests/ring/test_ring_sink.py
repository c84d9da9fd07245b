from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drillcore_server.connector.ring_sink import RingSink
from drillcore_server.ring.consumer import RingConsumer
from drillcore_server.ring.doorbell import Released
from drillcore_server.ring.layout import RecordKind
from drillcore_server.ring.producer import RingProducer


@dataclass
class ForeignChunk:
    buffer: memoryview
    num_states: int


def test_the_sinks_calls_become_records(tmp_path: Path, played_sidecar: Any, sample_end: Callable[..., Any]) -> None:
    producer = RingProducer.create(tmp_path, 256 * 1024, dtype="F32", columns=1, hidden=16)
    with ThreadPoolExecutor(1) as aside:
        greeting = aside.submit(played_sidecar.greet)
        producer.connect(10)
    sink = RingSink(producer)
    assert sink.has_room()
    first, second = sink.reserve(2), sink.reserve(1)
    assert first is not None
    assert second is not None
    assert sink.end_sample(sample_end(5, 3))
    sink.seal(first, row=5, first_state=0)
    with pytest.raises(ValueError, match="chunk of this sink; got ForeignChunk"):
        sink.seal(ForeignChunk(memoryview(b""), 1), row=5, first_state=2)
    sink.seal(second, row=5, first_state=2)
    assert sink.abort_sample(6)
    sink.poll()
    sealed = played_sidecar.next_message().sealed
    consumer = RingConsumer.attach(
        tmp_path, server_epoch=greeting.result().server_epoch, first_sequence=0, sidecar_epoch=7
    )
    records = [consumer.get(sealed) for _ in range(5)]
    assert [(r.kind, r.row, r.first, r.num_states, r.aborted) for r in records if r is not None] == [
        (RecordKind.CHUNK, 5, 0, 2, False),
        (RecordKind.CHUNK, 5, 2, 1, False),
        (RecordKind.SAMPLE_END, 5, 0, 0, False),
        (RecordKind.SAMPLE_END, 6, 0, 0, True),
    ]
    played_sidecar.say(Released(sealed, sealed))
    sink.wait(10)
    assert producer.released == sealed == 4
    producer.close()
