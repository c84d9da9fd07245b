"""Batches of one layer's states, as trainers of sparse autoencoders and probes read them.

Shuffling moves indices, not states: a window of states is permuted by number, and each batch is gathered once
from the mapped files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from drillcore.errors import FormatError
from drillcore.part_file import Int64s, PartFile
from drillcore.ranges import concatenated_ranges
from drillcore.sample_columns import cumulated

if TYPE_CHECKING:
    from drillcore.output import Output

_ORDERED_WINDOW_STATES = 1 << 16
_MIX_PARTS = 4


@dataclass(frozen=True, eq=False)
class _States:
    """States by address, n of them."""

    part: Int64s
    """[n]: number of the part, counted over all shards."""
    state: Int64s
    """[n]: index among the part's states."""

    def __len__(self) -> int:
        return len(self.state)

    def __getitem__(self, which: slice | npt.NDArray[Any]) -> _States:
        return _States(self.part[which], self.state[which])

    def followed_by(self, other: _States) -> _States:
        return _States(np.concatenate((self.part, other.part)), np.concatenate((self.state, other.state)))

    def by_part(self) -> Iterator[tuple[int, Int64s]]:
        """Each part and the indices of its states here, ascending."""
        order = np.argsort(self.part, kind="stable")
        breaks = np.flatnonzero(np.diff(self.part[order])) + 1
        for here in np.split(order, breaks):
            if len(here):
                yield int(self.part[here[0]]), here


class Activations:
    """One epoch per iteration: every wanted state once, in batches `[batch_size, hidden]`, the last one shorter."""

    def __init__(
        self,
        output: Output,
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
        special = output.manifest.special_token_ids if skip_special else ()
        self._special = np.array(special, np.int64)
        self._first_part = cumulated(np.array([len(shard.parts) for shard in output.shards], np.int64))

    @property
    def mean_norm(self) -> float:
        """Mean L2 norm of all stored states of the layer; NaN when there are none."""
        stats = self._output.layer_stats.get(str(self._output.columns[self._column]))
        return math.nan if stats is None else stats.mean_norm

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        none = np.empty(0, np.int64)
        waiting = _States(none, none)
        for window in self._windows():
            waiting = waiting.followed_by(window)
            full = len(waiting) - len(waiting) % self._batch_size
            for first in range(0, full, self._batch_size):
                yield self._gather(waiting[first : first + self._batch_size])
            waiting = waiting[full:]
        if len(waiting):
            yield self._gather(waiting)

    def _windows(self) -> Iterator[_States]:
        """The wanted states in the order of the epoch, a bounded number at a time."""
        rng = np.random.default_rng(self._seed)
        limit = self._shuffle_buffer or _ORDERED_WINDOW_STATES
        for shards, positions in self._sample_order(rng):
            ends = np.cumsum(self._lengths(shards, positions))
            first = 0
            while first < len(positions):
                taken = int(ends[first - 1]) if first else 0
                stop = max(first + 1, int(np.searchsorted(ends, taken + limit, side="right")))
                window = self._wanted(shards[first:stop], positions[first:stop])
                yield window[rng.permutation(len(window))] if self._shuffle_buffer else window
                first = stop

    def _sample_order(self, rng: np.random.Generator) -> Iterator[tuple[Int64s, Int64s]]:
        if self._shuffle_buffer:
            yield from self._output.shuffled_positions(rng, _MIX_PARTS)
            return
        for number, shard in enumerate(self._output.shards):
            count = len(shard.index)
            yield np.full(count, number, np.int64), np.arange(count, dtype=np.int64)

    def _lengths(self, shards: Int64s, positions: Int64s) -> Int64s:
        """[n]: the number of states of each sample."""
        lengths = np.empty(len(positions), np.int64)
        for shard in np.unique(shards).tolist():
            here = shards == shard
            lengths[here] = self._output.shards[shard].index.num_states[positions[here]]
        return lengths

    def _wanted(self, shards: Int64s, positions: Int64s) -> _States:
        """The states of some samples, in the samples' order, without those of special tokens."""
        columns = np.empty((5, len(positions)), np.int64)
        for shard in np.unique(shards).tolist():
            here, index = shards == shard, self._output.shards[shard].index
            fields = (index.part, index.first_state, index.num_states, index.first_token, index.num_tokens)
            columns[:, here] = [field[positions[here]] for field in fields]
        part, first_state, num_states, first_token, num_tokens = columns
        states = _States(
            np.repeat(part + self._first_part[shards], num_states), concatenated_ranges(first_state, num_states)
        )
        if not len(self._special) or self._output.manifest.positions == "Mean":
            return states
        first_state, first_token, num_tokens = (
            np.repeat(column, num_states) for column in (first_state, first_token, num_tokens)
        )
        tokens = self._tokens(states, states.state - first_state, first_token, num_tokens)
        return states[~np.isin(tokens, self._special)]

    def _tokens(self, states: _States, offset: Int64s, first_token: Int64s, num_tokens: Int64s) -> Int64s:
        """[n]: the token id of each state.

        Args:
            states: n states.
            offset: [n], of the state among its sample's.
            first_token: [n], of its sample's tokens among the part's.
            num_tokens: [n], of its sample.
        """
        tokens = np.empty(len(states), np.int64)
        for part, here in states.by_part():
            file = self._part_file(part)
            position = offset[here] if file.positions is None else file.positions[states.state[here]]
            if bool(np.any((position < 0) | (position >= num_tokens[here]))):
                raise FormatError(file.path, "tensor `positions` must lie within each sample's tokens")
            tokens[here] = file.token_ids[first_token[here] + position]
        return tokens

    def _gather(self, states: _States) -> npt.NDArray[Any]:
        """[n, hidden]: the states of the layer, copied."""
        manifest = self._output.manifest
        words = np.dtype(f"u{manifest.store_dtype.itemsize}")  # Numpy copies integers fastest.
        batch = np.empty((len(states), manifest.hidden_size), words)
        for part, here in states.by_part():
            file = self._part_file(part)
            if file.hidden_states is None:
                raise FormatError(file.path, "the states stand in files of their own")
            stored = file.hidden_states.view(words)
            lines = stored.reshape(-1, manifest.hidden_size)
            wanted = states.state[here] * stored.shape[1] + self._column
            if len(here) == len(states):
                np.take(lines, wanted, axis=0, out=batch, mode="clip")
            else:
                batch[here] = np.take(lines, wanted, axis=0, mode="clip")
        return batch.view(manifest.store_dtype.numpy)

    def _part_file(self, part: int) -> PartFile:
        shard = int(np.searchsorted(self._first_part, part, side="right")) - 1
        return self._output.part_file(shard, part - int(self._first_part[shard]))
