"""Where the test cluster keeps what is dear to make: outside the repository, shared by all checkouts."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder: $DRILLCORE_CACHE, else drillcore below the user's XDG cache folder."""
    if explicit := os.environ.get("DRILLCORE_CACHE"):
        return Path(explicit)
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "drillcore"
