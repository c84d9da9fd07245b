"""docs/rbac.md gives a reason for each verb that the chart's role holds."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rbac.md"
RULES = ROOT / "charts" / "drillcore" / "templates" / "_rules.tpl"


def test_the_table_lists_every_right_once_with_its_reason():
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows[2:]]
    listed = [(group, resource, verb) for group, resource, verb, _ in cells]
    assert len(listed) == len(set(listed))
    assert set(listed) == _granted()
    assert all(len(reason) > 5 for *_, reason in cells)


def _granted() -> set[tuple[str, str, str]]:
    """The rules of the template, those behind conditions included."""
    rules = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "", RULES.read_text()))
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}
