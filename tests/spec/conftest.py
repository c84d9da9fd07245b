"""A job to start from, and files to read it from."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

RULE_CASES = yaml.safe_load((Path(__file__).parent / "rule_cases.yaml").read_text())


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7386, the JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


@pytest.fixture
def job_data() -> Callable[..., dict[str, Any]]:
    """The smallest job as plain data, with a merge patch applied."""

    def make(**change: Any) -> dict[str, Any]:
        data: dict[str, Any] = _merged(copy.deepcopy(RULE_CASES["base"]), change)
        return data

    return make


@pytest.fixture
def write_job(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Writes a job file."""

    def write(content: str | bytes) -> Path:
        path = tmp_path / "job.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
