"""Remove what crashed and outrun attempts left in an output."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from drillcore.commit import Commit
from drillcore.durable import sync_folder, writing
from drillcore.errors import FormatError, ReadError
from drillcore.journal import read_quarantine
from drillcore.json_fields import JsonValue
from drillcore.layout import (
    Layout,
    ShardLayout,
    attempt_of,
    is_journal,
    is_part,
    is_quarantine,
    is_temporary,
    row_of_sample,
)
from drillcore.manifest import Manifest
from drillcore.part_file import Int64s, PartFile
from drillcore.part_info import PartInfo
from drillcore.part_schema import PartSchema
from drillcore.publish import current_commit
from drillcore.recover import journaled_parts
from drillcore.sample_index import SampleIndex
from drillcore.stored_output import load_manifest

MIN_AGE_S = 3600.0
"""An attempt that wrote within this time may still be at work: its files are left alone. A live attempt writes
at least once in each commit interval, which is a minute by default."""


@dataclass(frozen=True)
class CleanReport:
    """Files that no commit needs."""

    path: Path
    files: tuple[Path, ...]
    bytes: int
    removed: bool
    """Whether they are gone, or were only looked for."""

    def to_json(self) -> JsonValue:
        """The report for scripts."""
        return {
            "path": str(self.path),
            "files": [str(file.relative_to(self.path)) for file in self.files],
            "bytes": self.bytes,
            "removed": self.removed,
        }


@dataclass(frozen=True)
class _File:
    path: Path
    bytes: int
    age_s: float


def clean(
    path: str | PathLike[str], *, remove: bool = False, min_age_s: float = MIN_AGE_S, now_s: float | None = None
) -> CleanReport:
    """Find, and on request remove, files that no commit names and that no resume would use.

    A committed shard keeps what its commit names, journaled work that the commit does not hold, and the journals of
    both. An unfinished one keeps its journals, their parts and its quarantine files. With layout PerSample the samples'
    files that these parts list are kept, and all of them while an attempt may be at work. Files that drillcore did not
    name are never touched.

    Args:
        path: the output's folder.
        remove: whether to remove them.
        min_age_s: attempts that wrote within this time are left alone.
        now_s: the time in seconds since the epoch; None for the clock.

    Raises:
        OutputNotFoundError: when there is no output.
        FormatError: when its manifest, or a commit, is not what drillcore writes.
        ReadError: when a folder cannot be read.
        WriteError: when a file cannot be removed.
    """
    layout = Layout(Path(path))
    manifest = load_manifest(layout.root)
    now = time.time() if now_s is None else now_s
    files = [f for f in _files(layout.root, now) if is_temporary(f.path.name) and f.age_s >= min_age_s]
    shards = [_sorted_out(shard, min_age_s, now) for shard in layout.existing_shards(manifest.shard_count)]
    for shard in shards:
        files.extend(shard.unneeded)
    if manifest.layout == "PerSample" and not any(shard.is_live for shard in shards):
        files.extend(_unlisted_samples(layout, manifest, shards, min_age_s, now))
    if remove:
        _remove(files)
    return CleanReport(layout.root, tuple(f.path for f in files), sum(f.bytes for f in files), removed=remove)


def clean_shard(shard: ShardLayout, *, min_age_s: float = MIN_AGE_S, now_s: float | None = None) -> int:
    """Remove one shard's unneeded files, as a resume does before it writes; the bytes that this freed.

    Raises as `clean` does.
    """
    files = _sorted_out(shard, min_age_s, time.time() if now_s is None else now_s).unneeded
    _remove(files)
    return sum(file.bytes for file in files)


@dataclass(frozen=True)
class _SortedOut:
    """The files of a shard's folder."""

    shard: ShardLayout
    kept: set[str]
    """Names that a commit or a resume needs."""
    unneeded: list[_File]
    is_live: bool
    """Whether an attempt may still be at work."""


def _sorted_out(shard: ShardLayout, min_age_s: float, now_s: float) -> _SortedOut:
    files = [file for file in _files(shard.directory, now_s) if attempt_of(file.path.name)]
    live = {attempt_of(file.path.name) for file in files if file.age_s < min_age_s}
    kept = _kept(shard, current_commit(shard))
    writers = {attempt_of(name) for name in kept if is_part(name)}
    unneeded = []
    for file in files:
        attempt = attempt_of(file.path.name)
        wrote_kept = is_journal(file.path.name) and attempt in writers
        if not (attempt in live or file.path.name in kept or wrote_kept):
            unneeded.append(file)
    return _SortedOut(shard, kept, unneeded, is_live=bool(live))


def _unlisted_samples(
    layout: Layout, manifest: Manifest, shards: Iterable[_SortedOut], min_age_s: float, now_s: float
) -> Iterator[_File]:
    """The sample files that no part lists which stays: their attempts died before they journaled them."""
    schema = PartSchema.of(manifest)
    rows: set[int] = set()
    for shard in shards:
        for name in filter(is_part, shard.kept):
            with contextlib.suppress(FormatError):
                rows.update(PartFile(shard.shard.named(name), schema).samples().rows.tolist())
    for file in _files(layout.samples, now_s) if layout.samples.is_dir() else []:
        row = row_of_sample(file.path.name)
        if row is not None and row not in rows and file.age_s >= min_age_s:
            yield file


def _kept(shard: ShardLayout, commit: Commit | None) -> set[str]:
    """Names that the commit needs, and those of journaled work that it does not hold.

    A run with a larger `maxSamples` goes on from a commit: its rows are committed before the next commit.json is.
    """
    if commit is None:
        logs = {path.name for path in shard.files(lambda name: is_journal(name) or is_quarantine(name))}
        return logs | {part.name for part in journaled_parts(shard)[0]}
    stored, quarantined = _rows_of(shard, commit)
    known = np.union1d(stored, quarantined)
    names = {commit.index.name, commit.quarantine.name, *(part.name for part in commit.parts)}
    names |= {part.name for part in journaled_parts(shard)[0] if not _all_in(part, stored)}
    for path in shard.files(is_quarantine):
        if not np.isin([entry.row for entry in read_quarantine(path)[0]], known).all():
            names.add(path.name)
    return names


def _rows_of(shard: ShardLayout, commit: Commit) -> tuple[Int64s, Int64s]:
    """The rows that a commit holds and those that it quarantines; none when its files are broken."""
    none = np.empty(0, np.int64)
    try:
        index = SampleIndex.load(shard.named(commit.index.name), commit.parts)
        entries = read_quarantine(shard.named(commit.quarantine.name))[0]
    except FormatError:
        return none, none
    return index.row, np.array([entry.row for entry in entries], np.int64)


def _all_in(part: PartInfo, rows: Int64s) -> bool:
    """Whether all rows of a part are among `rows`, which ascend."""
    firsts, lasts = np.array(part.rows, np.int64).reshape(-1, 2).T
    found = np.searchsorted(rows, lasts, side="right") - np.searchsorted(rows, firsts)
    return bool(np.all(found == lasts - firsts + 1))


def _files(folder: Path, now_s: float) -> list[_File]:
    found = []
    try:
        for path in sorted(folder.iterdir()):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                found.append(_File(path, status.st_size, now_s - status.st_mtime))
    except OSError as error:
        raise ReadError(folder, error) from error
    return found


def _remove(files: list[_File]) -> None:
    for file in files:
        with writing(file.path):
            file.path.unlink(missing_ok=True)
    for folder in {file.path.parent for file in files}:
        sync_folder(folder)
