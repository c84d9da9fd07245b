"""The ids that end a generation of a model."""

from __future__ import annotations

import json
from pathlib import Path


def stop_token_ids(folder: Path) -> frozenset[int]:
    """`eos_token_id` of generation_config.json, else of config.json: one id or several."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        eos = json.loads(path.read_bytes()).get("eos_token_id") if path.is_file() else None
        if eos is not None:
            return frozenset(eos if isinstance(eos, list) else [eos])
    return frozenset()
