"""Prepared rows from a process of their own, for engines whose Python must not wait.

On a fast GPU the engine's thread gives up the interpreter's lock at every kernel launch, and a thread that
renders conversations would keep it for milliseconds each time. The child has a lock of its own.

    this process  -- stdin: one pickled task -->  python -m drillcore_server.data.feed_worker
                  <-- stdout: pickled batches --

The child ends when its batches are read, when it is told to, or when this process is gone and nobody reads.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from drillcore_server.data.dataset import Dataset
from drillcore_server.data.feed import Batch
from drillcore_server.data.preparer import RowPreparer
from drillcore_server.data.rows import PreparationCounts
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

_WORKER = "drillcore_server.data.feed_worker"


@dataclass(frozen=True)
class FeedTask:
    """Which rows to prepare, and how. Can be pickled."""

    dataset: Dataset
    preparer: RowPreparer
    """Goes over as it is, so that the child loads no tokenizer."""
    rows: range
    skip: NDArray[np.int64] | None = None
    """Sorted row numbers to leave out."""
    shard: int = 0
    """Index of the shard."""


@dataclass(frozen=True)
class FeedFailure:
    """What ended the child before its last batch."""

    reason: Reason
    message: str


class ProcessFeed:
    """An iterator over the batches of a task, made in a child process; a context manager that ends it.

    `next` raises what fails in the child as ShardError: INTERNAL when it died.
    """

    def __init__(self, task: FeedTask) -> None:
        self._task = task
        self.counts = PreparationCounts()
        """Of the whole task, once the last batch was read."""

    def __enter__(self) -> Self:
        self._child = subprocess.Popen([sys.executable, "-m", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            pickle.dump(self._task, self._stream("stdin"))
            self._stream("stdin").close()
        except BrokenPipeError:
            # It died at its start; `next` says so.
            pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.wait()
        self._stream("stdout").close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        try:
            message: Batch | FeedFailure | PreparationCounts = pickle.load(self._stream("stdout"))
        except (EOFError, pickle.UnpicklingError):
            code = self._child.wait()
            raise ShardError(
                Reason.INTERNAL, f"the process that prepares rows ended with exit code {code}; see its output"
            ) from None
        if isinstance(message, PreparationCounts):
            self.counts = message
            raise StopIteration
        if isinstance(message, FeedFailure):
            raise ShardError(message.reason, message.message)
        return message

    def _stream(self, name: str) -> IO[bytes]:
        stream: IO[bytes] = getattr(self._child, name)
        return stream
