"""One writer thread: executes the drain thread's commands on one part after another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, TypeAlias

from drillcore.journal import Journal
from drillcore.layout import ShardLayout
from drillcore.part_info import PartInfo
from drillcore.part_schema import PartSchema
from drillcore.part_writer import PartWriter
from drillcore.records import SampleEnd
from drillcore.sample_part_writer import SamplePartWriter
from drillcore_server.sidecar.cursors import Spans

_SYNC_THREADS: Final = 16
"""Files of single samples that wait for the disk at once, with layout PerSample."""


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Append a chunk to the open sample."""

    sequence: int
    payload: memoryview
    """The ring's memory; not touched after `ChunkWritten`."""


@dataclass(frozen=True, slots=True)
class FinishSample:
    """The open sample is whole; its records are [first, end_sequence)."""

    first: int
    end_sequence: int
    end: SampleEnd


@dataclass(frozen=True, slots=True)
class DropSample:
    """Forget the open sample."""


@dataclass(frozen=True, slots=True)
class ClosePart:
    """Make the part durable, journal it, and begin another one with the next command."""


@dataclass(frozen=True, slots=True)
class StopWriting:
    """End the thread."""


Command: TypeAlias = WriteChunk | FinishSample | DropSample | ClosePart | StopWriting


@dataclass(frozen=True, slots=True)
class ChunkWritten:
    """write(2) has returned: the ring's bytes are free."""

    writer: int
    sequence: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class PartClosed:
    """The answer to `ClosePart`: the part is journaled."""

    writer: int
    part: PartInfo | None
    """`None`: it had no sample."""
    spans: tuple[tuple[int, int], ...]
    """Records [first, end) that are durable now."""


Event: TypeAlias = ChunkWritten | PartClosed


class PartJournal:
    """The attempt's journal, part numbers and sync threads, shared by its part threads."""

    def __init__(self, journal: Journal, shard: ShardLayout, attempt: str, numbers: Iterator[int]) -> None:
        self._journal = journal
        self._shard = shard
        self._attempt = attempt
        self._numbers = numbers
        self._lock = threading.Lock()
        self._syncs = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="sync")

    def begin(self, schema: PartSchema) -> PartWriter | SamplePartWriter:
        """A new part under the attempt's next number."""
        with self._lock:
            number = next(self._numbers)
        if schema.per_sample:
            return SamplePartWriter(self._shard, number, self._attempt, schema, self._syncs)
        return PartWriter(self._shard.part(number, self._attempt), schema)

    def commit(self, part: PartInfo) -> None:
        """Journals a durable part: from now on its rows are committed."""
        with self._lock:
            self._journal.append(part)

    def close(self) -> None:
        """Ends the sync threads; no part is open any more."""
        self._syncs.shutdown()


class PartThread:
    """Writes one part at a time. Commands come by `put`, events go out by `emit`; `run` is the thread."""

    def __init__(self, index: int, schema: PartSchema, journal: PartJournal, emit: Callable[[Event], None]) -> None:
        self.index = index
        self._schema = schema
        self._journal = journal
        self._emit = emit
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._abandoned = threading.Event()
        self._part: PartWriter | SamplePartWriter | None = None
        self._spans = Spans()

    def put(self, command: Command) -> None:
        """Queues a command. The queue is bounded by the ring: a record is released after its command is done."""
        self._commands.put(command)

    def abandon(self) -> None:
        """Ends the thread after its current command; the unfinished part is removed."""
        self._abandoned.set()
        self._commands.put(StopWriting())

    def run(self) -> None:
        """Executes commands until `StopWriting`.

        Raises:
            WriteError: when the volume refuses; the unfinished part is removed.
        """
        try:
            while not isinstance(command := self._commands.get(), StopWriting) and not self._abandoned.is_set():
                self._execute(command)
        finally:
            if self._part is not None:
                self._part.abandon()

    def _execute(self, command: Command) -> None:
        match command:
            case WriteChunk(sequence, payload):
                self._open_part().append(payload)
                self._emit(ChunkWritten(self.index, sequence, len(payload)))
            case FinishSample(first, end_sequence, end):
                self._open_part().end_sample(end)
                self._spans.add(first, end_sequence)
            case DropSample():
                self._open_part().drop_sample()
            case ClosePart():
                self._close_part()

    def _open_part(self) -> PartWriter | SamplePartWriter:
        if self._part is None:
            self._part = self._journal.begin(self._schema)
        return self._part

    def _close_part(self) -> None:
        part = None if self._part is None else self._part.close()
        self._part = None
        if part is not None:
            self._journal.commit(part)
        self._emit(PartClosed(self.index, part, self._spans.take()))
