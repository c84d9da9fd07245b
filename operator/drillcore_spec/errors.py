"""Errors of the job spec.

SpecError       a job file, a job in the environment or a quantity is not what the spec allows
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Location = tuple[str | int, ...]
"""Keys and list indexes from the document's root to a value, as they stand in the file."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where."""

    message: str
    """What was expected and what was got."""
    location: Location = ()
    """The field; empty for the document as a whole."""
    source: str = ""
    """File or environment variable that was read; empty when unknown."""
    line: int | None = None
    """Line in the source, from 1."""

    def __str__(self) -> str:
        """`file:line: spec.extraction.layers[1]: expected ...; got ...`, without the parts that are
        unknown.
        """
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return ": ".join(part for part in (place, field_path(self.location), self.message) if part)


class SpecError(Exception):
    """The job cannot be read; `problems` lists everything that is wrong with it, `str()` has one line for
    each.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class Source:
    """Where a job was read from, and the line of each of its fields."""

    name: str
    """File name or environment variable."""
    lines: Mapping[Location, int] = field(default_factory=dict)
    """Line of each field, from 1; empty when the source has no lines worth naming."""

    def problem(self, message: str, location: Location = ()) -> Problem:
        """A problem at `location`, on the line of the nearest enclosing field that is in the source."""
        line = next((self.lines[known] for known in _prefixes(location) if known in self.lines), None)
        return Problem(message, location, self.name, line)


def field_path(location: Location) -> str:
    """`("spec", "layers", 1)` as `spec.layers[1]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def _prefixes(location: Location) -> Iterable[Location]:
    return (location[:length] for length in range(len(location), -1, -1))
