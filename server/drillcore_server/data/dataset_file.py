"""What makes a file of a dataset the same file in the next run."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from drillcore.json_fields import JsonValue
from drillcore_server.data.files import FoundFile
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

MAX_HASHED_BYTES = 1 << 30
"""Larger files are known by size and modification time: hashing terabytes at each start would take hours."""


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """Identity of one file of a dataset."""

    path: str
    """Relative to the dataset's root."""
    bytes: int
    sha256: str | None
    """Of the content; None above MAX_HASHED_BYTES."""
    mtime_ns: int | None
    """Modification time in nanoseconds; None where there is a sha256."""

    def to_json(self) -> dict[str, JsonValue]:
        """The file's object in the manifest."""
        known: dict[str, JsonValue] = (
            {"sha256": self.sha256} if self.sha256 is not None else {"mtimeNs": self.mtime_ns or 0}
        )
        return {"path": self.path, "bytes": self.bytes, **known}


def identify(found: FoundFile) -> DatasetFile:
    """The identity of a file.

    Raises:
        ShardError: BAD_DATASET when it cannot be read.
    """
    try:
        with found.path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > MAX_HASHED_BYTES:
                return DatasetFile(found.name, status.st_size, None, status.st_mtime_ns)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ShardError(Reason.BAD_DATASET, f"{found.path} cannot be read: {error.strerror}") from error
    return DatasetFile(found.name, status.st_size, digest, None)
