"""Parquet and Arrow files by pyarrow: only the wanted columns of the wanted rows are read.

Arrow files are IPC streams, as `datasets.save_to_disk` writes them, or IPC files (Feather 2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drillcore.records import QuarantineReason
from drillcore_server.data.files import FileState, FoundFile
from drillcore_server.data.range_cursor import RangeCursor
from drillcore_server.data.row_file import FileRow
from drillcore_server.data.rows import RowFault
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

BLOCK_ROWS = 256
"""Rows that are Python objects at the same time."""
_FAILURES = (pa.ArrowException, OSError)
_ARROW_FILE_MAGIC = b"ARROW1"


@dataclass(frozen=True, slots=True)
class _ColumnarFile(ABC):
    found: FoundFile
    state: FileState
    num_rows: int
    column_names: tuple[str, ...]
    """All columns of the file."""
    columns: tuple[str, ...]
    """Those of them that are read."""

    @property
    def name(self) -> str:
        """Path relative to the dataset's root."""
        return self.found.name

    def read(self, ranges: Iterable[range]) -> Iterator[FileRow]:
        """The rows of ascending ranges; see `RowFile.read`."""
        try:
            self.found.check_unchanged(self.state)
            yield from self._read(RangeCursor(ranges))
        except _FAILURES as error:
            raise ShardError(Reason.SHARD_UNREADABLE, _message(self.found, error)) from error

    @abstractmethod
    def _read(self, wanted: RangeCursor) -> Iterator[FileRow]:
        """The wanted rows; what a broken file makes pyarrow raise is handled by `read`."""


class ParquetFile(_ColumnarFile):
    """One Parquet file: row groups without a wanted row are not touched."""

    @classmethod
    def open(cls, found: FoundFile, columns: Collection[str]) -> ParquetFile:
        """Read the file's footer.

        Raises:
            ShardError: BAD_DATASET when it is no Parquet file, or has a wanted column twice.
        """
        with _refusing(found), pq.ParquetFile(found.path) as file:
            names = tuple(file.schema_arrow.names)
            return cls(found, found.state(), file.metadata.num_rows, names, _wanted_names(found, names, columns))

    def _read(self, wanted: RangeCursor) -> Iterator[FileRow]:
        with pq.ParquetFile(self.found.path, buffer_size=1 << 20, pre_buffer=False) as file:
            first = 0
            for group in range(file.num_row_groups):
                rows = range(first, first + file.metadata.row_group(group).num_rows)
                if wanted.wants(rows):
                    batches = file.iter_batches(BLOCK_ROWS, row_groups=[group], columns=list(self.columns))
                    yield from _rows_of(batches, first, wanted)
                first = rows.stop


class ArrowFile(_ColumnarFile):
    """One Arrow IPC stream or file."""

    @classmethod
    def open(cls, found: FoundFile, columns: Collection[str]) -> ArrowFile:
        """Count the rows of the file.

        Raises:
            ShardError: BAD_DATASET when it is no Arrow file, or has a wanted column twice.
        """
        with _refusing(found), _arrow_batches(found) as (schema, batches):
            names = tuple(schema.names)
            wanted = _wanted_names(found, names, columns)
            return cls(found, found.state(), sum(batch.num_rows for batch in batches), names, wanted)

    def _read(self, wanted: RangeCursor) -> Iterator[FileRow]:
        with _arrow_batches(self.found) as (_, batches):
            yield from _rows_of((batch.select(list(self.columns)) for batch in batches), 0, wanted)


def _wanted_names(found: FoundFile, names: Sequence[str], columns: Collection[str]) -> tuple[str, ...]:
    """The names of the columns that are read."""
    wanted = tuple(name for name in names if name in columns)
    if len(set(wanted)) < len(wanted):
        twice = next(name for name in wanted if wanted.count(name) > 1)
        raise ShardError(Reason.BAD_DATASET, f"{found.path} must have one column {twice!r}; got {wanted.count(twice)}")
    return wanted


@contextmanager
def _arrow_batches(found: FoundFile) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The schema of an Arrow file and its record batches, one at a time."""
    with pa.OSFile(str(found.path)) as file:
        is_stream = file.read(len(_ARROW_FILE_MAGIC)) != _ARROW_FILE_MAGIC
        file.seek(0)
        reader = pa.ipc.open_stream(file) if is_stream else pa.ipc.open_file(file)
        if is_stream:
            yield reader.schema, iter(reader)
        else:
            yield reader.schema, (reader.get_batch(index) for index in range(reader.num_record_batches))


@contextmanager
def _refusing(found: FoundFile) -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        raise ShardError(Reason.BAD_DATASET, _message(found, error)) from error


def _message(found: FoundFile, error: BaseException) -> str:
    first_line = next(iter(str(error).splitlines()), type(error).__name__)
    return f"{found.path} cannot be read: {first_line}"


def _rows_of(batches: Iterable[Any], first: int, wanted: RangeCursor) -> Iterator[FileRow]:
    """The wanted rows of consecutive record batches, the first of which begins at row `first`."""
    for batch in batches:
        for start in range(0, batch.num_rows, BLOCK_ROWS):
            block = batch.slice(start, BLOCK_ROWS)
            rows = range(first + start, first + start + block.num_rows)
            for part in wanted.cut(rows):
                yield from _file_rows(block.slice(part.start - rows.start, len(part)), part)
        if wanted.is_done:
            return
        first += batch.num_rows


def _file_rows(batch: Any, rows: range) -> Iterator[FileRow]:
    num_bytes = batch.nbytes // max(batch.num_rows, 1)
    for row, content in zip(rows, _records(batch), strict=True):
        yield FileRow(row, row + 1, content, num_bytes)


def _records(batch: Any) -> list[dict[str, Any] | RowFault]:
    """Each row as Python objects; when one cannot be one, the others still can."""
    try:
        records: list[dict[str, Any] | RowFault] = batch.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        if batch.num_rows == 1:
            return [RowFault(QuarantineReason.UNREADABLE_ROW, f"the row cannot be read: {error}")]
        return [record for index in range(batch.num_rows) for record in _records(batch.slice(index, 1))]
    return records
