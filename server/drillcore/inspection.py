"""What an output holds, for people and scripts: the data behind `drillcore inspect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from drillcore.counts import Counts, LayerStats, layer_stats_json
from drillcore.json_fields import JsonValue
from drillcore.manifest import Manifest
from drillcore.output import Output
from drillcore.part_file import Int64s


@dataclass(frozen=True)
class ShardReport:
    """One shard."""

    index: int
    committed: bool
    parts: int
    counts: Counts

    def to_json(self) -> JsonValue:
        """The JSON object."""
        return {
            "index": self.index,
            "committed": self.committed,
            "parts": self.parts,
            "counts": self.counts.to_json(),
        }


@dataclass(frozen=True)
class TokenHistogram:
    """Tokens per row, in bins whose edges are powers of two."""

    edges: tuple[int, ...]
    """Bin i counts the rows with edges[i] <= tokens < edges[i + 1]."""
    rows: tuple[int, ...]
    median: float
    longest: int

    @classmethod
    def of(cls, num_tokens: Int64s) -> TokenHistogram:
        """The histogram over rows with so many tokens."""
        if not len(num_tokens):
            return cls((), (), 0.0, 0)
        exponents = np.frexp(np.maximum(num_tokens, 1).astype(np.float64))[1] - 1
        low, high = int(exponents.min()), int(exponents.max())
        rows = np.bincount(exponents - low, minlength=high - low + 1)
        edges = tuple(2**e for e in range(low, high + 2))
        return cls(edges, tuple(rows.tolist()), float(np.median(num_tokens)), int(num_tokens.max()))

    def to_json(self) -> JsonValue:
        """The JSON object."""
        return {
            "edges": list(self.edges),
            "rows": list(self.rows),
            "median": self.median,
            "longest": self.longest,
        }


@dataclass(frozen=True)
class InspectReport:
    """An output at a glance; an unfinished one as far as it is."""

    path: Path
    manifest: Manifest
    complete: bool
    shards: tuple[ShardReport, ...]
    """Those that were begun."""
    counts: Counts
    layer_stats: Mapping[str, LayerStats]
    tokens_per_row: TokenHistogram
    quarantine: Mapping[str, int]
    """Rows by reason, the most frequent first."""

    def to_json(self) -> JsonValue:
        """The report for scripts."""
        return {
            "path": str(self.path),
            "complete": self.complete,
            "manifest": self.manifest.to_json(),
            "shards": [shard.to_json() for shard in self.shards],
            "counts": self.counts.to_json(),
            "layerStats": layer_stats_json(self.layer_stats),
            "tokensPerRow": self.tokens_per_row.to_json(),
            "quarantine": dict(self.quarantine),
        }


def inspect(path: str | PathLike[str]) -> InspectReport:
    """Look at an output, finished or not, without reading its states.

    Raises:
        OutputNotFoundError: when there is no output.
        FormatError: when a file is not what drillcore writes.
        ReadError: when a file cannot be read.
    """
    output = Output(path, allow_incomplete=True)
    num_tokens = np.concatenate([np.empty(0, np.int64), *(shard.index.num_tokens for shard in output.shards)])
    reasons = Counter(entry.reason.value for entry in output.quarantined())
    return InspectReport(
        path=output.path,
        manifest=output.manifest,
        complete=output.complete,
        shards=tuple(ShardReport(s.shard.index, s.committed, len(s.parts), s.counts) for s in output.shards),
        counts=output.counts,
        layer_stats=output.layer_stats,
        tokens_per_row=TokenHistogram.of(num_tokens),
        quarantine=dict(reasons.most_common()),
    )
