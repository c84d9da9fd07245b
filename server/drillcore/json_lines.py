"""Files of JSON lines that only grow: the journal and the quarantine file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import xxhash

from drillcore.durable import create, sync, sync_folder, write_at, writing
from drillcore.errors import FormatError, OutputIOError
from drillcore.json_fields import JsonValue, canonical_json, parse_json, read_file
from drillcore.part_info import FileInfo


class JsonLinesWriter:
    """Appends lines to a new file. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Create the file.

        Raises:
            WriteError: when the volume refuses, or the file exists.
        """
        self.path = path
        self._fd = create(path)
        self._size_bytes = 0
        self._hash = xxhash.xxh3_64()
        self._failed = False
        sync_folder(path.parent)

    def append(self, value: JsonValue) -> None:
        """Append one line; it is durable after the next `sync`.

        Raises:
            WriteError: when the volume refuses; the file then takes no more.
        """
        if self._failed:
            raise OutputIOError(self.path, "an earlier line could not be written")
        line = canonical_json(value) + b"\n"
        self._failed = True
        write_at(self._fd, memoryview(line), self._size_bytes, self.path)
        self._failed = False
        self._hash.update(line)
        self._size_bytes += len(line)

    def sync(self) -> None:
        """Bring all lines to the disk.

        Raises:
            WriteError: when the volume refuses; the file then takes no more.
        """
        if self._failed:
            raise OutputIOError(self.path, "an earlier line could not be written")
        self._failed = True
        sync(self._fd, self.path)
        self._failed = False

    @property
    def info(self) -> FileInfo:
        """What a commit says about the file as it is now."""
        return FileInfo(self.path.name, self._size_bytes, self._hash.hexdigest())

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with writing(self.path):
                os.close(fd)


def read_lines(path: Path) -> Iterator[tuple[str, JsonValue | FormatError]]:
    """The lines of a file: `line N`, and its value or why it has none.

    What stands behind the last line feed is a line that a crash cut off: it never counted, and is left out.

    Raises:
        FormatError: when the file is missing.
        ReadError: when it cannot be read.
    """
    lines = read_file(path).split(b"\n")[:-1]
    for number, line in enumerate(lines, start=1):
        try:
            yield f"line {number}", parse_json(line, path)
        except FormatError as error:
            yield f"line {number}", FormatError(path, f"line {number}: {error.problem}")
