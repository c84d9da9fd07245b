"""What other packages import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import drillcore_spec


def test_the_public_names_are_pinned() -> None:
    assert drillcore_spec.__all__ == [
        "ExtractionJob", "ExtractionJobSpec", "Problem", "Source", "SpecError", "load_job", "parse_spec",
        "quantity_bytes", "read_job", "refuse_unbuilt",
    ]  # fmt: skip
    assert all(getattr(drillcore_spec, name) is not None for name in drillcore_spec.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = drillcore_spec.nothing


@pytest.mark.parametrize("module", ["names", "reasons", "enums"])
def test_the_vocabulary_is_imported_without_pydantic_and_yaml(module: str) -> None:
    program = f"import sys, drillcore_spec.{module}; sys.exit(any(m in sys.modules for m in ('pydantic', 'yaml')))"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
