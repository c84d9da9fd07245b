"""The writer threads and what the drain thread tells them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from drillcore.part_schema import PartSchema
from drillcore.records import SampleEnd
from drillcore_server.sidecar.part_thread import (
    ChunkWritten,
    ClosePart,
    DropSample,
    Event,
    FinishSample,
    PartClosed,
    PartJournal,
    PartThread,
    WriteChunk,
)
from drillcore_server.sidecar.writer_load import WriterLoad, choose_writer


@dataclass(frozen=True)
class PartLimits:
    """When a part closes, and when a writer is busy."""

    part_bytes: int
    part_age_s: float
    busy_bytes: int
    """With so much handed over and not written, the next sample goes to another writer."""


class PartPool:
    """Starts the part threads. All methods run in the drain thread; none of them blocks but `stop`."""

    def __init__(
        self,
        num_writers: int,
        schema: PartSchema,
        journal: PartJournal,
        limits: PartLimits,
        wake: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._wake = wake
        self._events: deque[Event] = deque()
        self._threads = [PartThread(index, schema, journal, self._emit) for index in range(num_writers)]
        self._loads = [WriterLoad(index) for index in range(num_writers)]
        self._executor = ThreadPoolExecutor(num_writers, thread_name_prefix="part")
        self._runs: list[Future[None]] = [self._executor.submit(thread.run) for thread in self._threads]
        for run in self._runs:
            run.add_done_callback(lambda _: wake())

    @property
    def num_open_parts(self) -> int:
        """Parts that have a sample and are not durable yet."""
        return sum(load.num_closing + (load.opened_at_s is not None) for load in self._loads)

    def begin_sample(self) -> WriterLoad:
        """The writer of the next sample."""
        load = choose_writer(self._loads, self._limits.busy_bytes)
        load.begin_sample(time.monotonic())
        return load

    def write(self, load: WriterLoad, sequence: int, payload: memoryview) -> None:
        """Has a chunk written."""
        load.queued_bytes += len(payload)
        load.part_bytes += len(payload)
        self._threads[load.index].put(WriteChunk(sequence, payload))

    def finish_sample(self, load: WriterLoad, first: int, end_sequence: int, end: SampleEnd) -> None:
        """Completes the sample, and closes the part when it is due."""
        load.part_bytes += end.token_ids.nbytes
        self._threads[load.index].put(FinishSample(first, end_sequence, end))
        if load.is_due(self._limits.part_bytes, self._limits.part_age_s, time.monotonic()):
            self._close(load)

    def drop_sample(self, load: WriterLoad) -> None:
        """Forgets the sample."""
        self._threads[load.index].put(DropSample())

    def close_due_parts(self, busy: WriterLoad | None) -> None:
        """Closes the parts that are old enough, but for the one of the sample that is open now."""
        now_s = time.monotonic()
        for load in self._loads:
            if load is not busy and load.is_due(self._limits.part_bytes, self._limits.part_age_s, now_s):
                self._close(load)

    def close_all_parts(self) -> None:
        """Closes every part that has a sample; an open sample is dropped."""
        for load in self._loads:
            if load.opened_at_s is not None:
                self._close(load)

    def next_close_s(self, busy: WriterLoad | None) -> float:
        """Seconds until `close_due_parts` will have something to do; infinite when nothing is open."""
        opened = [load.opened_at_s for load in self._loads if load.opened_at_s is not None and load is not busy]
        return min(opened, default=math.inf) + self._limits.part_age_s - time.monotonic()

    def collect(self) -> list[Event]:
        """What the part threads have done since the last call.

        Raises:
            WriteError: when the volume refused one of them.
        """
        events = []
        while self._events:
            event = self._events.popleft()
            match event:
                case ChunkWritten(writer, _, num_bytes):
                    self._loads[writer].queued_bytes -= num_bytes
                case PartClosed(writer):
                    self._loads[writer].num_closing -= 1
            events.append(event)
        for run in self._runs:
            if run.done():
                run.result()
        return events

    def stop(self) -> None:
        """Ends the threads; parts that are not closed are removed."""
        for thread in self._threads:
            thread.abandon()
        self._executor.shutdown(wait=True)

    def _close(self, load: WriterLoad) -> None:
        load.begin_close()
        self._threads[load.index].put(ClosePart())

    def _emit(self, event: Event) -> None:
        """Called in the part threads."""
        self._events.append(event)
        self._wake()
