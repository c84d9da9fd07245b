"""What lies in an output's folder: shards, the parts and samples in them, and orders to read them in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drillcore.checksum import check_size
from drillcore.counts import Counts, LayerStats, merge_layer_stats
from drillcore.errors import FormatError, OutputIncompleteError, OutputNotFoundError
from drillcore.layout import Layout
from drillcore.manifest import Manifest
from drillcore.part_file import Int64s, PartFile
from drillcore.part_schema import PartSchema
from drillcore.sample import Sample
from drillcore.shard_view import ShardView
from drillcore.stored_sample import StoredSample

_OPEN_PARTS = 128
"""Parts kept mapped. Each holds a file descriptor, of which a process commonly has 1,024."""


class StoredOutput:
    """Shards, parts and samples by their numbers."""

    def __init__(self, path: str | PathLike[str], *, allow_incomplete: bool = False) -> None:
        """Read the manifest, the commits and the indexes.

        Args:
            path: the output's folder.
            allow_incomplete: read also what the journals of unfinished shards name.

        Raises:
            OutputNotFoundError: when the folder holds no manifest.json.
            OutputIncompleteError: when a shard is not committed, unless `allow_incomplete`.
            FormatError: when a file is not what drillcore writes.
            ReadError: when a file cannot be read.
        """
        self.path = Path(path)
        self._allow_incomplete = allow_incomplete
        self.manifest = load_manifest(self.path)
        self.shards = _shards(self.path, self.manifest, allow_incomplete)
        """What can be read, by shard; an unfinished output may lack some."""
        self._starts = [0]
        for shard in self.shards:
            self._starts.append(self._starts[-1] + len(shard.index))
        self._check_rows_ascend()
        self._schema = PartSchema.of(self.manifest)
        self.part_file = lru_cache(maxsize=_OPEN_PARTS)(partial(_open_part, self.shards, self._schema))
        """Maps a part by the positions of its shard in `shards` and of itself in the shard; raises as `sample` does."""

    @property
    def columns(self) -> tuple[int | str, ...]:
        """Names of the stored columns: layer ids in the order asked for, then `finalNorm`."""
        return self.manifest.columns

    @property
    def complete(self) -> bool:
        """Whether every shard is committed."""
        return sum(shard.committed for shard in self.shards) == self.manifest.shard_count

    @property
    def counts(self) -> Counts:
        """Rows, tokens, states and bytes of what can be read."""
        return sum((shard.counts for shard in self.shards), Counts())

    @property
    def layer_stats(self) -> Mapping[str, LayerStats]:
        """Mean norm and largest element by column name."""
        return merge_layer_stats(self.columns, self.shards)

    def sample(self, shard: int, position: int) -> Sample:
        """The sample at a position within a shard.

        Raises:
            FormatError: when its part is not what drillcore writes.
            ReadError: when its part cannot be read, or too many are mapped.
        """
        index = self.shards[shard].index
        part = self.part_file(shard, int(index.part[position]))
        tokens = _slice(index.first_token[position], index.num_tokens[position])
        states = _slice(index.first_state[position], index.num_states[position])
        last_token = int(index.last_token[position])
        return Sample(
            row=int(index.row[position]),
            id=index.id_of(position, part.path),
            token_ids=part.token_ids[tokens],
            hidden_states=self._states(shard, position, part, states),
            positions=self._positions(part, states),
            loss_mask=None if part.loss_mask is None else part.loss_mask[tokens],
            num_prompt_tokens=int(index.num_prompt_tokens[position]),
            original_tokens=int(index.original_tokens[position]),
            last_token=None if last_token < 0 else last_token,
            columns=self.columns,
        )

    def shuffled_positions(self, rng: np.random.Generator, mix_parts: int) -> Iterator[tuple[Int64s, Int64s]]:
        """The order of `shuffled`, one group of parts at a time: shard numbers and positions within the shard."""
        parts = [(s, p) for s, shard in enumerate(self.shards) for p in range(len(shard.parts))]
        order = rng.permutation(len(parts))
        for first in range(0, len(parts), mix_parts):
            group = [parts[i] for i in order[first : first + mix_parts]]
            positions = np.concatenate([self._positions_of(*part) for part in group])
            shards = np.concatenate([np.full(len(self._positions_of(*part)), part[0], np.int64) for part in group])
            mixed = rng.permutation(len(positions))
            yield shards[mixed], positions[mixed]

    def _states(self, shard: int, position: int, part: PartFile, states: slice) -> npt.NDArray[Any]:
        """[P, C, hidden]."""
        if part.hidden_states is not None:
            return part.hidden_states[states]
        view = self.shards[shard]
        path = view.shard.sample(int(view.index.row[position]))
        sample = StoredSample.open(path, self._schema.sample_file)
        if not np.array_equal(sample.token_ids, part.token_ids[states]):
            raise FormatError(path, f"holds other tokens than {part.path.name} says")
        return sample.hidden_states

    def _positions(self, part: PartFile, states: slice) -> npt.NDArray[np.int32] | None:
        if self._schema.every_token:
            return np.arange(states.stop - states.start, dtype=np.int32)
        return None if part.positions is None else part.positions[states]

    def _positions_of(self, shard: int, part: int) -> Int64s:
        order, starts = self.shards[shard].samples_by_part
        return order[starts[part] : starts[part + 1]]

    def _check_rows_ascend(self) -> None:
        last = -1
        for shard in self.shards:
            if len(shard.index):
                if shard.index.row[0] <= last:
                    raise FormatError(shard.shard.directory, f"holds row {shard.index.row[0]} of an earlier shard")
                last = int(shard.index.row[-1])


def load_manifest(path: Path) -> Manifest:
    """The manifest of the output at `path`.

    Raises:
        OutputNotFoundError: when there is no output.
        FormatError: when its manifest is not what drillcore writes.
    """
    layout = Layout(path)
    if not layout.manifest.is_file():
        raise OutputNotFoundError(f"{path}: no drillcore output here: expected a folder with manifest.json")
    return Manifest.load(layout.manifest)


def _shards(path: Path, manifest: Manifest, allow_incomplete: bool) -> tuple[ShardView, ...]:
    shards = Layout(path).existing_shards(manifest.shard_count)
    committed = [shard.commit.is_file() for shard in shards]
    if sum(committed) < manifest.shard_count and not allow_incomplete:
        raise OutputIncompleteError(
            f"{path}: {sum(committed)} of {manifest.shard_count} shards are committed; let the job finish, "
            "or pass allow_incomplete=True to read what is there"
        )
    return tuple(
        ShardView.of_commit(shard, manifest) if done else ShardView.of_journals(shard, manifest)
        for shard, done in zip(shards, committed, strict=True)
    )


def _open_part(shards: Sequence[ShardView], schema: PartSchema, shard: int, number: int) -> PartFile:
    part = shards[shard].parts[number]
    path = shards[shard].shard.named(part.name)
    check_size(path, part)
    file = PartFile(path, schema)
    if (file.num_tokens, file.num_states) != (part.tokens, part.states):
        raise FormatError(path, f"must hold {part.tokens} tokens and {part.states} states, as the commit says")
    return file


def _slice(first: np.int64, count: np.int64) -> slice:
    start = int(first)
    return slice(start, start + int(count))
