"""Samples through the sink: one open at a time, the copies of many under way.

    ready ──► open: chunk reserved, copy started ... end recorded ──► closed ──► last copy landed, sealed: released

A sample's end is recorded as soon as its last chunk is reserved, so the next one opens without waiting for copies.
While the sink has no room, samples wait here and keep their blocks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from drillcore.records import QuarantineEntry
from drillcore_server.connector.base import Chunk, SampleSink
from drillcore_server.connector.copies import StateCopier
from drillcore_server.connector.host_memory import Landing
from drillcore_server.connector.means import MeanReducer
from drillcore_server.connector.sample import Sample
from drillcore_spec.enums import PositionsKind

_CONSECUTIVE = frozenset((PositionsKind.ALL, PositionsKind.WINDOW))
"""Kinds whose states lie in few runs of the cache, which need no gather."""


@dataclass(slots=True, eq=False)
class FilledChunk:
    """A chunk whose copy was started."""

    sample: Sample
    chunk: Chunk
    first_state: int


@dataclass(slots=True, eq=False)
class Shipment:
    """Copies that were started in one poll and land together."""

    landing: Landing
    chunks: list[FilledChunk]


@dataclass(slots=True, eq=False)
class Outgoing:
    """What one poll has reserved so far."""

    chunks: list[FilledChunk] = field(default_factory=list)
    gather_slots: list[NDArray[np.int64]] = field(default_factory=list)
    gather_buffers: list[memoryview] = field(default_factory=list)


class Shipper:
    """The queue of samples in front of a sink. Knows nothing of steps."""

    def __init__(self, sink: SampleSink, copier: StateCopier) -> None:
        self._sink = sink
        self._copier = copier
        self._means = MeanReducer(copier)
        self._partial: dict[int, Sample] = {}
        self._complete: deque[Sample] = deque()
        self._open: Sample | None = None
        self._quarantines: deque[QuarantineEntry] = deque()
        self._shipments: deque[Shipment] = deque()
        self._released: list[Sample] = []

    @property
    def is_copying(self) -> bool:
        """Whether copies are under way."""
        return bool(self._shipments) or self._means.is_reducing

    @property
    def awaits_room(self) -> bool:
        """After a poll: whether something could be shipped if the sink had room."""
        return bool(self._complete or self._quarantines) or (self._open is not None and self._open.can_move)

    @property
    def has_quarantines(self) -> bool:
        """Whether entries of the quarantine list wait for room."""
        return bool(self._quarantines)

    def offer(self, sample: Sample) -> None:
        """A sample has states to ship though its request goes on."""
        self._partial[sample.row] = sample

    def complete(self, sample: Sample) -> None:
        """A sample will get no more states, or must not be shipped."""
        self._partial.pop(sample.row, None)
        if sample.awaits_mean:
            self._means.add(sample)
        elif sample is not self._open:
            self._complete.append(sample)

    def drop(self, sample: Sample) -> bool:
        """A sample was aborted; gives whether a later `poll` will release it.

        It does not if nothing of it is in the sink: then its blocks are not read any more.
        """
        if sample is self._open or sample.closed or sample in self._means:
            return True
        sample.closed = True
        self._partial.pop(sample.row, None)
        return False

    def quarantine(self, entry: QuarantineEntry) -> None:
        """Queues an entry of the quarantine list; it goes out between two samples."""
        self._quarantines.append(entry)

    def poll(self) -> list[Sample]:
        """Seals what has landed, starts what there is room for; gives the samples whose blocks nothing reads."""
        self._sink.poll()
        self._seal_landed()
        self._complete.extend(self._means.poll())
        outgoing = Outgoing()
        self._fill_sink(outgoing)
        if outgoing.chunks:
            if outgoing.gather_slots:
                self._copier.copy_gathered(outgoing.gather_slots, outgoing.gather_buffers)
            self._shipments.append(Shipment(self._copier.mark(), outgoing.chunks))
            self._seal_landed()
        released, self._released = self._released, []
        return released

    def wait_for_copy(self) -> None:
        """Blocks until the oldest copies have landed; there must be some."""
        if self._shipments:
            self._shipments[0].landing.synchronize()
        else:
            self._means.wait()

    def reset(self) -> None:
        """Forgets every sample when all copies have landed; nothing is sealed.

        Also after a call of the sink failed: copies that were started before that have landed too.
        """
        self._copier.mark().synchronize()
        for queue in (self._partial, self._complete, self._quarantines, self._shipments, self._released):
            queue.clear()
        self._means.clear()
        self._open = None

    def _fill_sink(self, outgoing: Outgoing) -> None:
        """Opens one sample after another until the sink has no room or nothing is ready."""
        while self._open is not None or self._send_quarantines():
            sample = self._open = self._open or self._next_sample()
            if sample is None or not self._ship(sample, outgoing):
                return
            self._open = None
            self._close(sample)

    def _next_sample(self) -> Sample | None:
        """The sample that was complete first, else the oldest one of which something is computed."""
        while self._complete:
            sample = self._complete.popleft()
            if not sample.closed:
                return sample
        return next(iter(self._partial.values()), None)

    def _ship(self, sample: Sample, outgoing: Outgoing) -> bool:
        """Ships what is ready of the open sample; gives whether its end, or its abort, is recorded."""
        if sample.is_over:
            return sample.num_shipped == 0 or self._sink.abort_sample(sample.row)
        while sample.num_ready:
            chunk = self._sink.reserve(sample.num_ready)
            if chunk is None:
                return False
            self._start_copy(sample, chunk, outgoing)
        return sample.text is not None and self._sink.end_sample(sample.end(sample.text))

    def _start_copy(self, sample: Sample, chunk: Chunk, outgoing: Outgoing) -> None:
        outgoing.chunks.append(FilledChunk(sample, chunk, sample.num_shipped))
        if sample.mean is not None:
            chunk.buffer[:] = sample.mean.view(torch.uint8).numpy().reshape(-1).data
        elif sample.header.positions in _CONSECUTIVE:
            self._copier.copy_runs(sample.ready_slots()[: chunk.num_states], chunk.buffer)
        else:
            outgoing.gather_slots.append(sample.ready_slots()[: chunk.num_states])
            outgoing.gather_buffers.append(chunk.buffer)
        sample.ship(chunk.num_states)

    def _close(self, sample: Sample) -> None:
        """Nothing of the sample will be reserved any more."""
        sample.closed = True
        self._partial.pop(sample.row, None)
        if sample.quarantine is not None and not sample.aborted:
            self._quarantines.append(sample.quarantine)
        self._release_if_done(sample)

    def _send_quarantines(self) -> bool:
        """Sends the queued entries; gives whether all are sent."""
        while self._quarantines:
            if not self._sink.quarantine(self._quarantines[0]):
                return False
            self._quarantines.popleft()
        return True

    def _seal_landed(self) -> None:
        while self._shipments and self._shipments[0].landing.query():
            for filled in self._shipments.popleft().chunks:
                sample = filled.sample
                self._sink.seal(filled.chunk, row=sample.row, first_state=filled.first_state)
                sample.num_unsealed -= 1
                self._release_if_done(sample)

    def _release_if_done(self, sample: Sample) -> None:
        if sample.closed and sample.num_unsealed == 0:
            self._released.append(sample)
