"""The sink that hands each sample to a writer thread, for a server that answers each request with a file.

Nobody waits for somebody else's file: samples lie in host memory from the moment that their blocks are free, and any
thread writes any of them. What lies there is bounded. Once the bound is reached the engine admits nobody until
a thread has finished, as it does when the ring is full.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

from drillcore.records import QuarantineEntry
from drillcore_server.connector.list_sink import ExtractedSample, HostChunk, InProcessSink, StateShape

NUM_WRITER_THREADS = 8
MAX_HELD_BYTES = 1 << 30

Written = TypeVar("Written")


class FileSink(InProcessSink, Generic[Written]):
    """A `SampleSink` over a pool of threads."""

    def __init__(
        self,
        shape: StateShape,
        write: Callable[[ExtractedSample], Written],
        settle: Callable[[int, Written | BaseException], None],
        on_quarantine: Callable[[QuarantineEntry], None],
        *,
        num_threads: int = NUM_WRITER_THREADS,
        max_held_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        """Make the pool.

        Args:
            shape: of the states.
            write: makes a sample durable; runs in a writer thread, and may take as long as it likes.
            settle: takes a sample's row, and what `write` gave or raised; runs in the same thread.
            on_quarantine: see `InProcessSink`.
            num_threads: samples that are written at the same time.
            max_held_bytes: states in host memory; a larger sample passes when it is the only one.
        """
        super().__init__(shape, self._enqueue, on_quarantine)
        self._write = write
        self._settle = settle
        self._max_held_bytes = max_held_bytes
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="file-writer")
        self._moved = threading.Condition()
        self._held_bytes = 0
        self._num_saving = 0

    @property
    def num_saving(self) -> int:
        """Samples that are complete and not settled."""
        return self._num_saving

    @property
    def held_bytes(self) -> int:
        """States in host memory."""
        return self._held_bytes

    def has_room(self) -> bool:
        """Whether samples may still come, or none would ever leave."""
        return self._held_bytes < self._max_held_bytes or not self._num_saving

    def reserve(self, max_states: int) -> HostChunk | None:  # type: ignore[override]
        """A chunk for all of them, or `None` while writers are behind."""
        if not self.has_room():
            return None
        chunk = super().reserve(max_states)
        self._hold(chunk.states.nbytes)
        return chunk

    def wait(self, timeout_s: float) -> None:
        """Blocks until a sample was written, at most `timeout_s`, if there is no room."""
        with self._moved:
            if not self.has_room():
                self._moved.wait(timeout_s)

    def close(self) -> None:
        """Ends the threads once everything is written."""
        self._pool.shutdown(wait=True)

    def _drop(self, parts: list[torch.Tensor]) -> None:
        self._hold(-sum(part.nbytes for part in parts))

    def _enqueue(self, sample: ExtractedSample) -> None:
        with self._moved:
            self._num_saving += 1
        self._pool.submit(self._save, sample)

    def _save(self, sample: ExtractedSample) -> None:
        try:
            outcome: Written | BaseException = self._write(sample)
        except Exception as error:  # noqa: BLE001 - whoever asked for the sample gets it
            outcome = error
        num_bytes, row = sample.hidden_states.nbytes, sample.end.row
        del sample
        with self._moved:
            self._num_saving -= 1
            self._held_bytes -= num_bytes
            self._moved.notify_all()
        self._settle(row, outcome)

    def _hold(self, num_bytes: int) -> None:
        with self._moved:
            self._held_bytes += num_bytes
