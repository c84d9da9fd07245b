"""An output, opened for reading."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from os import PathLike
from typing import SupportsIndex

import numpy as np

from drillcore.activations import Activations
from drillcore.errors import RowNotFoundError
from drillcore.part_file import Int64s
from drillcore.records import QuarantineEntry
from drillcore.sample import Sample, column_of
from drillcore.shard_view import read_quarantines
from drillcore.stored_output import StoredOutput


class Output(StoredOutput):
    """The samples of an output, by position (ascending rows) and by row."""

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Output, allow_incomplete=self._allow_incomplete), (self.path,)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, position: SupportsIndex) -> Sample:
        """The sample at a position.

        Raises:
            IndexError: when there is none.
            FormatError: when its part is not what drillcore writes.
            ReadError: when its part cannot be read, or too many are mapped.
        """
        index = operator.index(position)
        if not -len(self) <= index < len(self):
            raise IndexError(f"position {index} of an output with {len(self)} samples")
        index %= len(self)
        shard = bisect_right(self._starts, index) - 1
        return self.sample(shard, index - self._starts[shard])

    def __iter__(self) -> Iterator[Sample]:
        for number, shard in enumerate(self.shards):
            for position in range(len(shard.index)):
                yield self.sample(number, position)

    @property
    def rows(self) -> Int64s:
        """[n]: the row of each sample, ascending."""
        return np.concatenate([np.empty(0, np.int64), *(shard.index.row for shard in self.shards)])

    def quarantined(self) -> list[QuarantineEntry]:
        """The rows that could not be extracted, ascending, and why.

        Raises:
            FormatError: when a quarantine file is missing.
            ReadError: when one cannot be read.
        """
        entries = read_quarantines(path for shard in self.shards for path in shard.quarantine)
        stored = set() if self.complete or self.manifest.rows_are_contexts else set(self.rows.tolist())
        return [entry for entry in entries if entry.row not in stored]

    def by_row(self, row: int) -> Sample:
        """The sample of a row of the dataset.

        Raises:
            RowNotFoundError: when the row is quarantined, not written yet, or not of the dataset.
        """
        for number, shard in enumerate(self.shards):
            rows = shard.index.row
            if len(rows) and rows[0] <= row <= rows[-1]:
                position = int(np.searchsorted(rows, row))
                if rows[position] == row:
                    return self.sample(number, position)
        raise RowNotFoundError(f"{self.path}: no sample of row {row}; it may be quarantined")

    def shuffled(self, seed: int, mix_parts: int = 4) -> Iterator[Sample]:
        """Every sample once, in an order that touches few parts at a time.

        Args:
            seed: of the order; another one for each epoch.
            mix_parts: how many parts are shuffled into each other.
        """
        for shards, positions in self.shuffled_positions(np.random.default_rng(seed), mix_parts):
            for shard, position in zip(shards.tolist(), positions.tolist(), strict=True):
                yield self.sample(shard, position)

    def activations(
        self,
        layer: int | str,
        batch_size: int,
        shuffle_buffer: int = 0,
        *,
        skip_special: bool = True,
        seed: int = 0,
    ) -> Activations:
        """One layer's states in batches `[batch_size, hidden]`, each wanted state once an epoch.

        Args:
            layer: a layer id, or "finalNorm".
            batch_size: states of a batch; the last one is shorter.
            shuffle_buffer: how many states are shuffled at a time, samples and parts in random order too; 0
                keeps the order of rows and tokens.
            skip_special: leave out the states of the tokenizer's special tokens.
            seed: of the order; another one for each epoch.

        Raises:
            ValueError: when the layer was not extracted.
        """
        return Activations(
            self,
            column_of(self.columns, layer),
            batch_size=batch_size,
            shuffle_buffer=shuffle_buffer,
            skip_special=skip_special,
            seed=seed,
        )


def open(path: str | PathLike[str], *, allow_incomplete: bool = False) -> Output:
    """Open an output for reading; see `Output` for arguments and errors."""
    return Output(path, allow_incomplete=allow_incomplete)
