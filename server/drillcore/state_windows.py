"""One layer's states in the order of an epoch, a bounded number at a time: windows, of which batches are cut.

A window of layout Packed holds addresses, not states: each state is copied once, from the mapped file to its batch.
With layout PerSample a window holds the states, since as many files as it has samples cannot stay mapped.

Shapes: n states, C columns, D hidden size. States travel as unsigned integers: numpy copies those fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from drillcore.errors import FormatError
from drillcore.part_file import Int64s, PartFile
from drillcore.ranges import concatenated_ranges
from drillcore.stored_output import StoredOutput

_ORDERED_WINDOW_STATES = 1 << 16
_MIX_PARTS = 4
_BLOCK_STATES = 512
"""In a shuffled window so many states at a time are sorted by part: a copy for each part serves them all."""
_MIN_RUN_STATES = 8
"""Shorter runs from one part, on average, and the states of a batch are copied part by part."""
_MIN_READ_BYTES = 1 << 18
"""A run of so many bytes is read by a system call, a shorter one copied from the map."""

_MAX_VOCABULARY = 1 << 24
"""No vocabulary is larger; a table of special tokens must not become as long as any number in a file."""

Words = npt.NDArray[np.unsignedinteger[Any]]


class Window(Protocol):
    """States that follow each other in the epoch."""

    def __len__(self) -> int:
        """The number of states."""

    def copy_to(self, out: Words, first: int, stop: int) -> None:
        """Copy the states [first, stop) to `out` [stop - first, D]; from any thread."""


@dataclass(frozen=True, eq=False)
class PartWindow:
    """States by their addresses in mapped parts."""

    sources: Sequence[Words]
    """Each [lines, D]: a part's states, a line for each column."""
    source: npt.NDArray[np.uint16]
    """[n]: which of the sources."""
    line: Int64s
    """[n]: which line of it."""
    files: Sequence[PartFile]
    """Of the sources, when the states come in the files' order and the files hold no other columns; else empty."""

    def __len__(self) -> int:
        return len(self.line)

    def copy_to(self, out: Words, first: int, stop: int) -> None:
        """Copy the states [first, stop): runs from one part at once, states that alternate between parts by part."""
        source, line = self.source[first:stop], self.line[first:stop]
        jumps = source[1:] != source[:-1]
        if self.files:
            jumps |= line[1:] != line[:-1] + 1
        edges = [0, *(np.flatnonzero(jumps) + 1).tolist(), len(line)]
        if _MIN_RUN_STATES * (len(edges) - 2) > len(line):
            self._copy_by_source(out, source, line)
            return
        for begin, end in pairwise(edges):
            run = out[begin:end]
            if self.files and run.nbytes >= _MIN_READ_BYTES:
                self.files[source[begin]].read_states(int(line[begin]), run)
            else:
                np.take(self.sources[source[begin]], line[begin:end], axis=0, out=run, mode="clip")

    def _copy_by_source(self, out: Words, source: npt.NDArray[np.uint16], line: Int64s) -> None:
        for number in np.unique(source).tolist():
            here = np.flatnonzero(source == number)
            out[here] = np.take(self.sources[number], line[here], axis=0, mode="clip")


@dataclass(frozen=True, eq=False)
class SampleWindow:
    """States that were read from the samples' own files."""

    states: Words
    """[n, D]."""
    order: Int64s
    """[n]: the epoch's order of them."""

    def __len__(self) -> int:
        return len(self.order)

    def copy_to(self, out: Words, first: int, stop: int) -> None:
        """Copy the states [first, stop)."""
        np.take(self.states, self.order[first:stop], axis=0, out=out, mode="clip")


@dataclass(frozen=True, eq=False)
class _Samples:
    """Some samples, in the order of the epoch, and where their states and tokens lie in the parts; m samples."""

    shards: Int64s
    positions: Int64s
    part: Int64s
    """[m]: number of the part among its shard's."""
    first_state: Int64s
    num_states: Int64s
    first_token: Int64s
    num_tokens: Int64s

    @classmethod
    def of(cls, output: StoredOutput, shards: Int64s, positions: Int64s) -> _Samples:
        """The samples at some positions of some shards."""
        columns = np.empty((5, len(positions)), np.int64)
        for shard in np.unique(shards).tolist():
            here, index = shards == shard, output.shards[shard].index
            fields = (index.part, index.first_state, index.num_states, index.first_token, index.num_tokens)
            columns[:, here] = [field[positions[here]] for field in fields]
        return cls(shards, positions, *columns)

    def __getitem__(self, which: slice) -> _Samples:
        return _Samples(*(getattr(self, name)[which] for name in self.__dataclass_fields__))

    def windows(self, limit: int) -> Iterator[_Samples]:
        """The same samples, as many at a time as have at most `limit` states, at least one."""
        ends = np.cumsum(self.num_states)
        first = 0
        while first < len(ends):
            taken = int(ends[first - 1]) if first else 0
            stop = max(first + 1, int(np.searchsorted(ends, taken + limit, side="right")))
            yield self[first:stop]
            first = stop


class StateWindows:
    """Makes the windows of one epoch of one layer."""

    def __init__(self, output: StoredOutput, column: int, special_token_ids: Sequence[int]) -> None:
        """Prepare to read one column.

        Args:
            output: what to read.
            column: of the layer.
            special_token_ids: the states of these tokens are left out.
        """
        self._output = output
        self._column = column
        special = [token for token in special_token_ids if token < _MAX_VOCABULARY]
        self._skips = bool(special) and output.manifest.positions != "Mean"
        self._special = np.zeros(max(special, default=0) + 2, bool)
        self._special[special] = True
        self._words = np.dtype(f"u{output.manifest.store_dtype.itemsize}")

    def ordered(self) -> Iterator[Window]:
        """All wanted states in the order of rows and tokens."""
        for number, shard in enumerate(self._output.shards):
            count = len(shard.index)
            shards, positions = np.full(count, number, np.int64), np.arange(count, dtype=np.int64)
            for samples in _Samples.of(self._output, shards, positions).windows(_ORDERED_WINDOW_STATES):
                yield self._window(samples, None)

    def shuffled(self, rng: np.random.Generator, buffer_states: int) -> Iterator[Window]:
        """All wanted states: parts, samples and the states of each window in random order."""
        for shards, positions in self._output.shuffled_positions(rng, _MIX_PARTS):
            for samples in _Samples.of(self._output, shards, positions).windows(buffer_states):
                yield self._window(samples, rng)

    def _window(self, samples: _Samples, rng: np.random.Generator | None) -> Window:
        keys = samples.shards << 32 | samples.part
        numbers, source_of_sample = np.unique(keys, return_inverse=True)
        files = [self._output.part_file(key >> 32, key & 0xFFFFFFFF) for key in numbers.tolist()]
        source = np.repeat(source_of_sample.astype(np.uint16), samples.num_states)
        state = concatenated_ranges(samples.first_state, samples.num_states)
        kept = self._kept(samples, files, source, state) if self._skips else np.ones(len(state), bool)
        if files and files[0].hidden_states is None:
            return self._sample_window(samples, kept, rng)
        source, state = source[kept], state[kept]
        if rng is not None:
            order = _by_source_in_blocks(source, rng.permutation(len(state)))
            source, state = source[order], state[order]
        num_columns = len(self._output.columns)
        lines = [self._lines(file.hidden_states) for file in files]
        in_file_order = rng is None and num_columns == 1
        return PartWindow(lines, source, state * num_columns + self._column, files if in_file_order else [])

    def _lines(self, hidden_states: npt.NDArray[Any] | None) -> Words:
        """[states * C, D]."""
        assert hidden_states is not None
        lines: Words = hidden_states.view(self._words).reshape(-1, self._output.manifest.hidden_size)
        return lines

    def _kept(
        self, samples: _Samples, files: Sequence[PartFile], source: npt.NDArray[np.uint16], state: Int64s
    ) -> npt.NDArray[np.bool_]:
        """[n]: whether the token of each state is not special."""
        kept = np.empty(len(state), bool)
        for number, file in enumerate(files):
            here = slice(None) if len(files) == 1 else np.flatnonzero(source == number)
            token = state[here]
            if self._output.manifest.positions != "All":
                token = self._tokens_of_states(samples, file, token, here)
            ids = np.take(file.token_ids, token, mode="clip")
            kept[here] = ~np.take(self._special, ids, mode="clip")
        return kept

    def _tokens_of_states(self, samples: _Samples, file: PartFile, state: Int64s, here: slice | Int64s) -> Int64s:
        """The index of each state's token among the part's, where not every token has a state."""
        first_token, num_tokens, first_state = (
            np.repeat(column, samples.num_states)[here]
            for column in (samples.first_token, samples.num_tokens, samples.first_state)
        )
        position = state - first_state if file.positions is None else file.positions[state]
        if bool(np.any((position < 0) | (position >= num_tokens))):
            raise FormatError(file.path, "tensor `positions` must lie within each sample's tokens")
        return first_token + position

    def _sample_window(
        self, samples: _Samples, kept: npt.NDArray[np.bool_], rng: np.random.Generator | None
    ) -> SampleWindow:
        count = int(np.count_nonzero(kept))
        states = np.empty((count, self._output.manifest.hidden_size), self._words)
        edges = np.concatenate(([0], np.cumsum(samples.num_states)))
        filled = 0
        for i, (shard, position) in enumerate(zip(samples.shards.tolist(), samples.positions.tolist(), strict=True)):
            wanted = np.flatnonzero(kept[edges[i] : edges[i + 1]]) * len(self._output.columns) + self._column
            lines = self._lines(self._output.sample(shard, position).hidden_states)
            np.take(lines, wanted, axis=0, out=states[filled : filled + len(wanted)], mode="clip")
            filled += len(wanted)
        return SampleWindow(states, np.arange(count) if rng is None else rng.permutation(count))


def _by_source_in_blocks(source: npt.NDArray[np.uint16], order: Int64s) -> Int64s:
    """The same order, but for every block of `_BLOCK_STATES` states sorted by source; [n]."""
    whole = len(order) - len(order) % _BLOCK_STATES
    blocks = order[:whole].reshape(-1, _BLOCK_STATES)
    sorted_blocks = np.take_along_axis(blocks, np.argsort(source[blocks], axis=1, kind="stable"), axis=1)
    rest = order[whole:]
    return np.concatenate((sorted_blocks.reshape(-1), rest[np.argsort(source[rest], kind="stable")]))
