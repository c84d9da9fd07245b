"""What rows became, and how large the states are: sums over samples, parts and shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from drillcore.json_fields import Fields, JsonValue


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
    """Of all parts, and of the rows' own files with layout PerSample."""

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


class _ShardStats(Protocol):
    """What merging needs of a shard: a commit, or what can be read of an unfinished one."""

    @property
    def counts(self) -> Counts: ...
    @property
    def layer_stats(self) -> Mapping[str, LayerStats]: ...


def merge_layer_stats(columns: Iterable[int | str], shards: Sequence[_ShardStats]) -> dict[str, LayerStats]:
    """Statistics over the states of all shards, in the order of the columns."""
    merged = {}
    for column in map(str, columns):
        stats = [(s.counts.states, s.layer_stats[column]) for s in shards if column in s.layer_stats]
        total = sum(states for states, _ in stats)
        if total:
            norm_sum = sum(states * s.mean_norm for states, s in stats)
            merged[column] = LayerStats(norm_sum / total, max(s.max_abs for _, s in stats))
    return merged
