"""Conditions between fields, held by the API server and by `drillcore run` alike.

A rule is written once: its CEL expression goes into the CRD, its Python predicate runs when a job is read
locally, and both report the same message. Fields that may be absent are guarded with has() in CEL, because
a rule on an absent field is an error there.
Source: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drillcore_spec.errors import Location


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
    """The field to name in the error, from the object that has the rule; aliases, as in YAML."""
    got_cel: str | None = None
    """CEL expression of the string that tells what was got; None: the message has no such part."""
    got: Callable[[Any], str] | None = None
    """The same string from the pydantic model."""

    @property
    def message(self) -> str:
        """The part of the message that is the same for every object."""
        return f"expected {self.expected}"

    def message_for(self, value: Any) -> str:
        """The whole message for one object that breaks the rule."""
        return self.message if self.got is None else f"{self.message}; got {self.got(value)}"

    @property
    def message_cel(self) -> str | None:
        """CEL expression of the whole message; None when `message` is all of it."""
        if self.got_cel is None:
            return None
        quoted = self.message.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{quoted}; got ' + {self.got_cel}"
