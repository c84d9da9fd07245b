"""JSON Lines: one JSON object a line, UTF-8, plain or gzip.

Line ends are LF or CRLF; a byte order mark is skipped; blank lines are no rows. A line that is no JSON object
is a fault of that row alone.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

from drillcore.records import QuarantineReason
from drillcore_server.data.files import FileState, FoundFile
from drillcore_server.data.line_index import UTF8_BOM, LineIndex, LineIndexer
from drillcore_server.data.row_file import FileRow
from drillcore_server.data.rows import RowFault, shown
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

MAX_LINE_BYTES = 32 << 20
"""Longer lines are not loaded: this bounds the memory that one row can take. 4 million tokens of text."""
_CHUNK_BYTES = 1 << 20
_BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)


@dataclass(frozen=True, slots=True)
class JsonlFile:
    """One JSON Lines file and the places of its rows."""

    found: FoundFile
    index: LineIndex
    state: FileState
    """When the index was made."""

    @classmethod
    def open(cls, found: FoundFile, columns: Collection[str] = ()) -> JsonlFile:
        """Index the rows of a file in one pass; every row is read whole, whatever `columns` are needed.

        Raises:
            ShardError: BAD_DATASET when the file cannot be read, or is gzip in name only.
        """
        indexer = LineIndexer()
        try:
            state = found.state()
            with _open(found) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    indexer.add(chunk)
        except (OSError, *_BROKEN_GZIP) as error:
            raise ShardError(Reason.BAD_DATASET, f"{found.path} cannot be read: {_what(error)}") from error
        return cls(found, indexer.finish(), state)

    @property
    def name(self) -> str:
        """Path relative to the dataset's root."""
        return self.found.name

    @property
    def num_rows(self) -> int:
        """Lines that are not blank."""
        return self.index.num_rows

    @property
    def column_names(self) -> None:
        """Each line has its own keys."""
        return None

    def read(self, ranges: Iterable[range]) -> Iterator[FileRow]:
        """The rows of ascending ranges; see `RowFile.read`."""
        try:
            self.found.check_unchanged(self.state)
            with _open(self.found) as file:
                cursor = _Cursor(file, self.index)
                for rows in filter(len, ranges):
                    cursor.seek(rows.start)
                    for _ in rows:
                        yield cursor.read_row()
        except (OSError, *_BROKEN_GZIP) as error:
            raise ShardError(Reason.SHARD_UNREADABLE, f"{self.found.path} cannot be read: {_what(error)}") from error


class _Cursor:
    """Walks over the rows of an open file."""

    def __init__(self, file: IO[bytes], index: LineIndex) -> None:
        self._file = file
        self._index = index
        self._row = 0
        self._line = 0

    def seek(self, row: int) -> None:
        """Go on at `row`, which is not behind the cursor."""
        nearest = self._index.nearest(row)
        if nearest.row > self._row:
            self._file.seek(nearest.offset)
            self._row, self._line = nearest.row, nearest.line
        while self._row < row:
            self._next_row()

    def read_row(self) -> FileRow:
        """The row at the cursor, parsed."""
        raw, num_bytes = self._next_row()
        content: dict[str, Any] | RowFault
        try:
            content = parse_record(raw)
        except RowFault as fault:
            content = fault
        return FileRow(self._row - 1, self._line, content, num_bytes)

    def _next_row(self) -> tuple[bytes | None, int]:
        """The next line that is not blank, None for one that is too long, and its length in bytes."""
        while True:
            raw, num_bytes, is_blank = self._next_line()
            if not is_blank:
                self._row += 1
                return raw, num_bytes

    def _next_line(self) -> tuple[bytes | None, int, bool]:
        piece = self._file.readline(MAX_LINE_BYTES + 1)
        if not piece:
            raise EOFError("it ended before its last row")
        self._line += 1
        if self._line == 1:
            piece = piece.removeprefix(UTF8_BOM)
        if len(piece) <= MAX_LINE_BYTES or piece.endswith(b"\n"):
            return piece, len(piece), not piece or piece.isspace()
        num_bytes, is_blank = len(piece), piece.isspace()
        while piece and not piece.endswith(b"\n"):
            piece = self._file.readline(_CHUNK_BYTES)
            num_bytes += len(piece)
            is_blank = is_blank and (not piece or piece.isspace())
        return None, num_bytes, is_blank


def parse_record(raw: bytes | None) -> dict[str, Any]:
    """The JSON object that a line holds; None stands for a line that is too long.

    Raises:
        RowFault: UNREADABLE_ROW when it holds anything else.
    """
    if raw is None:
        raise RowFault(QuarantineReason.UNREADABLE_ROW, f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
    try:
        record = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _unreadable(f"the line must be UTF-8; byte {error.start + 1} is {raw[error.start]:#04x}") from None
    except json.JSONDecodeError as error:
        raise _unreadable(f"the line must be one JSON object; {error.msg} at character {error.pos + 1}") from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"the line must be one JSON object; {error}") from None
    if not isinstance(record, dict):
        raise _unreadable(f"the line must be one JSON object; got {shown(record)}")
    return record


def _unreadable(message: str) -> RowFault:
    return RowFault(QuarantineReason.UNREADABLE_ROW, message)


@contextmanager
def _open(found: FoundFile) -> Iterator[IO[bytes]]:
    """The file's content, unpacked."""
    with found.path.open("rb", buffering=_CHUNK_BYTES) as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if is_gzip:
            with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
                yield cast("IO[bytes]", unpacked)
        else:
            yield raw


def _what(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
