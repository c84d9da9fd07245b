"""docs/troubleshooting.md explains every condition and every reason, and none that there is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from drillcore_spec.reasons import Reason
from drillcore_spec.status import ConditionReason, ConditionType

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()


def _rows(heading: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Conditions", ConditionType),
        ("Reasons from the cluster", ConditionReason),
        ("Reasons of a shard's end", Reason),
    ],
)
def test_a_table_has_each_name_once_in_the_order_of_the_code(heading, names):
    assert [row[0] for row in _rows(heading)] == [name.value for name in names]


def test_a_reason_is_told_of_conditions_that_there_are():
    known = {"any", *ConditionType}
    for row in _rows("Reasons from the cluster"):
        assert set(row[1].split(", ")) <= known, row[0]


def test_every_row_says_what_to_do():
    for heading in ("Reasons from the cluster", "Reasons of a shard's end", "The operator itself"):
        for row in _rows(heading):
            assert len(row[-1]) > 5, row
