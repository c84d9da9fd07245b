"""A locked file that tells whether its maker lives.

The maker holds the lock until it ends; the kernel gives it up then, however it ends. Whoever gets the lock of a file
that somebody else made knows that the maker is gone, and that nobody else is removing what it left.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def make(path: Path) -> int | None:
    """Makes the file and takes its lock; the lock is held until the descriptor and all its copies are closed.

    Returns:
        The descriptor; None when somebody took the file for a leftover before it was locked: choose another name.

    Raises:
        OSError: the file cannot be made, or is there already.
    """
    # Where the file system has no locks nobody can take the file for a leftover.
    return _locked(path, os.O_CREAT | os.O_EXCL, without_locks=True)


def take(path: Path) -> int | None:
    """The descriptor of a file whose maker is gone, with its lock.

    Returns:
        None when the maker lives, somebody else takes it, there is no such file, or there are no locks.
    """
    try:
        return _locked(path, 0, without_locks=False)
    except OSError:
        return None


def _locked(path: Path, flags: int, *, without_locks: bool) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    if _lock(fd, without_locks=without_locks):
        return fd
    os.close(fd)
    return None


def _lock(fd: int, *, without_locks: bool) -> bool:
    """Whether we have the lock of a file that still has its name; `without_locks`: the answer where there are none."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return without_locks
    return os.fstat(fd).st_nlink > 0
