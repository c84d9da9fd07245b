"""The files of a dataset on this machine's disks and volumes."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from drillcore_server.data.formats import FORMAT_OF_SUFFIX
from drillcore_server.data.splits import files_of_folder
from drillcore_server.errors import ShardError
from drillcore_server.volumes import Volumes
from drillcore_spec.reasons import Reason

_GLOB_CHARACTERS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that the dataset's URI names."""

    path: Path
    """Where it is on this machine."""
    name: str
    """Path relative to the dataset's root, with `/`: what outputs and messages call it."""

    def state(self) -> FileState:
        """Its state now; raises OSError when it is gone."""
        status = self.path.stat()
        return FileState(status.st_size, status.st_mtime_ns)

    def check_unchanged(self, before: FileState) -> None:
        """Refuse to read on in another file.

        Raises:
            ShardError: SHARD_UNREADABLE when its state is not `before`.
        """
        if self.state() != before:
            raise ShardError(Reason.SHARD_UNREADABLE, f"{self.path} changed while the job ran: start a new job")


@dataclass(frozen=True, slots=True)
class FileState:
    """What changes when somebody writes to a file."""

    size_bytes: int
    mtime_ns: int


def find_local_files(uri: str, split: str | None, volumes: Volumes) -> list[FoundFile]:
    """The files that a `file://` or `pvc://` URI names, sorted by name.

    A folder stands for the dataset files directly in it, or for a dataset that was saved there. The dataset's root
    is the folder, or the last folder of the URI without glob characters, so that names are the same wherever a
    claim is mounted.

    Raises:
        ShardError: DATASET_NOT_FOUND when there is none; BAD_DATASET when a name is not UTF-8, or when the split
            is not clear; BAD_SPEC for a split of files that are named one by one.
    """
    path = volumes.resolve(uri, "spec.dataset.uri", Reason.DATASET_NOT_FOUND)
    if path.is_dir():
        root, matches = files_of_folder(path, split)
    elif split is not None:
        raise ShardError(
            Reason.BAD_SPEC,
            f"`spec.dataset.split` chooses among the splits of a folder or of a hub's dataset; {uri!r} names files:"
            " leave the split out, or name the folder",
        )
    elif path.exists():
        root, matches = path.parent, [path]
    else:
        root, matches = _root_of(path), [Path(match) for match in glob.iglob(os.fspath(path), recursive=True)]
    files = sorted(
        (FoundFile(match, match.relative_to(root).as_posix()) for match in matches if match.is_file()),
        key=lambda file: file.name,
    )
    if not files:
        raise ShardError(Reason.DATASET_NOT_FOUND, _nothing_found(uri, path, root))
    for file in files:
        _check_name(file)
    return files


def _root_of(pattern: Path) -> Path:
    """The longest leading part of a path without glob characters."""
    parts: list[str] = []
    for part in pattern.parts:
        if _GLOB_CHARACTERS.intersection(part):
            return Path(*parts)
        parts.append(part)
    return pattern.parent


def _nothing_found(uri: str, path: Path, root: Path) -> str:
    if not root.is_dir():
        return f"`spec.dataset.uri` names no file: the folder {root} does not exist (from {uri!r})"
    if path.is_dir():
        return f"`spec.dataset.uri` names no file: the folder {path} holds no {', '.join(FORMAT_OF_SUFFIX)} file"
    there = sorted(entry.name for entry in root.iterdir())
    listed = ", ".join(there[:5]) + (", ..." if len(there) > 5 else "") if there else "nothing"
    return f"`spec.dataset.uri` names no file: nothing matches {path} (from {uri!r}); {root} holds {listed}"


def _check_name(file: FoundFile) -> None:
    if not file.name.isprintable() or not _is_utf8(file.name):
        raise ShardError(
            Reason.BAD_DATASET,
            f"a dataset file's name must be printable UTF-8; got {file.name!a} in {file.path.parent}: rename it",
        )


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
