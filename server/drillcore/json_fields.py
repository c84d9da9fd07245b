"""Strict reading of our JSON files: every field is there and of its type, or a `FormatError` names it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TypeAlias

from drillcore.errors import FormatError, ReadError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_INTEGER = 2**63 - 1


def read_file(path: Path) -> bytes:
    """All bytes of a file.

    Raises:
        FormatError: when it is missing.
        ReadError: when it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise FormatError(path, "the file is missing") from None
    except OSError as error:
        raise ReadError(path, error) from error


def parse_json(data: bytes, path: Path) -> JsonValue:
    """The JSON value that `data`, read from `path`, holds; NaN and Infinity are refused.

    Raises:
        FormatError: when it is not JSON in UTF-8.
    """
    try:
        value: JsonValue = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, f"expected JSON; {error}") from None
    return value


def canonical_json(value: JsonValue) -> bytes:
    """JSON with sorted keys and no spaces: what checksums of JSON are taken over."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def pretty_json(value: JsonValue) -> bytes:
    """JSON as our files show it to people."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode("ascii")


def _refuse_constant(text: str) -> JsonValue:
    raise ValueError(f"{text} is not JSON")


class Fields:
    """One JSON object of a file, read field by field.

    Every getter raises `FormatError` when the field is missing, of another type or out of range.
    """

    def __init__(self, value: JsonValue, path: Path, where: str = "") -> None:
        self.path = path
        self.where = where
        if not isinstance(value, dict):
            raise self._wrong("an object", value)
        self.value = value

    def text(self, key: str) -> str:
        """A string."""
        value = self._get(key)
        if not isinstance(value, str):
            raise self._wrong("a string", value, key)
        return value

    def optional_text(self, key: str) -> str | None:
        """A string or null."""
        return None if self._get(key) is None else self.text(key)

    def boolean(self, key: str) -> bool:
        """True or false."""
        value = self._get(key)
        if not isinstance(value, bool):
            raise self._wrong("true or false", value, key)
        return value

    def integer(self, key: str, minimum: int = 0, maximum: int = MAX_INTEGER) -> int:
        """An integer within bounds, both included."""
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise self._wrong(f"an integer from {minimum} to {maximum}", value, key)
        return value

    def optional_integer(self, key: str) -> int | None:
        """An integer from 0 or null."""
        return None if self._get(key) is None else self.integer(key)

    def number(self, key: str) -> float:
        """A finite number, not negative."""
        value = self._get(key)
        number = _finite(value)
        if number is None or number < 0:
            raise self._wrong("a finite number from 0", value, key)
        return number

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers from 0."""
        integers = []
        for value in self._list(key):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INTEGER:
                raise self._wrong(f"a list of integers from 0 to {MAX_INTEGER}", value, key)
            integers.append(value)
        return tuple(integers)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of finite numbers."""
        numbers = []
        for value in self._list(key):
            number = _finite(value)
            if number is None:
                raise self._wrong("a list of finite numbers", value, key)
            numbers.append(number)
        return tuple(numbers)

    def object(self, key: str) -> Fields:
        """A nested object."""
        return Fields(self._get(key), self.path, self._name(key))

    def optional_object(self, key: str) -> Fields | None:
        """A nested object or null."""
        return None if self._get(key) is None else self.object(key)

    def objects(self, key: str) -> list[Fields]:
        """A list of objects."""
        return [Fields(v, self.path, f"{self._name(key)}[{i}]") for i, v in enumerate(self._list(key))]

    def pairs(self, key: str) -> tuple[tuple[int, int], ...]:
        """A list of ranges [first, last], first <= last."""
        pairs = []
        for value in self._list(key):
            match value:
                case [int(first), int(last)] if 0 <= first <= last <= MAX_INTEGER:
                    pairs.append((int(first), int(last)))
                case _:
                    raise self._wrong("a list of [first, last]", value, key)
        return tuple(pairs)

    def names(self) -> list[str]:
        """The names of all fields, in the file's order."""
        return list(self.value)

    def error(self, key: str, problem: str) -> FormatError:
        """An error about one field."""
        return FormatError(self.path, f"`{self._name(key)}` {problem}")

    def _get(self, key: str) -> JsonValue:
        if key not in self.value:
            raise FormatError(self.path, f"`{self._name(key)}` is missing")
        return self.value[key]

    def _list(self, key: str) -> list[JsonValue]:
        value = self._get(key)
        if not isinstance(value, list):
            raise self._wrong("a list", value, key)
        return value

    def _name(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def _wrong(self, expected: str, value: JsonValue, key: str | None = None) -> FormatError:
        name = self.where if key is None else self._name(key)
        subject = f"`{name}` must be" if name else "expected"
        return FormatError(self.path, f"{subject} {expected}; got {_short(value)}")


def _finite(value: JsonValue) -> float | None:
    match value:
        case bool():
            return None
        case int() if abs(value) <= MAX_INTEGER:
            return float(value)
        case float() if math.isfinite(value):
            return value
        case _:
            return None


def _short(value: JsonValue) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case int() if abs(value) > 10**30:
            return "a huge integer"
        case _:
            text = json.dumps(value)
            return text if len(text) <= 80 else text[:77] + "..."
