"""ExtractionJob manifests for tests: the smallest one, changed at a path."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

MINIMAL_SPEC: dict[str, Any] = {
    "model": {"uri": "pvc://models/tiny"},
    "dataset": {"uri": "pvc://datasets/*.jsonl", "columns": {"text": "text"}},
    "extraction": {"layers": [1, 2]},
    "output": {"claimName": "states"},
}
"""Only what is required."""


def extraction_job(name: str, namespace: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """A job; `changes` maps dotted paths in the spec to values, None removes the field."""
    spec = deepcopy(MINIMAL_SPEC)
    for path, value in (changes or {}).items():
        change(spec, path, value)
    return {
        "apiVersion": "drillcore.dev/v1alpha1",
        "kind": "ExtractionJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def change(target: dict[str, Any], path: str, value: object) -> None:
    """Sets the field at a dotted path, making objects on the way; None removes it."""
    *folders, key = path.split(".")
    for folder in folders:
        target = target.setdefault(folder, {})
    if value is None:
        target.pop(key, None)
    else:
        target[key] = value
