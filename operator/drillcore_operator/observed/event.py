"""Events of the cluster about a child Job and its pods: the only place where some refusals are told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from drillcore_operator.observed.fields import Manifest, parse_time


@dataclass(frozen=True)
class ClusterEvent:
    """What decisions need of a v1 Event."""

    object_kind: str
    object_name: str
    reason: str
    message: str
    time: datetime
    """When it was last seen."""

    @classmethod
    def from_api(cls, event: Manifest) -> Self:
        """Reads an event; the old and the new API leave its time in different fields."""
        about = event["involvedObject"]
        series = event.get("series") or {}
        time = parse_time(
            event.get("lastTimestamp")
            or series.get("lastObservedTime")
            or event.get("eventTime")
            or event["metadata"]["creationTimestamp"]
        )
        assert time is not None
        return cls(
            object_kind=about.get("kind", ""),
            object_name=about.get("name", ""),
            reason=event.get("reason") or "",
            message=event.get("message") or "",
            time=time,
        )
