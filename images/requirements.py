"""Print what the distribution needs with some extras, so that an image can install it before it has the code.

python images/requirements.py operator > requirements.txt
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(extras: Sequence[str], pyproject: Path = PYPROJECT) -> list[str]:
    """The requirements of the base and of each extra.

    Raises:
        KeyError: there is no such extra.
    """
    project = tomllib.loads(pyproject.read_text())["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in extras for line in optional[extra])]


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(sys.argv[1:])) + "\n")
