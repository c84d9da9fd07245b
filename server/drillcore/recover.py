"""What earlier attempts at a shard left that can be trusted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drillcore.checksum import check_file
from drillcore.errors import DrillcoreError, FormatError
from drillcore.journal import read_journal, read_quarantine
from drillcore.layout import ShardLayout, is_journal, is_quarantine
from drillcore.manifest import Manifest
from drillcore.part_file import Int64s, PartFile
from drillcore.part_info import PartInfo, row_ranges
from drillcore.part_schema import PartSchema
from drillcore.records import QuarantineEntry
from drillcore.stored_sample import check_sample_files

_CHECK_THREADS = 4


@dataclass(frozen=True, eq=False)
class Recovered:
    """The trusted work of earlier attempts."""

    parts: tuple[PartInfo, ...]
    """Parts whose bytes are right; of a row that stands in two, the first part's counts."""
    rows: Int64s
    """[n]: the committed rows, ascending."""
    quarantined: tuple[QuarantineEntry, ...]
    """Rows that cannot be extracted, ascending."""
    dropped: tuple[DrillcoreError, ...]
    """What could not be trusted, and why: its rows are computed again."""

    @property
    def bytes(self) -> int:
        """Of all trusted parts."""
        return sum(part.total_bytes for part in self.parts)

    @property
    def rows_done(self) -> Int64s:
        """Committed and quarantined rows, ascending."""
        return np.union1d(self.rows, np.array([entry.row for entry in self.quarantined], np.int64))


def recover(shard: ShardLayout, manifest: Manifest, keep: range | None = None) -> Recovered:
    """Read the journals of all attempts at a shard, and check every part that they name.

    Journals count in name order, their lines in file order. A part holds when its size, its checksum and its table of
    samples are what the journal says, and with layout PerSample so do the files that it lists. Whatever does not hold
    is left where it is, and reported.

    Args:
        shard: whose attempts.
        manifest: of this output.
        keep: only rows in this range count; None for all.

    Raises:
        ReadError: when the shard's folder cannot be read.
    """
    named, dropped = journaled_parts(shard)
    schema = PartSchema.of(manifest)
    with ThreadPoolExecutor(_CHECK_THREADS) as pool:
        checked = list(pool.map(lambda part: _checked(shard, part, schema), named))
    parts = [result for result in checked if isinstance(result, tuple)]
    dropped.extend(result for result in checked if isinstance(result, DrillcoreError))
    rows = np.unique(np.concatenate([np.empty(0, np.int64), *(rows for _, rows in parts)]))
    if keep is not None:
        rows = rows[(rows >= keep.start) & (rows < keep.stop)]
    entries, errors = _quarantined(shard)
    if not manifest.rows_are_contexts:
        committed = set(rows.tolist())
        entries = [e for e in entries if e.row not in committed and (keep is None or e.row in keep)]
    return Recovered(tuple(part for part, _ in parts), rows, tuple(entries), (*dropped, *errors))


def journaled_parts(shard: ShardLayout) -> tuple[list[PartInfo], list[DrillcoreError]]:
    """The parts that the shard's journals name, each once, in the order in which they count; and broken lines."""
    parts: dict[str, PartInfo] = {}
    errors: list[DrillcoreError] = []
    for path in shard.files(is_journal):
        found, broken = read_journal(path)
        errors.extend(broken)
        for part in found:
            parts.setdefault(part.name, part)
    return list(parts.values()), errors


def _checked(shard: ShardLayout, part: PartInfo, schema: PartSchema) -> tuple[PartInfo, Int64s] | DrillcoreError:
    path = shard.named(part.name)
    try:
        check_file(path, part)
        file = PartFile(path, schema)
        rows = part_rows(file, part, path)
        check_sample_files(shard, file.samples())
        return part, rows
    except DrillcoreError as error:
        return error


def part_rows(file: PartFile, part: PartInfo, path: Path) -> Int64s:
    """[n]: the rows of an open part, ascending; raises `FormatError` when they are not what the journal says."""
    table = file.samples()
    rows: Int64s = np.sort(table.rows)
    said = (part.rows, part.num_rows, part.tokens, part.states, part.sample_bytes)
    if said != (row_ranges(rows), len(rows), file.num_tokens, file.num_states, int(table.file_bytes.sum())):
        raise FormatError(path, "the part holds other rows, tokens or states than the journal says")
    return rows


def _quarantined(shard: ShardLayout) -> tuple[list[QuarantineEntry], list[FormatError]]:
    entries: dict[int, QuarantineEntry] = {}
    errors: list[FormatError] = []
    for path in shard.files(is_quarantine):
        found, broken = read_quarantine(path)
        errors.extend(broken)
        for entry in found:
            entries.setdefault(entry.row, entry)
    return [entry for _, entry in sorted(entries.items())], errors
