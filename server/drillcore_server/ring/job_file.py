"""job.json beside the ring: what the sidecar must know of the job. Written by the server before it says hello."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from drillcore.json_fields import Fields, parse_json, pretty_json, read_file
from drillcore.manifest import Manifest
from drillcore_spec.names import JOB_FILE


@dataclass(frozen=True)
class JobFile:
    """One shard of one job, resolved: the sidecar reads no job spec."""

    manifest: Manifest
    """The identity that the output must have."""
    shard: int
    """The shard's index, from 0."""
    first_row: int
    """The shard's lowest possible row; rows of other shards are refused."""
    rows_in: int | None
    """Rows of the shard, checked against what came before it commits; `None`: known only at the end (contexts)."""
    part_bytes: int
    """A part closes when it has so many bytes."""
    commit_interval_s: float
    """A part closes when its first sample is so old."""
    size_limit_bytes: int | None
    """This shard's share of the job's `output.sizeLimit`; `None`: no limit."""
    max_quarantined_percent: float = 100.0
    """More quarantined rows than this, of those that were not skipped on request, and the shard does not commit."""
    num_writers: int = 8
    """Writer threads. A single one is used as long as it keeps up: more of them make more parts."""

    def write(self, ring_dir: Path) -> None:
        """Puts the file beside the ring, whole or not at all."""
        path = ring_dir / JOB_FILE
        temporary = path.with_suffix(".new")
        temporary.write_bytes(
            pretty_json(
                {
                    "manifest": self.manifest.to_json(),
                    "shard": self.shard,
                    "firstRow": self.first_row,
                    "rowsIn": self.rows_in,
                    "partBytes": self.part_bytes,
                    "commitIntervalSeconds": self.commit_interval_s,
                    "sizeLimitBytes": self.size_limit_bytes,
                    "maxQuarantinedPercent": self.max_quarantined_percent,
                    "numWriters": self.num_writers,
                }
            )
        )
        os.rename(temporary, path)

    @classmethod
    def load(cls, ring_dir: Path) -> JobFile:
        """Reads the file.

        Raises:
            FormatError: when it is missing or not what `write` makes.
        """
        path = ring_dir / JOB_FILE
        job = Fields(parse_json(read_file(path), path), path)
        return cls(
            manifest=Manifest.from_json(job.object("manifest").value, path),
            shard=job.integer("shard"),
            first_row=job.integer("firstRow"),
            rows_in=job.optional_integer("rowsIn"),
            part_bytes=job.integer("partBytes", minimum=1),
            commit_interval_s=job.number("commitIntervalSeconds"),
            size_limit_bytes=job.optional_integer("sizeLimitBytes"),
            max_quarantined_percent=job.number("maxQuarantinedPercent"),
            num_writers=job.integer("numWriters", minimum=1, maximum=64),
        )
