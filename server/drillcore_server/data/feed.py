"""Prepared rows ahead of the engine: a thread reads and encodes while the engine computes.

    files -> Dataset.read -> RowPreparer.prepare_batch -> bounded buffer -> engine
             '------------- feed thread -------------'

Encoding runs in Rust without the interpreter's lock, so that the engine's thread hardly notices.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from drillcore.records import QuarantineEntry
from drillcore_server.data.dataset import Dataset
from drillcore_server.data.packing import ContextPacker
from drillcore_server.data.preparer import RowPreparer
from drillcore_server.data.rows import PreparedRow, SourceRow

MAX_BATCH_ROWS = 256
MAX_BATCH_BYTES = 1 << 20
"""A batch takes some 30 MB while the tokenizer works on it."""
FIRST_BATCH_ROWS = 16
"""The first batch is small: the engine waits for it with nothing to do."""
MAX_BUFFERED_BATCHES = 8

Batch = list[PreparedRow | QuarantineEntry]


def prepared_batches(
    dataset: Dataset,
    preparer: RowPreparer,
    rows: range,
    skip: NDArray[np.int64] | None = None,
    *,
    shard: int = 0,
) -> Iterator[Batch]:
    """The rows of a shard as tokens, in order, in batches of bounded size.

    Args:
        dataset: what `rows` are rows of.
        preparer: its counts grow as the iterator moves on.
        rows: the dataset's rows of this shard.
        skip: sorted rows that are not wanted any more: of the dataset, or with contextSize of contexts.
        shard: index of the shard, which numbers its contexts.

    Raises:
        ShardError: what `Dataset.read` and `RowPreparer.prepare_batch` raise.
    """
    source = preparer.source
    if not source.context_size:
        for batch in _batched(dataset.read(rows, skip)):
            yield preparer.prepare_batch(batch)
        return
    packer = ContextPacker(preparer.tokenizer, source.columns.text or "", source.context_size, shard, skip)
    for batch in _batched(dataset.read(rows)):
        yield packer.prepare_batch(batch)
    preparer.counts.dropped_tokens += packer.num_pending_tokens


class RowFeed:
    """An iterator over batches that are made in a thread of their own, at most MAX_BUFFERED_BATCHES ahead.

    A context manager: leaving it ends the thread. What fails in the thread is raised from `next`, after the
    batches that were made before.
    """

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self._ready: deque[Batch] = deque()
        self._error: BaseException | None = None
        self._is_exhausted = False
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="row-feed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._is_exhausted)
            if self._ready:
                self._changed.notify_all()
                return self._ready.popleft()
        if self._error is not None:
            raise self._error
        raise StopIteration

    def _run(self) -> None:
        try:
            for batch in self._batches:
                if not self._offer(batch):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that reads
            self._error = error
        finally:
            with self._changed:
                self._is_exhausted = True
                self._changed.notify_all()

    def _offer(self, batch: Batch) -> bool:
        """Hand a batch over when there is room; False when nobody wants it any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._ready) < MAX_BUFFERED_BATCHES)
            self._ready.append(batch)
            self._changed.notify_all()
            return not self._is_closed


def _batched(items: Iterable[SourceRow | QuarantineEntry]) -> Iterator[list[SourceRow | QuarantineEntry]]:
    batch: list[SourceRow | QuarantineEntry] = []
    num_bytes, max_rows = 0, FIRST_BATCH_ROWS
    for item in items:
        batch.append(item)
        num_bytes += item.num_bytes if isinstance(item, SourceRow) else 0
        if len(batch) >= max_rows or num_bytes >= MAX_BATCH_BYTES:
            yield batch
            batch, num_bytes, max_rows = [], 0, MAX_BATCH_ROWS
    if batch:
        yield batch
