"""Which writer gets the next sample, and when its part is closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class WriterLoad:
    """What the drain thread knows of one writer."""

    index: int
    queued_bytes: int = 0
    """Handed over, not written."""
    part_bytes: int = 0
    """Of the part that is filled now, dropped samples included."""
    opened_at_s: float | None = None
    """When the part's first sample began; `None`: nothing in it."""
    num_closing: int = 0
    """Parts that it was told to close and that are not durable yet: it may be busy for long."""

    def begin_sample(self, now_s: float) -> None:
        """The first sample of a part starts the part's age."""
        if self.opened_at_s is None:
            self.opened_at_s = now_s

    def begin_close(self) -> None:
        """Counts for the next part from here on."""
        self.num_closing += 1
        self.part_bytes = 0
        self.opened_at_s = None

    def is_due(self, max_bytes: int, max_age_s: float, now_s: float) -> bool:
        """Whether the part is large or old enough to be closed."""
        return self.opened_at_s is not None and (self.part_bytes >= max_bytes or now_s - self.opened_at_s >= max_age_s)


def choose_writer(loads: Sequence[WriterLoad], busy_bytes: int) -> WriterLoad:
    """The writer of the next sample: the first that is not busy, else the one with the least before it.

    So one writer makes few, large parts as long as it keeps up, and all of them share the load when it does not.
    A writer that closes its part waits for the disk, and what is queued behind that would hold up the ring's
    in-order release: it is taken only when all are closing.
    """
    free = [load for load in loads if not load.num_closing] or list(loads)
    for load in free:
        if load.queued_bytes < busy_bytes:
            return load
    return min(free, key=lambda load: load.queued_bytes)
