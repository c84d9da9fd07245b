"""How far the shard is: counted by the drain thread, shown in progress.json, reported to the job-status API."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drillcore.part_info import PartInfo
from drillcore_spec.enums import ShardState
from drillcore_spec.names import PROGRESS_FILE

if TYPE_CHECKING:
    from drillcore_spec.messages import ProgressReport


@dataclass
class ShardProgress:
    """Counts of the shard, earlier attempts included."""

    shard: int
    attempt: str
    rows_total: int = 0
    """Rows in; 0 while unknown."""
    rows_durable: int = 0
    """Stored in journaled parts."""
    rows_quarantined: int = 0
    rows_written: int = 0
    """Stored, durable or not."""
    tokens_durable: int = 0
    tokens_written: int = 0
    bytes_durable: int = 0
    """Of journaled parts."""
    bytes_written: int = 0
    """Of journaled parts at the start, and of all states since."""
    state: ShardState = ShardState.STARTING

    def recover(self, parts: tuple[PartInfo, ...], num_rows: int, num_quarantined: int) -> None:
        """Counts what earlier attempts left."""
        self.rows_durable = self.rows_written = num_rows
        self.rows_quarantined = num_quarantined
        self.tokens_durable = self.tokens_written = sum(part.tokens for part in parts)
        self.bytes_durable = self.bytes_written = sum(part.total_bytes for part in parts)

    def add_written(self, num_tokens: int, num_bytes: int) -> None:
        """Counts a whole sample."""
        self.rows_written += 1
        self.tokens_written += num_tokens
        self.bytes_written += num_bytes

    def add_quarantined(self) -> None:
        """Counts a row that cannot be extracted."""
        self.rows_quarantined += 1

    def add_durable(self, part: PartInfo) -> None:
        """Counts a journaled part."""
        self.rows_durable += part.num_rows
        self.tokens_durable += part.tokens
        self.bytes_durable += part.total_bytes

    def take_commit(self, rows_out: int, rows_quarantined: int, num_tokens: int, num_bytes: int) -> None:
        """Counts what commit.json says."""
        self.rows_durable = self.rows_written = rows_out
        self.rows_quarantined = rows_quarantined
        self.tokens_durable = self.tokens_written = num_tokens
        self.bytes_durable = self.bytes_written = num_bytes

    def report(self, seq: int) -> ProgressReport:
        """The durable counts, for the job-status API. Imported on use: local runs post nothing, and start sooner."""
        from drillcore_spec.messages import ProgressReport

        done = self.rows_durable + self.rows_quarantined
        return ProgressReport(
            shard=self.shard,
            attempt=self.attempt,
            seq=seq,
            rows_total=max(self.rows_total, done),
            rows_done=done,
            rows_quarantined=self.rows_quarantined,
            tokens=self.tokens_durable,
            bytes=self.bytes_durable,
            state=self.state,
        )

    def write(self, ring_dir: Path) -> None:
        """Replaces progress.json beside the ring: durable rows, and what is written so far for a lively display."""
        path = ring_dir / PROGRESS_FILE
        temporary = path.with_suffix(".new")
        done = self.rows_durable + self.rows_quarantined
        temporary.write_text(
            json.dumps(
                {
                    "rowsTotal": max(self.rows_total, done),
                    "rowsDone": done,
                    "rowsQuarantined": self.rows_quarantined,
                    "rowsWritten": self.rows_written,
                    "tokens": self.tokens_written,
                    "bytes": self.bytes_written,
                    "state": self.state.value,
                }
            )
        )
        os.rename(temporary, path)
