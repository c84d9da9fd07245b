"""`python -m drillcore_spec.crd` prints the CRD; with `--write` it writes what is made from the models.

That is the chart's template of the CRD and docs/field-reference.md, below the current folder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from drillcore_spec.field_reference import field_reference
from drillcore_spec.resource_definition import chart_template, custom_resource_definition, to_yaml

GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "charts/drillcore/templates/crd.yaml": chart_template,
    "docs/field-reference.md": field_reference,
}
"""Files that are made from the models; a test fails when one differs."""


def write_generated(root: Path) -> None:
    """Writes the generated files below the repository's root."""
    for path, content in GENERATED.items():
        (root / path).write_text(content())


def main(arguments: list[str]) -> int:
    """The command; gives its exit code."""
    if arguments not in ([], ["--write"]):
        sys.stderr.write(f"usage: python -m drillcore_spec.crd [--write]; got {' '.join(arguments)}\n")
        return 2
    if arguments:
        write_generated(Path.cwd())
    else:
        sys.stdout.write(to_yaml(custom_resource_definition()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
