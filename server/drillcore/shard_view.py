"""What can be read of one shard: its parts and the index over them, from its commit or from its journals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from drillcore.checksum import check_file, check_size
from drillcore.commit import Commit
from drillcore.counts import Counts, LayerStats
from drillcore.errors import DrillcoreError, FormatError
from drillcore.journal import read_quarantine
from drillcore.layout import ShardLayout, is_quarantine
from drillcore.manifest import Manifest
from drillcore.part_file import Int64s, PartFile, SampleTable
from drillcore.part_info import CommittedPart, PartInfo
from drillcore.part_schema import PartSchema
from drillcore.records import QuarantineEntry
from drillcore.recover import journaled_parts, part_rows
from drillcore.sample_columns import cumulated
from drillcore.sample_index import SampleIndex


@dataclass(frozen=True, eq=False)
class ShardView:
    """The readable samples of one shard."""

    shard: ShardLayout
    parts: tuple[CommittedPart, ...]
    index: SampleIndex
    counts: Counts
    """Of what is readable; rows in are those accounted for."""
    layer_stats: Mapping[str, LayerStats]
    quarantine: tuple[Path, ...]
    """Quarantine files; of an unfinished shard those of all attempts."""
    committed: bool

    @cached_property
    def samples_by_part(self) -> tuple[Int64s, Int64s]:
        """Positions grouped by part, ascending within one, and where each part's group begins ([parts + 1])."""
        order: Int64s = np.argsort(self.index.part, kind="stable")
        sizes = np.bincount(self.index.part, minlength=len(self.parts)).astype(np.int64)
        return order, cumulated(sizes)

    @classmethod
    def of_commit(cls, shard: ShardLayout, manifest: Manifest) -> ShardView:
        """The shard as its commit names it; only commit.json and the index are read.

        Raises:
            FormatError: when either is not what drillcore writes, or of another output.
            ReadError: when either cannot be read.
        """
        commit = Commit.load(shard.commit)
        if commit.identity != manifest.identity_sha256:
            raise FormatError(shard.commit, "the commit belongs to another job than manifest.json")
        path = shard.named(commit.index.name)
        check_file(path, commit.index)
        index = SampleIndex.load(path, commit.parts)
        found = (len(index), int(index.num_tokens.sum()), int(index.num_states.sum()))
        if found != (commit.counts.rows_out, commit.counts.tokens, commit.counts.states):
            raise FormatError(shard.commit, f"`counts` must be the index's rows, tokens and states, {found}")
        quarantine = (shard.named(commit.quarantine.name),)
        return cls(shard, commit.parts, index, commit.counts, commit.layer_stats, quarantine, committed=True)

    @classmethod
    def of_journals(cls, shard: ShardLayout, manifest: Manifest) -> ShardView:
        """What the journals of an unfinished shard name: parts of the right size, checksums not checked.

        Parts that do not hold are left out, as a resume would.

        Raises:
            ReadError: when the folder cannot be read.
        """
        schema = PartSchema.of(manifest)
        parts, tables = [], []
        for part in journaled_parts(shard)[0]:
            table = _readable(shard, part, schema)
            if table is not None:
                parts.append(CommittedPart.of(part))
                tables.append(table)
        index = SampleIndex.build(tables)
        quarantine = tuple(shard.files(is_quarantine))
        stored = set() if manifest.rows_are_contexts else set(index.row.tolist())
        return cls(
            shard=shard,
            parts=tuple(parts),
            index=index,
            counts=_counts(index, parts, [e for e in read_quarantines(quarantine) if e.row not in stored]),
            layer_stats=layer_stats(manifest, tables, index),
            quarantine=quarantine,
            committed=False,
        )


def layer_stats(manifest: Manifest, tables: Sequence[SampleTable], index: SampleIndex) -> dict[str, LayerStats]:
    """Statistics over the samples that an index names, and no others; empty without states.

    Args:
        manifest: names the columns.
        tables: the samples of the index's parts.
        index: which samples count.
    """
    states = int(index.num_states.sum())
    if not states:
        return {}
    norm_sums = np.zeros(len(manifest.columns))
    max_abs = np.zeros(len(manifest.columns))
    for number, table in enumerate(tables):
        counted = np.isin(table.rows, index.row[index.part == number])
        norm_sums += table.norm_sums[counted].sum(axis=0)
        max_abs = np.maximum(max_abs, table.max_abs[counted].max(axis=0, initial=0.0))
    return {
        str(column): LayerStats(float(norm_sums[c] / states), float(max_abs[c]))
        for c, column in enumerate(manifest.columns)
    }


def _readable(shard: ShardLayout, part: PartInfo, schema: PartSchema) -> SampleTable | None:
    path = shard.named(part.name)
    try:
        check_size(path, part)
        file = PartFile(path, schema)
        part_rows(file, part, path)
        return file.samples()
    except DrillcoreError:
        return None


def read_quarantines(paths: Iterable[Path]) -> list[QuarantineEntry]:
    """The entries of several quarantine files, ascending by row, the first of each row.

    Raises:
        FormatError: when a file is missing.
        ReadError: when one cannot be read.
    """
    entries: dict[int, QuarantineEntry] = {}
    for path in paths:
        for entry in read_quarantine(path)[0]:
            entries.setdefault(entry.row, entry)
    return [entry for _, entry in sorted(entries.items())]


def _counts(index: SampleIndex, parts: Sequence[CommittedPart], quarantined: Sequence[QuarantineEntry]) -> Counts:
    return Counts(
        rows_in=len(index) + len(quarantined),
        rows_out=len(index),
        rows_quarantined=len(quarantined),
        rows_skipped=sum(entry.skipped for entry in quarantined),
        tokens=int(index.num_tokens.sum()),
        states=int(index.num_states.sum()),
        bytes=sum(part.total_bytes for part in parts),
    )
