"""Reading of fields that several kinds have: times, conditions, completion indexes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Manifest = Mapping[str, Any]


@dataclass(frozen=True)
class ConditionView:
    """One condition of a Kubernetes object."""

    status: str
    reason: str
    message: str
    time: datetime | None
    """When it last changed."""


def parse_time(text: str | None) -> datetime | None:
    """A Kubernetes time (RFC 3339, UTC); None stays None."""
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def format_time(time: datetime) -> str:
    """The form in which Kubernetes writes times: seconds, UTC."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions_of(status: Manifest) -> dict[str, ConditionView]:
    """The conditions in a status, by type."""
    return {
        entry["type"]: ConditionView(
            status=entry["status"],
            reason=entry.get("reason") or "",
            message=entry.get("message") or "",
            time=parse_time(entry.get("lastTransitionTime")),
        )
        for entry in status.get("conditions") or ()
    }


def parse_indexes(text: str | None) -> frozenset[int]:
    """Completion indexes as Kubernetes writes them, such as `1,3-5`."""
    indexes: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first:
            indexes.update(range(int(first), int(last or first) + 1))
    return frozenset(indexes)
