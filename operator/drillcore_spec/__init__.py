"""The ExtractionJob resource and its vocabulary: pydantic, PyYAML and the standard library only.

What needs pydantic is imported when it is first used: the sidecar and readers of outputs import names and
reasons from here, and must start at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from drillcore_spec.errors import Problem, Source, SpecError
from drillcore_spec.quantity import quantity_bytes

if TYPE_CHECKING:
    from drillcore_spec.features import refuse_unbuilt
    from drillcore_spec.job import ExtractionJob, ExtractionJobSpec
    from drillcore_spec.load import load_job, parse_spec, read_job

__all__ = [
    "ExtractionJob",
    "ExtractionJobSpec",
    "Problem",
    "Source",
    "SpecError",
    "load_job",
    "parse_spec",
    "quantity_bytes",
    "read_job",
    "refuse_unbuilt",
]

_MODULE_OF = {
    "ExtractionJob": "job",
    "ExtractionJobSpec": "job",
    "load_job": "load",
    "parse_spec": "load",
    "read_job": "load",
    "refuse_unbuilt": "features",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
