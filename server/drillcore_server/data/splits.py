"""Splits: train, test and the like, which one folder or repository holds side by side.

Three layouts are known: `datasets.DatasetDict.save_to_disk` (a folder for each split, listed in
dataset_dict.json), `datasets.Dataset.save_to_disk` (state.json beside the data), and plain files named after
their split, `train-00000-of-00003.parquet` or `train.jsonl`, as hubs store them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from drillcore_server.data.formats import format_of_name
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

_NUMBERED = re.compile(r"(?P<split>.+?)-\d{5}-of-\d{5}")


def files_of_folder(folder: Path, split: str | None) -> tuple[Path, list[Path]]:
    """The dataset's root and its files in a folder.

    Raises:
        ShardError: BAD_DATASET when the folder has several splits and none, or another one, is chosen.
    """
    if (folder / "dataset_dict.json").is_file():
        saved = sorted(state.parent.name for state in folder.glob("*/state.json"))
        folder, split = folder / _one_of(saved, split, folder.name), None
    if (folder / "state.json").is_file():
        _check_saved_split(folder, split)
        return folder, sorted(folder.glob("*.arrow"))
    if split is not None and (folder / split).is_dir():
        folder, split = folder / split, None
    names = [entry.name for entry in folder.iterdir() if format_of_name(entry.name) is not None]
    chosen = names if split is None else files_of_split(names, split, folder.name)
    return folder, [folder / name for name in chosen]


def files_of_split(names: Sequence[str], split: str | None, where: str) -> list[str]:
    """The names that belong to a split; without one chosen, all names, which must be of one split.

    Raises:
        ShardError: BAD_DATASET as above.
    """
    chosen = _one_of(sorted({split_of(name) for name in names}), split, where)
    return [name for name in names if split_of(name) == chosen]


def split_of(name: str) -> str:
    """The split that a file is named after: what stands before a number of parts, or else before the suffixes."""
    file_name = PurePosixPath(name).name
    numbered = _NUMBERED.match(file_name)
    return numbered["split"] if numbered else file_name.partition(".")[0]


def _one_of(splits: Iterable[str], split: str | None, where: str) -> str:
    there = list(splits)
    if split is None and len(there) == 1:
        return there[0]
    if split in there:
        return str(split)
    got = "none is chosen" if split is None else f"got {split!r}"
    raise ShardError(
        Reason.BAD_DATASET,
        f"`spec.dataset.split` must be one of the splits of {where}: {', '.join(there) or 'it has none'}; {got}",
    )


def _check_saved_split(folder: Path, split: str | None) -> None:
    """Refuse a saved dataset of another split; one that does not know its split is as good as any."""
    try:
        saved = json.loads((folder / "state.json").read_text(encoding="utf-8")).get("_split")
    except (OSError, ValueError, AttributeError) as error:
        raise ShardError(Reason.BAD_DATASET, f"{folder / 'state.json'} cannot be read: {error}") from error
    if split is not None and saved is not None:
        _one_of([saved], split, folder.name)
