"""Events about an ExtractionJob: one object for each reason and message, counted up when told again."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from drillcore_operator.observed.fields import format_time
from drillcore_spec import names

Manifest = dict[str, Any]

MAX_EVENT_MESSAGE_CHARACTERS = 1024
"""The API server's limit."""


def event_name(job_name: str, uid: str, reason: str, message: str) -> str:
    """The same for the same job, reason and message, so that a restarted operator counts on."""
    digest = hashlib.sha256("\0".join((uid, reason, message)).encode()).hexdigest()
    return f"{job_name}.{digest[:16]}"


def build_event(
    *, namespace: str, name: str, uid: str, reason: str, message: str, is_warning: bool, now: datetime
) -> Manifest:
    """The manifest of the first telling."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(name, uid, reason, message), "namespace": namespace},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "reason": reason,
        "message": message[:MAX_EVENT_MESSAGE_CHARACTERS],
        "type": "Warning" if is_warning else "Normal",
        "source": {"component": names.FIELD_MANAGER},
        "firstTimestamp": format_time(now),
        "lastTimestamp": format_time(now),
        "count": 1,
    }


def count_up(event: Manifest, now: datetime) -> Manifest:
    """The merge patch of a further telling."""
    return {"count": event.get("count", 1) + 1, "lastTimestamp": format_time(now)}
