"""commit.json and complete.json: which parts hold which rows, and what they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drillcore.counts import Counts, LayerStats, layer_stats_from, layer_stats_json, merge_layer_stats
from drillcore.json_fields import Fields, parse_json, pretty_json, read_file
from drillcore.layout import FORMAT_VERSION, is_index, is_quarantine
from drillcore.manifest import Manifest, check_version
from drillcore.part_info import CommittedPart, FileInfo


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
            layer_stats=merge_layer_stats(manifest.columns, commits),
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
