"""Quantities of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_spec import SpecError, quantity_bytes
from drillcore_spec.quantity import format_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1", 1),
        ("1k", 1000),
        ("1Ki", 1024),
        ("512Mi", 512 * 2**20),
        ("1.5Gi", 3 * 2**29),
        ("20Ti", 20 * 2**40),
        ("2P", 2 * 10**15),
        ("1.001", 2),
        ("1.001k", 1001),
    ],
)
def test_a_quantity_is_a_number_of_bytes_rounded_up(text: str, size_bytes: int) -> None:
    assert quantity_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "0", "0.5Gi", "-1", "1gi", "1 Gi", "1Gi\n", "1e3", "Gi", "1m", "1.", "1.0005k", "\u0661Gi"]
)
def test_what_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="expected a number of bytes in quotes"):
        quantity_bytes(text)


@settings(deadline=None)
@given(st.integers(1, 2**50 - 1) | st.integers(1, 2**20).map(lambda count: count * 2**30))
def test_formatting_is_exact(size_bytes: int) -> None:
    assert quantity_bytes(format_bytes(size_bytes)) == size_bytes


def test_nothing_has_no_quantity() -> None:
    with pytest.raises(SpecError, match="at least 1 byte"):
        format_bytes(0)
