"""Calls from other threads into an event loop, with one wake-up for many of them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable


class LoopInbox:
    """A queue of callbacks that the loop runs in the order in which they were posted.

    Waking a loop costs a system call. However many threads post, a loop that has not come to its inbox yet is not
    woken again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._callbacks: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def post(self, callback: Callable[[], None]) -> None:
        """Has the loop call `callback` soon. Any thread; after the loop was closed nothing happens."""
        with self._lock:
            self._callbacks.append(callback)
            is_woken, self._is_woken = self._is_woken, True
        if not is_woken and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, deque()
            self._is_woken = False
        for callback in callbacks:
            callback()
