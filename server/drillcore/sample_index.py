"""The index of a shard: where each sample lies in the shard's parts, ascending by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from drillcore.errors import FormatError
from drillcore.part_file import Int64s, SampleTable, check_offsets
from drillcore.part_info import CommittedPart
from drillcore.ranges import concatenated_ranges
from drillcore.sample_columns import cumulated
from drillcore.tensor_file import TensorFile
from drillcore.tensor_header import tensor_file_bytes

_BYTE_FIELDS = ("has_id", "ids")


@dataclass(frozen=True, eq=False)
class SampleIndex:
    """One entry a sample, n samples; every field is a tensor of the index file."""

    row: Int64s
    """[n]: strictly ascending."""
    part: Int64s
    """[n]: index of the part in the commit's list."""
    first_token: Int64s
    """[n]: of the sample's tokens among the part's."""
    num_tokens: Int64s
    num_prompt_tokens: Int64s
    original_tokens: Int64s
    first_state: Int64s
    """[n]: of the sample's states among the part's."""
    num_states: Int64s
    last_token: Int64s
    """[n]: -1 where nothing was sampled."""
    cu_ids: Int64s
    """[n + 1]: where each sample's id begins in `ids`."""
    has_id: npt.NDArray[np.uint8]
    ids: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def build(cls, tables: Sequence[SampleTable], keep: range | None = None) -> SampleIndex:
        """The index over the samples of several parts; of a row that stands in two, the first part's counts.

        Args:
            tables: the parts' samples, in the commit's order.
            keep: only rows in this range; None for all.
        """
        joined = cls(
            row=_joined([table.rows for table in tables]),
            part=np.repeat(np.arange(len(tables), dtype=np.int64), [len(table.rows) for table in tables]),
            first_token=_joined([table.cu_seqlens[:-1] for table in tables]),
            num_tokens=_joined([np.diff(table.cu_seqlens) for table in tables]),
            num_prompt_tokens=_joined([table.num_prompt_tokens for table in tables]),
            original_tokens=_joined([table.original_tokens for table in tables]),
            first_state=_joined([table.cu_states[:-1] for table in tables]),
            num_states=_joined([np.diff(table.cu_states) for table in tables]),
            last_token=_joined([table.last_token for table in tables]),
            cu_ids=cumulated(_joined([np.diff(table.cu_ids) for table in tables])),
            has_id=np.concatenate([np.empty(0, np.uint8), *(table.has_id for table in tables)]),
            ids=np.concatenate([np.empty(0, np.uint8), *(table.ids for table in tables)]),
        )
        first_of_row: Int64s = np.unique(joined.row, return_index=True)[1]
        rows = joined.row[first_of_row]
        if keep is not None:
            first_of_row = first_of_row[(rows >= keep.start) & (rows < keep.stop)]
        return joined._take(first_of_row)

    def of_rows(self, rows: Int64s) -> SampleIndex:
        """The entries of some rows, ascending; rows that are not here are left out."""
        return self._take(np.flatnonzero(np.isin(self.row, rows)))

    def without_unused_parts(self) -> tuple[SampleIndex, Int64s]:
        """The same samples with the parts renumbered, and the old numbers of the parts that hold any."""
        used, renumbered = np.unique(self.part, return_inverse=True)
        return replace(self, part=renumbered.astype(np.int64)), used

    def to_bytes(self) -> bytes:
        """The bytes of the index file."""
        return tensor_file_bytes({f.name: getattr(self, f.name) for f in fields(self)}, {"format": "drillcore-index"})

    @classmethod
    def load(cls, path: Path, parts: Sequence[CommittedPart]) -> SampleIndex:
        """The index that a file holds, mapped, every entry checked to lie within the parts.

        Raises:
            FormatError: when it is anything else.
            ReadError: when it cannot be read.
        """
        file = TensorFile(path)
        n = len(file.array("row", "I64", None))
        shapes: dict[str, int | None] = {**{f.name: n for f in fields(cls)}, "cu_ids": n + 1, "ids": None}
        index = cls(**{k: file.array(k, "U8" if k in _BYTE_FIELDS else "I64", v) for k, v in shapes.items()})
        check_offsets(index.cu_ids, len(index.ids), "cu_ids", path)
        if bool(np.any(index.row[1:] <= index.row[:-1])):
            raise FormatError(path, "tensor `row` must ascend")
        _check_within(index, parts, path)
        return index

    def id_of(self, position: int, path: Path) -> str | None:
        """The dataset's id of one sample; raises `FormatError` about `path` when it is no UTF-8."""
        if not self.has_id[position]:
            return None
        data = self.ids[self.cu_ids[position] : self.cu_ids[position + 1]].tobytes()
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise FormatError(path, f"the id of row {self.row[position]} is not UTF-8: {error}") from None

    def _take(self, order: Int64s) -> SampleIndex:
        """The entries at some positions, in that order."""
        starts, lengths = self.cu_ids[:-1][order], np.diff(self.cu_ids)[order]
        columns = {f.name: getattr(self, f.name)[order] for f in fields(self) if f.name not in ("cu_ids", "ids")}
        return SampleIndex(**columns, cu_ids=cumulated(lengths), ids=self.ids[concatenated_ranges(starts, lengths)])


def _check_within(index: SampleIndex, parts: Sequence[CommittedPart], path: Path) -> None:
    if not len(index):
        return
    if index.part.min() < 0 or index.part.max() >= len(parts):
        raise FormatError(path, f"tensor `part` must be below the number of parts, {len(parts)}")
    tokens = np.array([part.tokens for part in parts], np.int64)[index.part]
    states = np.array([part.states for part in parts], np.int64)[index.part]
    for first, count, total, name in (
        (index.first_token, index.num_tokens, tokens, "num_tokens"),
        (index.first_state, index.num_states, states, "num_states"),
    ):
        if bool(np.any((count < 0) | (count > total) | (first < 0) | (first > total - count))):
            raise FormatError(path, f"tensor `{name}` must lie within the parts")


def _joined(columns: Sequence[Int64s]) -> Int64s:
    return np.concatenate([np.empty(0, np.int64), *columns])
