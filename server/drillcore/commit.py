"""journal lines, commit.json and complete.json: which parts hold which rows, and what they add up to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from drillcore.json_fields import Fields, JsonValue, parse_json, pretty_json, read_file
from drillcore.layout import FORMAT_VERSION, is_index, is_part, is_quarantine
from drillcore.manifest import Manifest, check_version

_XXH3_64 = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class FileInfo:
    """A file that a commit names."""

    name: str
    bytes: int
    xxh3_64: str
    """16 hexadecimal digits over the file; of a part over its data first, then its header block."""

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

    def to_json(self) -> dict[str, JsonValue]:
        """The JSON object of the journal's line."""
        return {
            **super().to_json(),
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
        )


@dataclass(frozen=True)
class CommittedPart(FileInfo):
    """A part as commit.json names it."""

    num_rows: int
    tokens: int
    states: int

    def to_json(self) -> dict[str, JsonValue]:
        """The JSON object."""
        counts: dict[str, JsonValue] = {
            "numRows": self.num_rows,
            "tokens": self.tokens,
            "states": self.states,
        }
        return {**super().to_json(), **counts}

    @classmethod
    def of(cls, part: PartInfo) -> CommittedPart:
        """What commit.json says about a finished part."""
        return cls(part.name, part.bytes, part.xxh3_64, part.num_rows, part.tokens, part.states)

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
        )


@dataclass(frozen=True)
class Counts:
    """What became of the rows of a shard, or of all shards."""

    rows_in: int = 0
    rows_out: int = 0
    rows_quarantined: int = 0
    rows_skipped: int = 0
    """Of the quarantined: those left out on request."""
    tokens: int = 0
    states: int = 0
    bytes: int = 0
    """Of all parts."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def to_json(self) -> dict[str, JsonValue]:
        """The JSON object."""
        return {
            "rowsIn": self.rows_in,
            "rowsOut": self.rows_out,
            "rowsQuarantined": self.rows_quarantined,
            "rowsSkipped": self.rows_skipped,
            "tokens": self.tokens,
            "states": self.states,
            "bytes": self.bytes,
        }

    @classmethod
    def from_fields(cls, counts: Fields) -> Counts:
        """The counts that a JSON object holds; rows in = rows out + quarantined, or `FormatError`."""
        loaded = cls(*(counts.integer(key) for key in cls().to_json()))
        if loaded.rows_in != loaded.rows_out + loaded.rows_quarantined:
            raise counts.error("rowsIn", "must be rowsOut + rowsQuarantined")
        return loaded


@dataclass(frozen=True)
class LayerStats:
    """Size of the stored states of one column."""

    mean_norm: float
    """Mean L2 norm over the states."""
    max_abs: float
    """Largest absolute element."""


def layer_stats_json(stats: Mapping[str, LayerStats]) -> JsonValue:
    """The JSON object of `layerStats`."""
    return {key: {"meanNorm": s.mean_norm, "maxAbs": s.max_abs} for key, s in stats.items()}


def layer_stats_from(file: Fields) -> dict[str, LayerStats]:
    """The `layerStats` that a file holds."""
    stats = file.object("layerStats")
    inner = {key: stats.object(key) for key in stats.names()}
    return {key: LayerStats(s.number("meanNorm"), s.number("maxAbs")) for key, s in inner.items()}


@dataclass(frozen=True)
class Commit:
    """commit.json: a shard is done, and these files count."""

    attempt: str
    identity: str
    """sha256 of the manifest's identity."""
    max_samples: int | None
    """`dataset.maxSamples` of the run that committed."""
    parts: tuple[CommittedPart, ...]
    index: FileInfo
    quarantine: FileInfo
    counts: Counts
    layer_stats: Mapping[str, LayerStats]
    """By column; empty when the shard has no states."""

    def to_bytes(self) -> bytes:
        """The bytes of commit.json."""
        return pretty_json(
            {
                "formatVersion": FORMAT_VERSION,
                "attempt": self.attempt,
                "identity": self.identity,
                "maxSamples": self.max_samples,
                "parts": [part.to_json() for part in self.parts],
                "index": self.index.to_json(),
                "quarantine": self.quarantine.to_json(),
                "counts": self.counts.to_json(),
                "layerStats": layer_stats_json(self.layer_stats),
            }
        )

    @classmethod
    def load(cls, path: Path) -> Commit:
        """The commit that a file holds; raises `FormatError`."""
        commit = Fields(parse_json(read_file(path), path), path)
        check_version(commit)
        loaded = cls(
            attempt=commit.text("attempt"),
            identity=commit.text("identity"),
            max_samples=commit.optional_integer("maxSamples"),
            parts=tuple(CommittedPart.from_fields(part) for part in commit.objects("parts")),
            index=FileInfo.from_fields(commit.object("index")),
            quarantine=FileInfo.from_fields(commit.object("quarantine")),
            counts=Counts.from_fields(commit.object("counts")),
            layer_stats=layer_stats_from(commit),
        )
        if not is_index(loaded.index.name):
            raise commit.error("index.name", "must be an index's name")
        if not is_quarantine(loaded.quarantine.name):
            raise commit.error("quarantine.name", "must be a quarantine file's name")
        return loaded


@dataclass(frozen=True)
class Complete:
    """complete.json: every shard is committed."""

    shards: int
    counts: Counts
    layer_stats: Mapping[str, LayerStats]

    @classmethod
    def of(cls, manifest: Manifest, commits: Sequence[Commit]) -> Complete:
        """What the commits of all shards, in the shards' order, add up to."""
        return cls(
            shards=len(commits),
            counts=sum((commit.counts for commit in commits), Counts()),
            layer_stats=merge_layer_stats(manifest, commits),
        )

    def to_bytes(self) -> bytes:
        """The bytes of complete.json."""
        return pretty_json(
            {
                "formatVersion": FORMAT_VERSION,
                "shards": self.shards,
                "counts": self.counts.to_json(),
                "layerStats": layer_stats_json(self.layer_stats),
            }
        )

    @classmethod
    def load(cls, path: Path) -> Complete:
        """The marker that a file holds; raises `FormatError`."""
        complete = Fields(parse_json(read_file(path), path), path)
        check_version(complete)
        return cls(
            shards=complete.integer("shards", minimum=1),
            counts=Counts.from_fields(complete.object("counts")),
            layer_stats=layer_stats_from(complete),
        )


class _ShardStats(Protocol):
    """What merging needs of a shard: a commit, or what can be read of an unfinished one."""

    @property
    def counts(self) -> Counts: ...
    @property
    def layer_stats(self) -> Mapping[str, LayerStats]: ...


def merge_layer_stats(manifest: Manifest, shards: Sequence[_ShardStats]) -> dict[str, LayerStats]:
    """Statistics over the states of all shards, in the order of the columns."""
    merged = {}
    for column in map(str, manifest.columns):
        stats = [(s.counts.states, s.layer_stats[column]) for s in shards if column in s.layer_stats]
        total = sum(states for states, _ in stats)
        if total:
            norm_sum = sum(states * s.mean_norm for states, s in stats)
            merged[column] = LayerStats(norm_sum / total, max(s.max_abs for _, s in stats))
    return merged


def row_ranges(rows: npt.NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Ascending ranges [first, last] that cover exactly the given ascending rows."""
    if not len(rows):
        return ()
    breaks = np.flatnonzero(np.diff(rows) != 1)
    firsts = rows[np.concatenate(([0], breaks + 1))]
    lasts = rows[np.concatenate((breaks, [len(rows) - 1]))]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))
