"""Check an output: every byte, every count, every row once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path

import numpy as np

from drillcore.checksum import check_file
from drillcore.commit import Commit
from drillcore.counts import Counts, LayerStats
from drillcore.errors import DrillcoreError, FormatError, WriteError
from drillcore.journal import read_quarantine
from drillcore.json_fields import JsonValue
from drillcore.layout import Layout, ShardLayout, attempt_of
from drillcore.manifest import Manifest
from drillcore.part_file import Int64s, PartFile, SampleTable
from drillcore.part_info import CommittedPart
from drillcore.part_schema import PartSchema
from drillcore.publish import publish_complete
from drillcore.sample_index import SampleIndex
from drillcore.shard_view import ShardView, layer_stats
from drillcore.stored_output import load_manifest
from drillcore.stored_sample import check_sample_files

_STATS_TOLERANCE = 1e-9
"""Relative; sums of float64 in another order differ by less."""


@dataclass(frozen=True)
class VerifyReport:
    """What a verification found."""

    path: Path
    shards: int
    """Of the job."""
    shards_committed: int
    counts: Counts
    """Of the committed shards whose commit can be read."""
    bytes_checked: int
    """Bytes whose checksum was computed."""
    problems: tuple[str, ...]
    """One sentence each; none when all is well."""
    wrote_complete: bool
    """Whether complete.json was missing or outdated and is written now."""

    @property
    def ok(self) -> bool:
        """Whether every shard is committed and nothing is wrong."""
        return not self.problems

    def to_json(self) -> JsonValue:
        """The report for scripts."""
        return {
            "path": str(self.path),
            "ok": self.ok,
            "shards": self.shards,
            "shardsCommitted": self.shards_committed,
            "counts": self.counts.to_json(),
            "bytesChecked": self.bytes_checked,
            "problems": list(self.problems),
            "wroteComplete": self.wrote_complete,
        }


def verify(path: str | PathLike[str], on_read: Callable[[int], None] | None = None) -> VerifyReport:
    """Read all bytes of an output and check sizes, checksums, tables, counts and rows.

    Every row from 0 must be stored or quarantined exactly once, in the shards' order. When all is well, and
    complete.json is missing or outdated, it is written if the volume permits.

    Args:
        path: the output's folder.
        on_read: called with the number of bytes after each read, for a progress bar.

    Raises:
        OutputNotFoundError: when there is no output.
        FormatError: when its manifest is not what drillcore writes.
    """
    layout = Layout(Path(path))
    manifest = load_manifest(layout.root)
    checks = _Checks(layout, manifest, on_read)
    problems = checks.run()
    return VerifyReport(
        path=layout.root,
        shards=manifest.shard_count,
        shards_committed=checks.shards_committed,
        counts=checks.counts,
        bytes_checked=checks.bytes_checked,
        problems=tuple(problems),
        wrote_complete=not problems and _complete(layout, manifest),
    )


class _Checks:
    """One verification; counts what it saw."""

    def __init__(self, layout: Layout, manifest: Manifest, on_read: Callable[[int], None] | None) -> None:
        self._layout = layout
        self._manifest = manifest
        self._schema = PartSchema.of(manifest)
        self._on_read = on_read
        self._next_row: int | None = 0
        self.shards_committed = 0
        self.counts = Counts()
        self.bytes_checked = 0

    def run(self) -> list[str]:
        """All problems of the output."""
        problems: list[str] = []
        shards = self._layout.existing_shards(self._manifest.shard_count)
        for shard in shards:
            if shard.commit.exists():
                problems.extend(self._shard(shard))
        missing = self._manifest.shard_count - self.shards_committed
        if missing:
            problems.append(f"{self._layout.root}: {missing} of {self._manifest.shard_count} shards are not committed")
        return problems

    def _shard(self, shard: ShardLayout) -> Iterator[str]:
        self.shards_committed += 1
        try:
            commit = Commit.load(shard.commit)
            view = ShardView.of_commit(shard, self._manifest)
        except DrillcoreError as error:
            self._next_row = None
            yield str(error)
            return
        self.counts += commit.counts
        tables = []
        for part in commit.parts:
            try:
                tables.append(self._table(shard, part))
            except DrillcoreError as error:
                yield str(error)
        yield from _commit_problems(shard, commit)
        if len(tables) == len(commit.parts):
            yield from _index_problems(shard, commit, view, tables, self._manifest)
        yield from self._row_problems(shard, commit, view)

    def _table(self, shard: ShardLayout, part: CommittedPart) -> SampleTable:
        path = shard.named(part.name)
        check_file(path, part, self._read)
        file = PartFile(path, self._schema)
        table = file.samples()
        found = (len(table.rows), file.num_tokens, file.num_states, int(table.file_bytes.sum()))
        if found != (part.num_rows, part.tokens, part.states, part.sample_bytes):
            raise FormatError(
                path, f"holds {found[0]} rows, {found[1]} tokens, {found[2]} states: not what was committed"
            )
        check_sample_files(shard, table, self._read)
        return table

    def _row_problems(self, shard: ShardLayout, commit: Commit, view: ShardView) -> Iterator[str]:
        path = shard.named(commit.quarantine.name)
        try:
            check_file(path, commit.quarantine, self._read)
            entries, broken = read_quarantine(path)
        except DrillcoreError as error:
            self._next_row = None
            yield str(error)
            return
        yield from map(str, broken)
        found = (len(entries), sum(entry.skipped for entry in entries))
        if found != (commit.counts.rows_quarantined, commit.counts.rows_skipped):
            yield f"{path}: holds {found[0]} rows, {found[1]} of them skipped: not what commit.json counts"
        if not self._manifest.rows_are_contexts:
            rows = np.concatenate([view.index.row, np.array([entry.row for entry in entries], np.int64)])
            yield from self._gaps(shard, np.sort(rows))

    def _gaps(self, shard: ShardLayout, rows: Int64s) -> Iterator[str]:
        """Rows must go on without gap or repetition where the shard before ended."""
        first = self._next_row if self._next_row is not None or not len(rows) else int(rows[0])
        if first is None:
            return
        wrong = np.flatnonzero(rows != np.arange(first, first + len(rows)))
        if len(wrong):
            at = int(wrong[0])
            yield f"{shard.directory}: expected row {first + at} once, found row {rows[at]}"
        self._next_row = int(rows[-1]) + 1 if len(rows) else self._next_row

    def _read(self, count: int) -> None:
        self.bytes_checked += count
        if self._on_read:
            self._on_read(count)


def _commit_problems(shard: ShardLayout, commit: Commit) -> Iterator[str]:
    if commit.counts.bytes != sum(part.total_bytes for part in commit.parts):
        yield f"{shard.commit}: `counts.bytes` is not the sum of the parts"
    if {attempt_of(commit.index.name), attempt_of(commit.quarantine.name)} != {commit.attempt}:
        yield f"{shard.commit}: the index and the quarantine file are not those of attempt {commit.attempt[:80]}"


def _index_problems(
    shard: ShardLayout, commit: Commit, view: ShardView, tables: Sequence[SampleTable], manifest: Manifest
) -> Iterator[str]:
    path = shard.named(commit.index.name)
    rebuilt = SampleIndex.build(tables).of_rows(view.index.row)
    differing = [
        field.name
        for field in fields(SampleIndex)
        if not np.array_equal(getattr(rebuilt, field.name), getattr(view.index, field.name))
    ]
    if differing:
        yield f"{path}: says other than the parts in {', '.join(differing)}"
        return
    if _differ(layer_stats(manifest, tables, view.index), dict(commit.layer_stats)):
        yield f"{shard.commit}: `layerStats` is not what the parts add up to"


def _differ(ours: dict[str, LayerStats], theirs: dict[str, LayerStats]) -> bool:
    if ours.keys() != theirs.keys():
        return True
    pairs = [(ours[k].mean_norm, theirs[k].mean_norm) for k in ours]
    pairs += [(ours[k].max_abs, theirs[k].max_abs) for k in ours]
    return any(abs(a - b) > _STATS_TOLERANCE * max(abs(a), abs(b)) for a, b in pairs)


def _complete(layout: Layout, manifest: Manifest) -> bool:
    try:
        before = layout.complete.read_bytes() if layout.complete.exists() else b""
        complete = publish_complete(layout, manifest)
    except (WriteError, OSError):
        return False  # A reader without write access verifies as well.
    return complete is not None and complete.to_bytes() != before
