"""Errors of the library.

DrillcoreError
├── OutputNotFoundError          no drillcore output at this path
├── OutputIncompleteError        some shards are not committed yet
├── RowNotFoundError             no sample of this row (also a KeyError)
├── ReadError                    the operating system refuses a read
├── FormatError                  a file is not what drillcore writes; carries `path`
│   ├── UnsupportedVersionError  written in another format version
│   └── ChecksumError            bytes changed since they were written
└── WriteError                   carries `path` and the `reason` that ends the shard
    ├── OutputVolumeFullError    no space or no quota left
    ├── OutputUnwritableError    read-only, not permitted, not a folder
    ├── OutputIOError            any other refusal of the operating system: worth a retry
    ├── OutputForeignError       the folder holds something else
    ├── OutputIdentityError      the folder holds the output of another job; carries `fields`
    └── RowCountError            rows in are not rows out + quarantined
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from drillcore_spec.reasons import Reason


class DrillcoreError(Exception):
    """Whatever this library raises for a cause from outside."""


class OutputNotFoundError(DrillcoreError):
    """The path holds no drillcore output."""


class OutputIncompleteError(DrillcoreError):
    """Some shards are not committed."""


class RowNotFoundError(DrillcoreError, KeyError):
    """The output holds no sample of this row."""

    __str__ = Exception.__str__


class ReadError(DrillcoreError):
    """The operating system refuses to read a file."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path}: cannot be read: {error.strerror or error}")
        self.path = path


class FormatError(DrillcoreError):
    """A file is not what drillcore writes."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class UnsupportedVersionError(FormatError):
    """A file is written in a format version that this library does not read."""


class ChecksumError(FormatError):
    """The bytes of a file are not those that were written."""


class WriteError(DrillcoreError):
    """The output cannot be written."""

    _reason: ClassVar[str]

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path

    @property
    def reason(self) -> Reason:
        """Why the shard ends. Imported on use, so that readers never load the job spec."""
        from drillcore_spec.reasons import Reason

        return Reason(self._reason)


class OutputVolumeFullError(WriteError):
    """The volume has no space or no quota left."""

    _reason = "OutputVolumeFull"


class OutputUnwritableError(WriteError):
    """The volume is read-only, not ours to write, or not a folder."""

    _reason = "OutputUnwritable"


class OutputIOError(WriteError):
    """The operating system refuses for a cause that a retry may cure."""

    _reason = "Internal"


class OutputForeignError(WriteError):
    """The folder holds files of something else than drillcore."""

    _reason = "OutputForeign"


class OutputIdentityError(WriteError):
    """The folder holds the output of another job."""

    _reason = "OutputIdentity"

    def __init__(self, path: Path, problem: str, fields: tuple[str, ...]) -> None:
        super().__init__(path, problem)
        self.fields = fields
        """Dotted names of the identity's fields that differ."""


class RowCountError(WriteError):
    """A shard's rows do not add up: nothing is committed."""

    _reason = "Internal"


_FULL = {errno.ENOSPC, errno.EDQUOT}
_UNWRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EFBIG, errno.ENAMETOOLONG}


def write_error(path: Path, error: OSError) -> WriteError:
    """The typed error for a refused write on `path`."""
    detail = error.strerror or str(error)
    if error.errno in _FULL:
        return OutputVolumeFullError(path, f"the output volume is full ({detail}); free space, then the job resumes")
    if error.errno in _UNWRITABLE:
        return OutputUnwritableError(path, f"the output is not writable ({detail}); check the volume's access")
    return OutputIOError(path, f"writing failed ({detail})")
