from __future__ import annotations

import importlib
import json
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_readme_shows_what_was_measured(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    table = importlib.import_module("table")
    text = table.README.read_text()

    assert text == table.with_table(text, json.loads(table.RESULTS.read_text()))
