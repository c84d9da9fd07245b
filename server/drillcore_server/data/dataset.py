"""The rows of a dataset: numbered over all its files, shared out to shards, read in any ranges."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drillcore.records import QuarantineEntry
from drillcore_server.data.column_check import check_columns, named_columns
from drillcore_server.data.columnar import ArrowFile, ParquetFile
from drillcore_server.data.dataset_file import DatasetFile, identify
from drillcore_server.data.files import FoundFile, find_local_files
from drillcore_server.data.formats import resolve_format
from drillcore_server.data.hub import find_hub_files
from drillcore_server.data.jsonl import JsonlFile
from drillcore_server.data.row_file import FileRow, RowFile
from drillcore_server.data.rows import RowFault, SourceRow
from drillcore_server.errors import ShardError
from drillcore_server.volumes import Volumes
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.enums import DatasetFormat
from drillcore_spec.reasons import Reason
from drillcore_spec.uris import is_hub

_OPENER_OF: dict[DatasetFormat, Callable[[FoundFile, Collection[str]], RowFile]] = {
    DatasetFormat.JSONL: JsonlFile.open,
    DatasetFormat.PARQUET: ParquetFile.open,
    DatasetFormat.ARROW: ArrowFile.open,
}


@dataclass(frozen=True)
class Dataset:
    """A dataset that was found, counted and identified. Its rows are read from the files at each pass."""

    files: tuple[DatasetFile, ...]
    """Identity of the files, sorted by path."""
    format: DatasetFormat
    """Never Auto."""
    revision: str | None
    """The commit of a hub's dataset; None for files, which have no history."""
    num_rows: int
    """Rows of the job: of all files, at most maxSamples."""
    row_files: tuple[RowFile, ...]
    """The same files, for reading."""

    def shard_rows(self, index: int, count: int) -> range:
        """The rows of shard `index` of `count`: contiguous, in order, sizes differ by at most one."""
        size, larger = divmod(self.num_rows, count)
        start = index * size + min(index, larger)
        return range(start, start + size + (index < larger))

    def read(self, rows: range, skip: NDArray[np.int64] | None = None) -> Iterator[SourceRow | QuarantineEntry]:
        """The rows of a range in order, without those in `skip`, which are not even parsed.

        Args:
            rows: contiguous, within 0..num_rows.
            skip: sorted row numbers, which may lie outside `rows`.

        Raises:
            ShardError: SHARD_UNREADABLE when a file cannot be read any more, or changed.
        """
        skipped = np.empty(0, dtype=np.int64) if skip is None else skip
        first = 0
        for file in self.row_files:
            part = range(max(rows.start, first), min(rows.stop, first + file.num_rows))
            if part:
                wanted = (range(r.start - first, r.stop - first) for r in wanted_ranges(part, skipped))
                for file_row in file.read(wanted):
                    yield _source_row(file.name, first, file_row)
            first += file.num_rows


def open_dataset(source: DatasetSource, volumes: Volumes, cache_dir: Path | None = None) -> Dataset:
    """Find, count and identify the dataset, and check that it has the job's columns.

    One pass over each file; memory does not grow with their size.

    Args:
        source: the job's dataset.
        volumes: where claims are mounted.
        cache_dir: folder of downloaded files; None: huggingface_hub's own (HF_HOME).

    Raises:
        ShardError: DATASET_NOT_FOUND when no file is there; BAD_DATASET when a file cannot be read, no row is
            readable, or a column is missing; MODEL_UNAVAILABLE when a hub does not answer.
    """
    if is_hub(source.uri):
        found, revision = find_hub_files(source.uri, source.split, cache_dir)
    else:
        found, revision = find_local_files(source.uri, source.split, volumes), None
    file_format = resolve_format(source.format, (file.name for file in found))
    columns = frozenset(name for _, name in named_columns(source))
    opener = _OPENER_OF[file_format]
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        row_files: tuple[RowFile, ...] = tuple(pool.map(opener, found, repeat(columns)))
        files = tuple(pool.map(identify, found))
    num_rows = sum(file.num_rows for file in row_files)
    if num_rows == 0:
        raise ShardError(Reason.BAD_DATASET, f"{source.uri} has no rows: its {len(found)} file(s) are empty")
    dataset = Dataset(files, file_format, revision, min(num_rows, source.max_samples or num_rows), row_files)
    check_columns(source, dataset.read(range(dataset.num_rows)), _schema(row_files))
    return dataset


def _schema(files: tuple[RowFile, ...]) -> tuple[str, ...]:
    """The columns of all files that name theirs, in order of appearance."""
    return tuple(dict.fromkeys(name for file in files for name in file.column_names or ()))


def wanted_ranges(rows: range, skip: NDArray[np.int64]) -> Iterator[range]:
    """The maximal ranges of `rows` without the sorted row numbers `skip`."""
    if not rows:
        return
    low, high = np.searchsorted(skip, [rows.start, rows.stop])
    edges = np.concatenate(([rows.start - 1], skip[low:high], [rows.stop]))
    gaps = np.flatnonzero(np.diff(edges) > 1)
    for gap in gaps:
        yield range(int(edges[gap]) + 1, int(edges[gap + 1]))


def _source_row(file: str, first: int, row: FileRow) -> SourceRow | QuarantineEntry:
    if isinstance(row.content, RowFault):
        fault = row.content
        return QuarantineEntry(first + row.row, file, row.line, None, fault.reason, fault.message, fault.skipped)
    return SourceRow(first + row.row, file, row.line, row.content, row.num_bytes)
