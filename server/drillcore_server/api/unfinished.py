"""Names of files under construction, and the removal of those that a killed server left.

A server holds a lock on `.serve/<id>.lock` in the storage for as long as it lives, and the names of its unfinished
files end with its id; so a later server that gets the lock knows that nobody works on these files any more. A file
system without locks is never cleaned.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from drillcore_server import life_lock

logger = logging.getLogger(__name__)

_FOLDER: Final = ".serve"
_LOCK: Final = re.compile(r"([0-9a-f]{16})\.lock")
_TEMPORARY: Final = re.compile(r"\..*-([0-9a-f]{16})\.tmp")
_HANDLE_LENGTH: Final = 100


class Unfinished:
    """The unfinished files of one server in one storage. Any thread."""

    def __init__(self, root: Path) -> None:
        """Take an id and its lock.

        Raises:
            OSError: the storage refuses a file.
        """
        folder = root / _FOLDER
        folder.mkdir(exist_ok=True)
        lock_fd = None
        while lock_fd is None:
            self._id = os.urandom(8).hex()
            self._lock_path = folder / f"{self._id}.lock"
            lock_fd = life_lock.make(self._lock_path)
        self._lock_fd = lock_fd

    def name_of(self, handle: str) -> str:
        """A name that no other file has; hidden, at most 255 bytes."""
        return f".{handle[-_HANDLE_LENGTH:]}-{os.urandom(4).hex()}-{self._id}.tmp"

    def close(self) -> None:
        """Gives the id up; nothing is under construction any more."""
        with suppress(OSError):
            self._lock_path.unlink()
        os.close(self._lock_fd)


def remove_leftovers(root: Path) -> int:
    """Removes the unfinished files of servers that are gone; gives their number. Looks into folders only after a kill.

    Raises:
        OSError: the storage cannot be listed.
    """
    gone: dict[str, int] = {}
    for path in (root / _FOLDER).glob("*.lock"):
        if (found := _LOCK.fullmatch(path.name)) and (lock_fd := life_lock.take(path)) is not None:
            gone[found[1]] = lock_fd
    removed = [path for path in _of_servers(root, set(gone)) if _remove(path)] if gone else []
    for id_, lock_fd in gone.items():
        _remove(root / _FOLDER / f"{id_}.lock")
        os.close(lock_fd)
    if removed:
        logger.warning("removed %d unfinished files that a killed server left in %s", len(removed), root)
    return len(removed)


def _of_servers(root: Path, ids: set[str]) -> Iterator[Path]:
    # Never through links: what they lead to is not the storage's.
    for folder, _, names in os.walk(root):
        for name in names:
            if (found := _TEMPORARY.fullmatch(name)) and found[1] in ids:
                yield Path(folder, name)


def _remove(path: Path) -> bool:
    with suppress(OSError):
        path.unlink()
        return True
    return False
