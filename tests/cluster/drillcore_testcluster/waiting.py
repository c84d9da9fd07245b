"""Waiting for what no watch tells."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.2


def until(holds: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Waits until it holds; fails with `what` when it does not in time."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(POLL_S)
