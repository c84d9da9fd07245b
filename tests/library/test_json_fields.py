from pathlib import Path

import pytest

from drillcore.errors import FormatError, ReadError
from drillcore.json_fields import Fields, canonical_json, parse_json, read_file

PATH = Path("x.json")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"NaN",
        b'{"a": Infinity}',
        b"[" * 100_000,
        b"1" * 10_000,
        b"\x00",
    ],
)
def test_anything_but_json_is_a_format_error(data):
    with pytest.raises(FormatError, match=r"x\.json"):
        parse_json(data, PATH)


@pytest.mark.parametrize(
    ("getter", "value"),
    [
        ("text", 1),
        ("boolean", 0),
        ("integer", True),
        ("integer", -1),
        ("integer", 2**63),
        ("integer", 1.0),
        ("optional_text", []),
        ("optional_integer", "1"),
        ("number", -0.5),
        ("number", 1e999),
        ("number", 10**400),
        ("integers", [1, True]),
        ("integers", [-1]),
        ("numbers", ["1"]),
        ("numbers", {}),
        ("object", []),
        ("objects", [1]),
        ("pairs", [[2, 1]]),
        ("pairs", [[1]]),
        ("pairs", [[0, 2**63]]),
    ],
)
def test_a_wrong_value_is_named_with_its_field(getter, value):
    fields = Fields({"outer": {"field": value}}, PATH).object("outer")
    with pytest.raises(FormatError, match=r"`outer\.field"):
        getattr(fields, getter)("field")


def test_a_missing_field_is_named():
    with pytest.raises(FormatError, match="`counts` is missing"):
        Fields({}, PATH).integer("counts")


def test_right_values_come_back():
    fields = Fields({"a": [[1, 2], [4, 4]], "b": 2**63 - 1, "c": 3, "d": None, "e": [0.5, 2]}, PATH)
    assert fields.pairs("a") == ((1, 2), (4, 4))
    assert fields.integer("b") == 2**63 - 1
    assert fields.number("c") == 3.0
    assert fields.optional_text("d") is None
    assert fields.numbers("e") == (0.5, 2.0)


def test_canonical_json_ignores_the_order_of_keys():
    assert canonical_json({"b": 1, "a": "é"}) == canonical_json({"a": "é", "b": 1}) == b'{"a":"\\u00e9","b":1}'


def test_a_file_that_cannot_be_read_is_a_read_error(tmp_path):
    with pytest.raises(ReadError):
        read_file(tmp_path)
    with pytest.raises(FormatError, match="missing"):
        read_file(tmp_path / "none")
