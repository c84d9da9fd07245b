"""Which format a dataset's files have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from drillcore_server.errors import ShardError
from drillcore_spec.enums import DatasetFormat
from drillcore_spec.reasons import Reason

FORMAT_OF_SUFFIX = {
    ".jsonl": DatasetFormat.JSONL,
    ".ndjson": DatasetFormat.JSONL,
    ".json": DatasetFormat.JSONL,
    ".parquet": DatasetFormat.PARQUET,
    ".arrow": DatasetFormat.ARROW,
}


def format_of_name(name: str) -> DatasetFormat | None:
    """The format that a file name stands for; None when it stands for none."""
    return FORMAT_OF_SUFFIX.get(PurePath(name.removesuffix(".gz")).suffix.lower())


def resolve_format(chosen: DatasetFormat, names: Iterable[str]) -> DatasetFormat:
    """The format of all files: the one chosen, or for Auto the one that their names stand for.

    Raises:
        ShardError: BAD_DATASET when Auto finds an unknown name or two formats.
    """
    if chosen is not DatasetFormat.AUTO:
        return chosen
    example_of: dict[DatasetFormat, str] = {}
    for name in names:
        found = format_of_name(name)
        if found is None:
            raise ShardError(
                Reason.BAD_DATASET,
                f"`spec.dataset.format` Auto expects files named {', '.join(f'*{s}' for s in FORMAT_OF_SUFFIX)};"
                f" got {name!r}: set the format, or narrow `spec.dataset.uri`",
            )
        example_of.setdefault(found, name)
    if len(example_of) > 1:
        examples = ", ".join(f"{name!r} ({found})" for found, name in example_of.items())
        raise ShardError(
            Reason.BAD_DATASET,
            f"`spec.dataset.uri` must name files of one format; got {examples}: narrow it to one of them",
        )
    return next(iter(example_of))
