"""Statuses of pods as a real kubelet reports them, kept as files in ../pod_statuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent.parent / "pod_statuses"


def pod_status(situation: str, *, age_s: float = 2.0, **values: str | int) -> dict[str, Any]:
    """The status in a situation that began `age_s` ago; `values` fill the file's own placeholders."""
    now = datetime.now(UTC)
    times = {"now": _text(now), "since": _text(now - timedelta(seconds=age_s))}
    quoted = {name: json.dumps(value) for name, value in (times | values).items()}
    text = Template((FOLDER / f"{situation}.yaml").read_text()).substitute({"message": '""'} | quoted)
    status: dict[str, Any] = yaml.safe_load(text)
    return status


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
