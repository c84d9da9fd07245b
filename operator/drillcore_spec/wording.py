"""pydantic's validation errors in our words: `expected ...; got ...`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails

from drillcore_spec.base import RULE_ERROR
from drillcore_spec.forms import WORDS_OF_PATTERN

_EXPECTED: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "a smaller integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "enum": "{expected}",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "string_too_short": "a length of at least {min_length}",
    "string_too_long": "a length of at most {max_length}",
    "string_unicode": "text",
    "too_short": "a length of at least {min_length}",
    "too_long": "a length of at most {max_length}",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "missing": "a value",
}
"""What each of pydantic's error types means, with that error's context filled in."""

_MAX_SHOWN = 60


def reword(error: ErrorDetails, known_keys: Mapping[str, str]) -> str:
    """The message for one of pydantic's errors.

    Args:
        error: the error.
        known_keys: for an unknown key, the keys that may stand there, each with the path to suggest.
    """
    kind = error["type"]
    context = {key: _plain(value) for key, value in error.get("ctx", {}).items()}
    if kind == RULE_ERROR:
        return str(context["text"])
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        return _unknown_key(str(error["loc"][-1]), known_keys)
    if kind == "missing":
        return "expected a value; got nothing"
    if kind == "string_pattern_mismatch":
        expected = WORDS_OF_PATTERN.get(context["pattern"], f"text that matches {context['pattern']}")
        return f"expected {expected}; got {shown(error['input'])}"
    if kind in _EXPECTED:
        return f"expected {_EXPECTED[kind].format(**context)}; got {_got(kind, error['input'])}"
    return f"expected another value ({error['msg']}); got {shown(error['input'])}"


def _plain(value: Any) -> Any:
    """1.0 as 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def shown(value: Any) -> str:
    """A value as short as a message needs it."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def _got(kind: str, value: Any) -> str:
    if kind in ("string_too_long", "string_too_short"):
        return str(len(value))
    if kind in ("too_long", "too_short"):
        return str(len(value))
    if kind == "string_type" and not isinstance(value, Mapping | list):
        return f"{shown(value)} (write it in quotes)"
    return shown(value)


def _unknown_key(key: str, known_keys: Mapping[str, str]) -> str:
    lowered = {known.lower(): path for known, path in known_keys.items()}
    near = difflib.get_close_matches(key.replace("_", "").lower(), lowered, n=1, cutoff=0.7)
    hint = f"; did you mean {lowered[near[0]]}?" if near else ""
    return f"expected a known field; got {key!r}{hint}"
