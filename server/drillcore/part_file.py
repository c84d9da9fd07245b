"""A part, opened: views of its tensors, and the table of its samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drillcore.errors import FormatError
from drillcore.layout import sample_name
from drillcore.part_info import FileInfo
from drillcore.part_schema import SAMPLE_BYTES, SAMPLE_XXH3_64, PartSchema
from drillcore.sample_schema import HIDDEN_STATES
from drillcore.tensor_file import TensorFile

Int64s = npt.NDArray[np.int64]
_NO_BYTES = np.empty(0, np.int64)
_NO_DIGESTS = np.empty(0, np.uint64)


@dataclass(frozen=True, eq=False)
class SampleTable:
    """The samples of one part, in the part's order; n samples, C columns."""

    rows: Int64s
    """[n]."""
    cu_seqlens: Int64s
    """[n + 1]: where each sample's tokens begin."""
    cu_states: Int64s
    """[n + 1]: where each sample's states begin."""
    num_prompt_tokens: Int64s
    original_tokens: Int64s
    last_token: Int64s
    """[n]: -1 where nothing was sampled."""
    norm_sums: npt.NDArray[np.float64]
    """[n, C]."""
    max_abs: npt.NDArray[np.float64]
    """[n, C]."""
    cu_ids: Int64s
    """[n + 1]: where each sample's id begins in `ids`."""
    has_id: npt.NDArray[np.uint8]
    ids: npt.NDArray[np.uint8]
    """Bytes of all ids in UTF-8."""
    file_bytes: Int64s
    """[n]: size of each sample's own file, with layout PerSample; else [0]."""
    file_xxh3_64: npt.NDArray[np.uint64]
    """[n]: checksum of each sample's own file, with layout PerSample; else [0]."""

    def sample_files(self) -> Iterator[FileInfo]:
        """What is said about each sample's own file; nothing with layout Packed."""
        rows = self.rows[: len(self.file_bytes)]
        for row, size, digest in zip(rows.tolist(), self.file_bytes.tolist(), self.file_xxh3_64.tolist(), strict=True):
            yield FileInfo(sample_name(row), size, f"{digest:016x}")


class PartFile:
    """An open part; the arrays are read-only views of the mapped file, S tokens and P states in all."""

    def __init__(self, path: Path, schema: PartSchema) -> None:
        """Map a part.

        Raises:
            FormatError: when the file is anything but a part of this schema.
            ReadError: when it cannot be read.
        """
        self.path = path
        self._file = TensorFile(path)
        self._schema = schema
        if self._file.metadata != dict(schema.metadata):
            raise FormatError(path, "the part's metadata is not that of this output's manifest")
        self.hidden_states: npt.NDArray[Any] | None = None
        """[P, C, hidden]; None with layout PerSample."""
        if not schema.per_sample:
            shape = (None, schema.num_columns, schema.hidden_size)
            self.hidden_states = self._file.array(HIDDEN_STATES, schema.store_dtype.value, *shape)
        self.token_ids: Int64s = self._file.array("token_ids", "I64", None)
        """[S]."""
        self.positions: npt.NDArray[np.int32] | None = None
        """[P]: index of each state's token in its sequence; None when every token has a state, and for means."""
        if schema.has_positions:
            self.positions = self._file.array("positions", "I32", self.num_states)
        self.loss_mask: npt.NDArray[np.uint8] | None = None
        """[S]."""
        if "loss_mask" in self._file:
            self.loss_mask = self._file.array("loss_mask", "U8", len(self.token_ids))
        if schema.every_token and self.num_states != self.num_tokens:
            raise FormatError(path, f"{self.num_tokens} tokens, but {self.num_states} states")

    def read_states(self, first: int, out: npt.NDArray[Any]) -> None:
        """Read the states from `first` on into `out` [n, C * hidden], contiguous; raises `ReadError`."""
        self._file.read_into(HIDDEN_STATES, first * self._schema.state_bytes, out.data.cast("B"))

    @property
    def num_tokens(self) -> int:
        """S."""
        return len(self.token_ids)

    @property
    def num_states(self) -> int:
        """P."""
        return self.num_tokens if self.hidden_states is None else len(self.hidden_states)

    def samples(self) -> SampleTable:
        """The part's samples.

        Raises:
            FormatError: when the table contradicts itself.
        """
        rows: Int64s = self._file.array("rows", "I64", None)
        n, columns = len(rows), self._schema.num_columns
        cu_seqlens = self._offsets("cu_seqlens", n, self.num_tokens)
        ids: npt.NDArray[np.uint8] = self._file.array("ids", "U8", None)
        return SampleTable(
            rows=rows,
            cu_seqlens=cu_seqlens,
            cu_states=cu_seqlens if self._schema.every_token else self._offsets("cu_states", n, self.num_states),
            num_prompt_tokens=self._file.array("num_prompt_tokens", "I64", n),
            original_tokens=self._file.array("original_tokens", "I64", n),
            last_token=self._file.array("last_token", "I64", n),
            norm_sums=self._file.array("norm_sums", "F64", n, columns),
            max_abs=self._file.array("max_abs", "F64", n, columns),
            cu_ids=self._offsets("cu_ids", n, len(ids)),
            has_id=self._file.array("has_id", "U8", n),
            ids=ids,
            file_bytes=self._file.array(SAMPLE_BYTES, "I64", n) if self._schema.per_sample else _NO_BYTES,
            file_xxh3_64=self._file.array(SAMPLE_XXH3_64, "U64", n) if self._schema.per_sample else _NO_DIGESTS,
        )

    def _offsets(self, name: str, samples: int, total: int) -> Int64s:
        offsets: Int64s = self._file.array(name, "I64", samples + 1)
        check_offsets(offsets, total, name, self.path)
        return offsets


def check_offsets(offsets: Int64s, total: int, name: str, path: Path) -> None:
    """Check that `offsets` ascend from 0 to `total`; raises `FormatError`."""
    if offsets[0] != 0 or offsets[-1] != total or bool(np.any(offsets[1:] < offsets[:-1])):
        raise FormatError(path, f"tensor `{name}` must ascend from 0 to {total}")
