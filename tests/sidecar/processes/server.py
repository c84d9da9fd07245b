"""A server without a model: a real peer of the ring that seals samples whose bytes follow from their row.

    python server.py RING_DIR SETTINGS_JSON

See `Settings`. For each sidecar it writes a line to `sent.jsonl` beside the ring: {"attempt": ..., "rows": [it will
send to it]}. The exit code is that of the reason, and the
message goes to `failure.txt`. To its standard output it says `ready ATTEMPT` for each sidecar and `created N` at the
end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drillcore.manifest import Manifest
from drillcore.records import QuarantineEntry, QuarantineReason, SampleEnd
from drillcore_server.errors import ShardError
from drillcore_server.ring.errors import SidecarGoneError
from drillcore_server.ring.job_file import JobFile
from drillcore_server.ring.producer import RingProducer
from drillcore_spec.names import COMMITTED_FILE


@dataclass
class Settings:
    """What this server does. Every `quarantine_every`th row is quarantined, others are aborted once and sent again."""

    manifest: dict
    rows_in: int
    ring_bytes: int
    min_tokens: int
    max_tokens: int
    part_bytes: int = 1 << 30
    commit_interval_s: float = 60.0
    size_limit_bytes: int | None = None
    max_quarantined_percent: float = 100.0
    num_writers: int = 1
    quarantine_every: int = 0
    abort_every: int = 0
    wait_for_sidecar_s: float = 60.0
    die_after_records: int | None = None
    """SIGKILL to itself when so many records are created."""
    die_after_end: bool = False
    hold_after_row: int | None = None
    """After this row it only waits for the sidecar, until that is gone."""


def num_tokens(settings: Settings, row: int) -> int:
    span = settings.max_tokens - settings.min_tokens + 1
    return settings.min_tokens + row * 2654435761 % span


def states_of(manifest: Manifest, row: int, tokens: int) -> np.ndarray:
    """[tokens, columns, hidden] float32: every element tells row and token."""
    shape = (tokens, len(manifest.columns), manifest.hidden_size)
    return np.broadcast_to((row * 1000.0 + np.arange(tokens) + 1.0)[:, None, None], shape).astype(np.float32)


class Server:
    def __init__(self, ring_dir: Path, settings: Settings) -> None:
        self.ring_dir = ring_dir
        self.settings = settings
        self.manifest = Manifest.from_json(settings.manifest, Path("settings"))
        self.producer = RingProducer.create(
            ring_dir,
            settings.ring_bytes,
            dtype=self.manifest.store_dtype.value,
            columns=len(self.manifest.columns),
            hidden=self.manifest.hidden_size,
        )
        JobFile(
            manifest=self.manifest,
            shard=0,
            first_row=0,
            rows_in=settings.rows_in,
            part_bytes=settings.part_bytes,
            commit_interval_s=settings.commit_interval_s,
            size_limit_bytes=settings.size_limit_bytes,
            max_quarantined_percent=settings.max_quarantined_percent,
            num_writers=settings.num_writers,
        ).write(ring_dir)

    def run(self) -> None:
        while not self.producer.committed:
            ready = self.producer.connect(self.settings.wait_for_sidecar_s)
            print("ready", ready.attempt, flush=True)
            done = set(np.load(self.ring_dir / COMMITTED_FILE).tolist())
            assert len(done) == ready.committed_rows
            rows = [row for row in range(self.settings.rows_in) if row not in done]
            with (self.ring_dir / "sent.jsonl").open("a") as file:
                file.write(json.dumps({"attempt": ready.attempt, "rows": rows}) + "\n")
            try:
                if not ready.committed:
                    self._send_all(rows)
                while not self.producer.committed:
                    self.producer.wait(10)
            except SidecarGoneError:
                continue

    def _send_all(self, rows: list[int]) -> None:
        for row in rows:
            self._send(row)
            self.producer.poll()
            while row == self.settings.hold_after_row:
                self.producer.wait(10)
        self.producer.end()
        if self.settings.die_after_end:
            os.kill(os.getpid(), signal.SIGKILL)

    def _send(self, row: int) -> None:
        settings = self.settings
        if settings.quarantine_every and row % settings.quarantine_every == 0:
            entry = QuarantineEntry(row, "data.jsonl", row + 1, None, QuarantineReason.EMPTY, "no token")
            self._until(lambda: self.producer.quarantine(entry))
            return
        states = states_of(self.manifest, row, num_tokens(settings, row))
        if settings.abort_every and row % settings.abort_every == 1:
            self._send_states(row, -states[: len(states) // 2 + 1])
            self._until(lambda: self.producer.abort_sample(row))
        self._send_states(row, states)
        end = SampleEnd(
            row=row,
            id=f"row-{row}",
            token_ids=np.arange(row, row + len(states)),
            num_prompt_tokens=len(states),
            original_tokens=len(states),
            last_token=None,
            num_states=len(states),
            positions=None,
            loss_mask=None,
            norm_sums=np.linalg.norm(states.astype(np.float64), axis=-1).sum(axis=0),
            max_abs=states.max(axis=(0, 2)).astype(np.float64),
        )
        self._until(lambda: self.producer.end_sample(end))

    def _send_states(self, row: int, states: np.ndarray) -> None:
        first = 0
        while first < len(states):
            chunk = self.producer.reserve(len(states) - first)
            if chunk is None:
                self.producer.wait(10)
                continue
            self._die_when_due()
            chunk.buffer[:] = states[first : first + chunk.num_states].tobytes()
            self.producer.seal(chunk, row=row, first_state=first)
            first += chunk.num_states

    def _until(self, call: object) -> None:
        while not call():
            self.producer.wait(10)
        self._die_when_due()

    def _die_when_due(self) -> None:
        limit = self.settings.die_after_records
        if limit is not None and self.producer.created >= limit:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    ring_dir = Path(sys.argv[1])
    server = Server(ring_dir, Settings(**json.loads(sys.argv[2])))
    try:
        server.run()
    except ShardError as error:
        (ring_dir / "failure.txt").write_text(f"{error.reason}: {error.message}")
        return error.exit_code
    finally:
        print("created", server.producer.created, flush=True)
        server.producer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
