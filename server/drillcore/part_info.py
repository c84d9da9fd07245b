"""What journals and commits say about files: name, size, checksum, and what a part holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from drillcore.json_fields import Fields, JsonValue
from drillcore.layout import is_part
from drillcore.sample_columns import SampleColumns

_XXH3_64 = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class FileInfo:
    """A file that a commit names."""

    name: str
    bytes: int
    xxh3_64: str
    """16 hexadecimal digits over the file; of parts and samples over the data first, then the header block."""

    def to_json(self) -> dict[str, JsonValue]:
        """The JSON object."""
        return {"name": self.name, "bytes": self.bytes, "xxh3_64": self.xxh3_64}

    @classmethod
    def from_fields(cls, file: Fields) -> FileInfo:
        """The file that a JSON object names."""
        checksum = file.text("xxh3_64")
        if not _XXH3_64.fullmatch(checksum):
            raise file.error("xxh3_64", f"must be 16 hexadecimal digits; got {checksum[:80]!r}")
        return cls(name=file.text("name"), bytes=file.integer("bytes"), xxh3_64=checksum)


@dataclass(frozen=True)
class PartInfo(FileInfo):
    """A finished part: what `PartWriter.close` returns and one line of a journal holds."""

    rows: tuple[tuple[int, int], ...]
    """Ranges [first, last] of the rows in the part, ascending."""
    num_rows: int
    tokens: int
    states: int
    norm_sums: tuple[float, ...]
    """Per column: the sum of the L2 norms of the states."""
    max_abs: tuple[float, ...]
    """Per column: the largest absolute element."""
    sample_bytes: int = 0
    """Of the rows' own files, with layout PerSample."""

    @property
    def total_bytes(self) -> int:
        """Of the part and of its rows' own files."""
        return self.bytes + self.sample_bytes

    @classmethod
    def of(
        cls, path: Path, size_bytes: int, checksum: str, columns: SampleColumns, *, states: int, sample_bytes: int = 0
    ) -> PartInfo:
        """The part at `path` that holds the samples of `columns`, at least one."""
        return cls(
            name=path.name,
            bytes=size_bytes,
            xxh3_64=checksum,
            rows=row_ranges(np.sort(columns.rows)),
            num_rows=columns.num_samples,
            tokens=columns.num_tokens,
            states=states,
            norm_sums=tuple(columns.norm_sums.sum(axis=0).tolist()),
            max_abs=tuple(columns.max_abs.max(axis=0).tolist()),
            sample_bytes=sample_bytes,
        )

    def to_json(self) -> dict[str, JsonValue]:
        """The JSON object of the journal's line."""
        return {
            **super().to_json(),
            **_sample_bytes_json(self.sample_bytes),
            "rows": [list(pair) for pair in self.rows],
            "numRows": self.num_rows,
            "tokens": self.tokens,
            "states": self.states,
            "stats": {"normSums": list(self.norm_sums), "maxAbs": list(self.max_abs)},
        }

    @classmethod
    def from_json(cls, value: JsonValue, path: Path, where: str = "") -> PartInfo:
        """The part that a line of the journal `path` names; raises `FormatError`."""
        line = Fields(value, path, where)
        file = FileInfo.from_fields(line)
        if not is_part(file.name):
            raise line.error("name", f"must be a part's name; got {file.name[:80]!r}")
        stats = line.object("stats")
        return cls(
            name=file.name,
            bytes=file.bytes,
            xxh3_64=file.xxh3_64,
            rows=line.pairs("rows"),
            num_rows=line.integer("numRows"),
            tokens=line.integer("tokens"),
            states=line.integer("states"),
            norm_sums=stats.numbers("normSums"),
            max_abs=stats.numbers("maxAbs"),
            sample_bytes=_sample_bytes(line),
        )


@dataclass(frozen=True)
class CommittedPart(FileInfo):
    """A part as commit.json names it."""

    num_rows: int
    tokens: int
    states: int
    sample_bytes: int = 0
    """Of the rows' own files, with layout PerSample."""

    @property
    def total_bytes(self) -> int:
        """Of the part and of its rows' own files."""
        return self.bytes + self.sample_bytes

    def to_json(self) -> dict[str, JsonValue]:
        """The JSON object."""
        counts: dict[str, JsonValue] = {
            "numRows": self.num_rows,
            "tokens": self.tokens,
            "states": self.states,
            **_sample_bytes_json(self.sample_bytes),
        }
        return {**super().to_json(), **counts}

    @classmethod
    def of(cls, part: PartInfo) -> CommittedPart:
        """What commit.json says about a finished part."""
        return cls(part.name, part.bytes, part.xxh3_64, part.num_rows, part.tokens, part.states, part.sample_bytes)

    @classmethod
    def from_fields(cls, part: Fields) -> CommittedPart:
        """The part that a JSON object names."""
        file = FileInfo.from_fields(part)
        if not is_part(file.name):
            raise part.error("name", f"must be a part's name; got {file.name[:80]!r}")
        return cls(
            name=file.name,
            bytes=file.bytes,
            xxh3_64=file.xxh3_64,
            num_rows=part.integer("numRows"),
            tokens=part.integer("tokens"),
            states=part.integer("states"),
            sample_bytes=_sample_bytes(part),
        )


def _sample_bytes(part: Fields) -> int:
    return part.integer("sampleBytes", minimum=1) if "sampleBytes" in part.value else 0


def _sample_bytes_json(sample_bytes: int) -> dict[str, JsonValue]:
    return {"sampleBytes": sample_bytes} if sample_bytes else {}


def row_ranges(rows: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Ascending ranges [first, last] that cover exactly the given ascending rows."""
    if not len(rows):
        return ()
    breaks = np.flatnonzero(np.diff(rows) != 1)
    firsts = rows[np.concatenate(([0], breaks + 1))]
    lasts = rows[np.concatenate((breaks, [len(rows) - 1]))]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))
