"""Prepared rows from a process of their own, for engines whose Python must not wait.

On a fast GPU the engine's thread gives up the interpreter's lock at every kernel launch, and a thread that
renders conversations would keep it for milliseconds each time. The child has a lock of its own.

    this process  -- stdin: one pickled task -->  python -m drillcore_server.data.feed_process
                  <-- stdout: pickled batches --

The child ends when its batches are read, when it is told to, or when this process is gone and nobody reads.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from drillcore_server.data.dataset import Dataset
from drillcore_server.data.feed import Batch, RowFeed, prepared_batches
from drillcore_server.data.preparer import RowPreparer
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason


@dataclass(frozen=True)
class FeedTask:
    """Which rows to prepare, and how. Can be pickled."""

    dataset: Dataset
    make_preparer: Callable[[], RowPreparer]
    """A `functools.partial` of RowPreparer: the tokenizer is loaded in the child."""
    rows: range
    skip: NDArray[np.int64] | None = None
    """Sorted row numbers to leave out."""


@dataclass(frozen=True)
class _Failure:
    """What ended the child before its last batch."""

    reason: Reason
    message: str


class ProcessFeed:
    """An iterator over the batches of a task, made in a child process; a context manager that ends it."""

    def __init__(self, task: FeedTask) -> None:
        self._task = task

    def __enter__(self) -> Self:
        self._child = subprocess.Popen(
            [sys.executable, "-m", __spec__.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
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
            message: Batch | _Failure | None = pickle.load(self._stream("stdout"))
        except (EOFError, pickle.UnpicklingError):
            code = self._child.wait()
            raise ShardError(
                Reason.INTERNAL, f"the process that prepares rows ended with exit code {code}; see its output"
            ) from None
        if message is None:
            raise StopIteration
        if isinstance(message, _Failure):
            raise ShardError(message.reason, message.message)
        return message

    def _stream(self, name: str) -> IO[bytes]:
        stream: IO[bytes] = getattr(self._child, name)
        return stream


def main() -> None:
    """Serve the task on stdin: write its batches to stdout, then None, or what failed."""
    # Whatever a library prints goes to stderr; the pipe is ours alone.
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    task: FeedTask = pickle.load(sys.stdin.buffer)
    try:
        _send_all(task, pipe)
    except BrokenPipeError:
        # The reader is gone, and the rest is not wanted.
        os._exit(0)
    except ShardError as error:
        pickle.dump(_Failure(error.reason, error.message), pipe)
    except Exception as error:  # noqa: BLE001 - raised again in the process that reads
        traceback.print_exc()
        pickle.dump(_Failure(Reason.INTERNAL, f"preparing rows failed: {error!r}"), pipe)
    pipe.flush()


def _send_all(task: FeedTask, pipe: IO[bytes]) -> None:
    batches = prepared_batches(task.dataset, task.make_preparer(), task.rows, task.skip)
    with RowFeed(batches) as feed:
        for batch in feed:
            pickle.dump(batch, pipe, protocol=pickle.HIGHEST_PROTOCOL)
            pipe.flush()
    pickle.dump(None, pipe)


if __name__ == "__main__":
    main()
