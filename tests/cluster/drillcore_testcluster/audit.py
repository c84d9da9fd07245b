"""Who called what: the API server's audit log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_REVIEWS = frozenset({"tokenreviews", "subjectaccessreviews"})


@dataclass(frozen=True)
class Call:
    """One request that was answered."""

    verb: str
    group: str
    resource: str
    """With its subresource, as in a Role; empty for a path that is no resource."""
    namespace: str
    """Empty for all namespaces, and for what has none."""
    code: int

    @property
    def is_review(self) -> bool:
        """A question about a token."""
        return self.resource in _REVIEWS


def calls_of(audit_log: Path, user: str) -> list[Call]:
    """All requests of a user, in the order of the log."""
    entries = map(json.loads, audit_log.read_text().splitlines())
    return [_call(entry) for entry in entries if entry["user"].get("username") == user]


def _call(entry: dict[str, object]) -> Call:
    about = entry.get("objectRef")
    about = about if isinstance(about, dict) else {}
    resource = "/".join(part for part in (about.get("resource"), about.get("subresource")) if part)
    status = entry.get("responseStatus")
    code = status.get("code", 0) if isinstance(status, dict) else 0
    return Call(str(entry["verb"]), about.get("apiGroup") or "", resource, about.get("namespace") or "", code)
