"""Wakes the drain thread from other threads and from signal handlers."""

from __future__ import annotations

import contextlib
import os


class Waker:
    """An eventfd beside the doorbell in the selector. Many calls before the drain thread turns are one system call."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._rung = False

    def fileno(self) -> int:
        """For a selector."""
        return self._fd

    def wake(self) -> None:
        """Makes the selector return. Say what happened first, then wake."""
        if not self._rung:
            self._rung = True
            os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        """Takes the ringing back; look at what happened after this.

        A thread may stand between its mark and its write, then its write comes late and wakes once more for nothing.
        Reading before the mark is taken back is what loses no wake.
        """
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        self._rung = False

    def close(self) -> None:
        """Closes the eventfd."""
        os.close(self._fd)
