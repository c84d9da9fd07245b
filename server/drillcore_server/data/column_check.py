"""Whether a dataset has the columns that a job names."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from drillcore.records import QuarantineEntry
from drillcore_server.data.rows import SourceRow, shown
from drillcore_server.errors import ShardError
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.reasons import Reason

PROBED_ROWS = 100
"""Readable rows looked at before a column counts as missing from the dataset."""


def check_columns(
    source: DatasetSource, rows: Iterable[SourceRow | QuarantineEntry], schema: Iterable[str] = ()
) -> None:
    """Refuse a dataset whose first readable rows do not have the job's columns.

    Args:
        source: the job's dataset.
        rows: its rows from the first; only as many are read as it takes.
        schema: columns that its files name themselves; none for JSON Lines.

    Raises:
        ShardError: BAD_DATASET, naming the field and the columns that are there, or why no row is readable.
    """
    first_fault: list[QuarantineEntry] = []
    named = tuple(schema)
    readable = list(islice(_readable(rows, first_fault), PROBED_ROWS))
    if not readable:
        raise ShardError(Reason.BAD_DATASET, _nothing_readable(source, first_fault[0], has_schema=bool(named)))
    there = dict.fromkeys([*named, *(name for row in readable for name in row.record)])
    missing = [(field, name) for field, name in named_columns(source) if name not in there]
    if missing:
        listed = ", ".join(shown(name) for name in islice(there, 20)) or "none"
        raise ShardError(
            Reason.BAD_DATASET,
            "\n".join(
                f"`spec.dataset.columns.{field}` names a column that {source.uri} does not have: {name!r};"
                f" the columns of its first rows are {listed}"
                for field, name in missing
            ),
        )


def named_columns(source: DatasetSource) -> list[tuple[str, str]]:
    """Field and column of each column that the job names."""
    columns = source.columns
    fields = {
        "text": columns.text,
        "messages": columns.messages,
        "inputIds": columns.input_ids,
        "lossMask": columns.loss_mask,
        "id": columns.id,
    }
    return [(field, name) for field, name in fields.items() if name is not None]


def _readable(rows: Iterable[SourceRow | QuarantineEntry], first_fault: list[QuarantineEntry]) -> Iterable[SourceRow]:
    for row in rows:
        if isinstance(row, SourceRow):
            yield row
        elif not first_fault:
            first_fault.append(row)


def _nothing_readable(source: DatasetSource, fault: QuarantineEntry, *, has_schema: bool) -> str:
    message = f"{source.uri} has no readable row; {fault.file}, line {fault.line}: {fault.message}"
    if has_schema:
        return message
    return f"{message}. Each line must be one JSON object (`jq -c '.[]' FILE` makes lines of a JSON array)"
