"""Batches of one layer's states, as trainers of sparse autoencoders and probes read them.

Batches are copied by several threads ahead of the caller: copying releases the interpreter lock, and a batch is ready
when the step before it ends.
"""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from drillcore.state_windows import StateWindows, Window, Words
from drillcore.stored_output import StoredOutput

_MAX_THREADS = 4
_MIN_SHARE_BYTES = 1 << 20
"""Less is not worth another thread."""

_Pieces = list[tuple[Window, int, int]]
"""A batch: windows, and from where to where in each."""


class Activations:
    """One epoch per iteration: every wanted state once, in batches `[batch_size, hidden]`, the last one shorter."""

    def __init__(
        self,
        output: StoredOutput,
        column: int,
        *,
        batch_size: int,
        shuffle_buffer: int,
        skip_special: bool,
        seed: int,
    ) -> None:
        """See `Output.activations`, which makes these."""
        if batch_size < 1 or shuffle_buffer < 0:
            raise ValueError(
                f"batch_size must be at least 1 and shuffle_buffer at least 0; got {batch_size}, {shuffle_buffer}"
            )
        self._output = output
        self._column = column
        self._batch_size = batch_size
        self._shuffle_buffer = shuffle_buffer
        self._seed = seed
        self._special = output.manifest.special_token_ids if skip_special else ()

    @property
    def mean_norm(self) -> float:
        """Mean L2 norm of all stored states of the layer; NaN when there are none."""
        stats = self._output.layer_stats.get(str(self._output.columns[self._column]))
        return math.nan if stats is None else stats.mean_norm

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        num_threads = _usable_threads()
        pool = ThreadPoolExecutor(num_threads, thread_name_prefix="activations")
        manifest = self._output.manifest
        share = self._share(num_threads)
        num_ahead = max(1, num_threads * share // self._batch_size)
        buffers = _Buffers((self._batch_size, manifest.hidden_size), manifest.store_dtype.numpy, num_ahead + 3)
        ready: deque[_Copying] = deque()
        try:
            for pieces in self._batches(_one_ahead(self._windows(), pool)):
                ready.append(_Copying(pool, pieces, buffers, share))
                if len(ready) > num_ahead:
                    yield ready.popleft().result()
            while ready:
                yield ready.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _share(self, num_threads: int) -> int:
        """How many states of a batch one thread copies: few batches under way stay in the processor's cache."""
        state_bytes = self._output.manifest.hidden_size * self._output.manifest.store_dtype.itemsize
        least = math.ceil(_MIN_SHARE_BYTES / state_bytes)
        return min(self._batch_size, max(least, math.ceil(self._batch_size / num_threads)))

    def _windows(self) -> Iterator[Window]:
        windows = StateWindows(self._output, self._column, self._special)
        if self._shuffle_buffer:
            return windows.shuffled(np.random.default_rng(self._seed), self._shuffle_buffer)
        return windows.ordered()

    def _batches(self, windows: Iterator[Window]) -> Iterator[_Pieces]:
        pieces: _Pieces = []
        wanted = self._batch_size
        for window in windows:
            first = 0
            while first < len(window):
                stop = min(len(window), first + wanted)
                pieces.append((window, first, stop))
                wanted -= stop - first
                first = stop
                if not wanted:
                    yield pieces
                    pieces, wanted = [], self._batch_size
        if pieces:
            yield pieces


class _Buffers:
    """Memory of batches, used again once nobody refers to it: fresh pages cost as much as the copy into them.

    numpy gives every view of an array the array itself as its base, so that the count of references to a buffer tells
    whether a batch, a slice of one, or a tensor over one is alive.
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any], limit: int) -> None:
        self._shape = shape
        self._dtype = dtype
        self._limit = limit
        self._kept: list[npt.NDArray[Any]] = []

    def take(self, count: int) -> npt.NDArray[Any]:
        """[count, hidden] of memory that is the caller's for as long as there is a reference to it."""
        for i in range(len(self._kept)):
            if sys.getrefcount(self._kept[i]) == _UNUSED_REFERENCES:
                return self._kept[i][:count]
        buffer = np.empty(self._shape, self._dtype)
        if len(self._kept) < self._limit:
            self._kept.append(buffer)
        return buffer[:count]


_UNUSED_REFERENCES = 2
"""To an object in a list, while `sys.getrefcount` looks at it."""


class _Copying:
    """A batch that threads of the pool fill, a share each."""

    def __init__(self, pool: ThreadPoolExecutor, pieces: _Pieces, buffers: _Buffers, share: int) -> None:
        count = sum(stop - first for _, first, stop in pieces)
        self._batch = buffers.take(count)
        words = self._batch.view(f"u{self._batch.itemsize}")
        self._shares = [
            pool.submit(_copy, list(_between(pieces, first, first + share)), words[first : first + share])
            for first in range(0, count, share)
        ]

    def result(self) -> npt.NDArray[Any]:
        """The batch, filled."""
        for share in self._shares:
            share.result()
        return self._batch


def _between(pieces: _Pieces, first: int, stop: int) -> Iterator[tuple[Window, int, int]]:
    """The pieces of the states [first, stop) of a batch."""
    begin = 0
    for window, window_first, window_stop in pieces:
        end = begin + window_stop - window_first
        if begin < stop and first < end:
            shift = window_first - begin
            yield window, max(first, begin) + shift, min(stop, end) + shift
        begin = end


def _copy(pieces: _Pieces, out: Words) -> None:
    filled = 0
    for window, first, stop in pieces:
        window.copy_to(out[filled : filled + stop - first], first, stop)
        filled += stop - first


def _one_ahead(windows: Iterator[Window], pool: ThreadPoolExecutor) -> Iterator[Window]:
    """The same windows, the next one made in the pool while one is used."""
    following = pool.submit(next, windows, None)
    while (window := following.result()) is not None:
        following = pool.submit(next, windows, None)
        yield window


def _usable_threads() -> int:
    has_affinity = hasattr(os, "sched_getaffinity")
    cpus = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(_MAX_THREADS, cpus)
