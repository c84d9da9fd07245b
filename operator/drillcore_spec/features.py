"""Fields of the spec whose feature is not built yet: refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drillcore_spec.errors import Location, Source, SpecError
from drillcore_spec.job import ExtractionJobSpec


@dataclass(frozen=True)
class Unbuilt:
    """A feature that this version has not."""

    field: Location
    """The field that asks for it."""
    expected: str
    """What the field may be until then."""
    asked_for: Callable[[ExtractionJobSpec], object]
    """What the job asks for; false when it does not ask for this feature."""


UNBUILT: tuple[Unbuilt, ...] = (
    Unbuilt(
        ("spec", "engine", "tensorParallelSize"),
        "1",
        lambda s: s.engine.tensor_parallel_size if s.engine.tensor_parallel_size > 1 else None,
    ),
)
"""A feature's rows are deleted when it is built."""


def refuse_unbuilt(spec: ExtractionJobSpec, source: Source | None = None) -> None:
    """Refuses a job that asks for what this version cannot do.

    Args:
        spec: the job's spec.
        source: where it was read from (`load.read_job`), for the lines in the errors.

    Raises:
        SpecError: one problem for each such field.
    """
    source = source or Source("")
    asked = [(row, row.asked_for(spec)) for row in UNBUILT]
    problems = [
        source.problem(f"expected {row.expected}; got {got}, which this version cannot do", row.field)
        for row, got in asked
        if got
    ]
    if problems:
        raise SpecError(problems)
