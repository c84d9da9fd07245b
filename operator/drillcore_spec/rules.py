"""Conditions between fields, held by the API server and by `drillcore run` alike.

A rule is written once: its CEL expression goes into the CRD, its Python predicate runs when a job is read
locally, and both report the same message. Fields that may be absent are guarded with has() in CEL, because
a rule on an absent field is an error there; a field with a default counts as absent too in an object whose
own default is `{}`, because the API server tries the rules on that default before it fills it in.
Source: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drillcore_spec.errors import Location


@dataclass(frozen=True)
class Got:
    """The end of a message: what was got instead."""

    template: str
    """Text with `%d` and `%s`, which CEL's format() and Python's `%` understand alike."""
    cel: tuple[str, ...]
    """CEL expressions of the values. format(), because CEL takes the length of string(int) for unbounded."""
    values: Callable[[Any], tuple[object, ...]]
    """The same values from the pydantic model."""


@dataclass(frozen=True)
class Rule:
    """One condition on an object of the spec; `self` in CEL is what the predicates get."""

    cel: str
    """CEL expression that is true when the rule holds."""
    holds: Callable[[Any], bool]
    """The same condition on the pydantic model."""
    expected: str
    """What is expected, without the leading word."""
    field: Location = ()
    """The field to name in the error, from the object that has the rule; keys as in YAML."""
    got: Got | None = None
    """The end of the message; None: it has no such part."""

    @property
    def message(self) -> str:
        """The part of the message that is the same for every object."""
        return f"expected {self.expected}"

    @property
    def message_cel(self) -> str | None:
        """CEL expression of the whole message; None when `message` is all of it."""
        if self.got is None:
            return None
        text = self.message.replace("%", "%%") + "; got " + self.got.template
        return f"{cel_string(text)}.format([{', '.join(self.got.cel)}])"

    def message_for(self, value: Any) -> str:
        """The whole message for one object that breaks the rule."""
        if self.got is None:
            return self.message
        return f"{self.message}; got {self.got.template % self.got.values(value)}"


def cel_string(text: str) -> str:
    """A CEL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
