"""What the work queue and the memory of the operator are keyed by."""

from __future__ import annotations

from typing import NamedTuple


class JobKey(NamedTuple):
    """One ExtractionJob by its place, whatever its uid."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
