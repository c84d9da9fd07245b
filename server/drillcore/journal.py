"""What an attempt leaves while it works: the journal of its durable parts, and its quarantined rows.

A row is committed once its part's line is in a journal: from then on it is never computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from drillcore.durable import make_folder
from drillcore.errors import FormatError
from drillcore.json_fields import JsonValue
from drillcore.json_lines import JsonLinesWriter, read_lines
from drillcore.layout import ShardLayout
from drillcore.part_info import FileInfo, PartInfo
from drillcore.records import QuarantineEntry

_T = TypeVar("_T")


class Journal:
    """Appends to an attempt's journal. Used by one thread at a time."""

    def __init__(self, shard: ShardLayout, attempt: str) -> None:
        """Create the journal, and the shard's folder; raises `WriteError`."""
        make_folder(shard.directory)
        self._lines = JsonLinesWriter(shard.journal(attempt))

    def append(self, part: PartInfo) -> None:
        """Commit the rows of a finished part: the line is on the disk when this returns.

        Raises:
            WriteError: when the volume refuses; the rows are then not committed.
        """
        self._lines.append(part.to_json())
        self._lines.sync()

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


class QuarantineLog:
    """Appends to an attempt's quarantine file. Used by one thread at a time.

    The file that a commit names holds every quarantined row of the shard, so an attempt begins its own with
    the entries that it recovered.
    """

    def __init__(self, shard: ShardLayout, attempt: str, recovered: Sequence[QuarantineEntry] = ()) -> None:
        """Create the file with the recovered entries; raises `WriteError`."""
        make_folder(shard.directory)
        self._lines = JsonLinesWriter(shard.quarantine(attempt))
        self._rows: set[int] = set()
        self.num_skipped = 0
        """Of the rows: those left out on request."""
        for entry in recovered:
            self.append(entry)
        self.sync()

    @property
    def num_rows(self) -> int:
        """Quarantined rows."""
        return len(self._rows)

    @property
    def info(self) -> FileInfo:
        """What a commit says about the file as it is now."""
        return self._lines.info

    def append(self, entry: QuarantineEntry) -> None:
        """Add a row; it is durable after the next `sync`. A row that is there already is left as it is.

        Raises:
            WriteError: when the volume refuses; the file then takes no more.
        """
        if entry.row in self._rows:
            return
        self._lines.append(entry.to_json())
        self._rows.add(entry.row)
        self.num_skipped += entry.skipped

    def sync(self) -> None:
        """Bring all entries to the disk."""
        self._lines.sync()

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def read_journal(path: Path) -> tuple[list[PartInfo], list[FormatError]]:
    """The parts that a journal names, in its order, and its lines that name none.

    Raises:
        FormatError: when the journal is missing.
        ReadError: when it cannot be read.
    """
    return _read(path, PartInfo.from_json)


def read_quarantine(path: Path) -> tuple[list[QuarantineEntry], list[FormatError]]:
    """The entries of a quarantine file, in its order, and its lines that are none; raises as `read_journal`."""
    return _read(path, QuarantineEntry.from_json)


def _read(path: Path, parse: Callable[[JsonValue, Path, str], _T]) -> tuple[list[_T], list[FormatError]]:
    records: list[_T] = []
    errors: list[FormatError] = []
    for where, value in read_lines(path):
        try:
            if isinstance(value, FormatError):
                raise value
            records.append(parse(value, path, where))
        except FormatError as error:
            errors.append(error)
    return records, errors
