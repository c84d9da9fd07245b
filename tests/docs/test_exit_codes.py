"""docs/exit-codes.md says what the code does."""

from __future__ import annotations

from pathlib import Path

from drillcore_spec.reasons import EXIT_RULES

PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"


def test_the_page_lists_every_code_with_its_reasons_and_action():
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    listed = [tuple(cell.strip() for cell in (code, reasons, action)) for code, reasons, _, action in rows[1:]]
    expected = [(str(rule.code), ", ".join(rule.reasons), rule.action.value) for rule in EXIT_RULES]

    assert listed == expected
