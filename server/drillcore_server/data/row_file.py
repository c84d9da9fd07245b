"""What every file format gives: how many rows a file holds, and any ranges of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from drillcore_server.data.rows import RowFault


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row of one file."""

    row: int
    """Counted from 0 in the file."""
    line: int
    """Line of the file, or row of a columnar file, from 1."""
    content: Mapping[str, Any] | RowFault
    """The row's columns, or why it cannot be read."""
    num_bytes: int
    """Size in the file."""


class RowFile(Protocol):
    """One file of a dataset, opened anew for each pass over it."""

    @property
    def name(self) -> str:
        """Path relative to the dataset's root."""
        ...

    @property
    def num_rows(self) -> int:
        """Rows in the file, readable or not."""
        ...

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The columns that every row has; None when each row says for itself."""
        ...

    def read(self, ranges: Iterable[range]) -> Iterator[FileRow]:
        """The rows of ascending ranges, one at a time.

        Raises:
            ShardError: SHARD_UNREADABLE when the file cannot be read, or changed since it was opened first.
        """
        ...
