"""Who called what: the API server's audit log."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"]}
- {level: None, userGroups: ["system:serviceaccounts:kube-system"]}
- {level: Metadata}
"""
"""Who called what, Kubernetes' own controllers left out; bodies too, because they hold tokens and are large."""

_REVIEWS = frozenset({"tokenreviews", "subjectaccessreviews"})
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_DECISION = "authorization.k8s.io/decision"

Right = tuple[str, str, str]
"""API group, resource and verb, as in a rule of a Role."""


@dataclass(frozen=True)
class Call:
    """One request that was answered."""

    time: str
    """When it came in: RFC 3339 with microseconds, which sorts as text."""
    verb: str
    group: str
    resource: str
    """With its subresource, as in a Role; empty for a path that is no resource."""
    namespace: str
    """Empty for all namespaces, and for what has none."""
    name: str
    code: int
    is_forbidden: bool
    """RBAC refused it; admission, such as of a namespace that ends, did not."""

    @property
    def is_review(self) -> bool:
        """A question about a token."""
        return self.resource in _REVIEWS

    @property
    def is_write(self) -> bool:
        """Whether it may have changed something that is stored."""
        return self.verb in _WRITES and not self.is_review

    @property
    def right(self) -> Right:
        """What a Role must grant for it."""
        return self.group, self.resource, self.verb


def calls_of(audit_log: Path, user: str) -> list[Call]:
    """All requests of a user, in the order of the log."""
    return [_call(entry) for entry in _entries(audit_log, user) if entry["user"].get("username") == user]


def rights_used(calls: list[Call]) -> set[Right]:
    """What a Role must grant for these requests; the questions about tokens have a role of their own."""
    return {call.right for call in calls if call.resource and not call.is_review}


def created_jobs(audit_log: Path, namespace: str) -> Counter[str]:
    """How often each Job of a namespace was created, whoever did it; objects that are gone count too."""
    calls = [_call(entry) for entry in _entries(audit_log, namespace)]
    wanted = "create", "jobs", namespace, 201
    return Counter(call.name for call in calls if (call.verb, call.resource, call.namespace, call.code) == wanted)


def _entries(audit_log: Path, word: str) -> list[dict[str, Any]]:
    """The entries that hold a word somewhere; most need not be parsed."""
    with audit_log.open() as lines:
        return [json.loads(line) for line in lines if word in line]


def _call(entry: dict[str, Any]) -> Call:
    about = entry.get("objectRef") or {}
    return Call(
        time=entry["requestReceivedTimestamp"],
        verb=entry["verb"],
        group=about.get("apiGroup") or "",
        resource="/".join(part for part in (about.get("resource"), about.get("subresource")) if part),
        namespace=about.get("namespace") or "",
        name=about.get("name") or "",
        code=(entry.get("responseStatus") or {}).get("code", 0),
        is_forbidden=(entry.get("annotations") or {}).get(_DECISION) == "forbid",
    )
