"""Both processes of a shard on a temporary folder: the real sidecar, and a server without a model."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import drillcore
from drillcore.dtypes import StoreDType
from drillcore.journal import read_journal
from drillcore.layout import Layout, attempt_of, is_journal
from drillcore.manifest import Manifest, ModelIdentity

PROCESSES = Path(__file__).parent / "processes"
TIMEOUT_S = 60


def _manifest(**changes: object) -> Manifest:
    fields = {
        "engine_version": "0.1.0",
        "model": ModelIdentity("file:///models/tiny", None, "c" * 64, "d" * 64, "e" * 64),
        "dataset": {"uri": "file:///data.jsonl", "files": [{"path": "data.jsonl", "bytes": 1}], "maxSamples": None},
        "layers": (0, 1),
        "final_norm": False,
        "hidden_size": 16,
        "positions": "All",
        "dtype": StoreDType.F32,
        "store_dtype": StoreDType.F32,
        "generation": None,
        "max_model_len": 1 << 20,
        "shard_count": 1,
        "special_token_ids": (),
    }
    return Manifest(**(fields | changes))


@dataclass
class Shard:
    """Starts processes for one shard and reads what they left."""

    ring_dir: Path
    output: Path
    settings: dict
    processes: list[subprocess.Popen] = field(default_factory=list)

    def server(self, **changes: object) -> subprocess.Popen:
        arguments = [str(PROCESSES / "server.py"), str(self.ring_dir), json.dumps(self.settings | changes)]
        return self._start(arguments, subprocess.PIPE)

    def sidecar(self, crash_at: str | None = None, environment: dict[str, str] | None = None) -> subprocess.Popen:
        arguments = ["-m", "drillcore_server.sidecar"]
        if crash_at is not None:
            arguments = [str(PROCESSES / "crashing_sidecar.py"), crash_at, str(self.trace_path)]
        arguments += ["--ring-dir", str(self.ring_dir), "--output", str(self.output), "--shard", "0"]
        return self._start(arguments, None, environment)

    def run(self, **changes: object) -> int:
        """Runs a server with a sidecar that is restarted whenever it ends, as kubelet does; the server's exit code."""
        server = self.server(**changes)
        while server.poll() is None:
            sidecar = self.sidecar()
            while server.poll() is None and sidecar.poll() is None:
                self.wait_for_one_of(server, sidecar)
        sidecar.terminate()
        sidecar.wait(TIMEOUT_S)
        return server.returncode

    def failure(self) -> str:
        return (self.ring_dir / "failure.txt").read_text()

    @property
    def per_sample(self) -> bool:
        return bool(self.settings["manifest"]["layout"] == "PerSample")

    @property
    def trace_path(self) -> Path:
        return self.ring_dir / "trace.txt"

    def sent(self) -> list[tuple[str, list[int]]]:
        """Attempt and rows of every sidecar that a server reported, in order."""
        path = self.ring_dir / "sent.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [(line["attempt"], line["rows"]) for line in lines]

    def journaled(self) -> dict[str, set[int]]:
        """Rows that each attempt's journal holds."""
        shard = Layout(self.output).shard(0)
        return {
            attempt_of(path.name): {
                row for part in read_journal(path)[0] for first, last in part.rows for row in range(first, last + 1)
            }
            for path in shard.files(is_journal)
        }

    def check_no_row_ran_twice(self) -> None:
        """No row that an attempt had journaled was sent to a later one."""
        journaled, committed = self.journaled(), set()
        for attempt, rows in self.sent():
            assert not committed & set(rows), f"attempt {attempt} got rows that were committed"
            committed |= journaled.get(attempt, set())

    def check_output(self) -> drillcore.Output:
        """Every row is there once with the bytes that the server made, and the checksums are right."""
        report = drillcore.verify(self.output)
        assert report.ok, report.problems
        assert report.shards_committed == 1
        assert Layout(self.output).complete.exists()
        output = drillcore.open(self.output)
        every, rows_in = self.settings.get("quarantine_every", 0), self.settings["rows_in"]
        quarantined = {row for row in range(rows_in) if every and row % every == 0}
        assert {entry.row for entry in output.quarantined()} == quarantined
        assert output.rows.tolist() == [row for row in range(rows_in) if row not in quarantined]
        if self.per_sample:
            files = {path.name for path in Layout(self.output).samples.iterdir()}
            assert files == {f"hs_{row}.safetensors" for row in output.rows.tolist()}
        for sample in output:
            assert sample.id == f"row-{sample.row}"
            expected = sample.row * 1000.0 + np.arange(len(sample.token_ids)) + 1.0
            np.testing.assert_array_equal(
                sample.hidden_states, np.broadcast_to(expected[:, None, None], (len(expected), 2, 16))
            )
        return output

    def _start(
        self, arguments: list[str], stdout: int | None, environment: dict[str, str] | None = None
    ) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=stdout, env=os.environ | (environment or {}), start_new_session=True
        )
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    @staticmethod
    def wait_for_one_of(*processes: subprocess.Popen) -> None:
        """Blocks until one of the processes has ended."""
        with selectors.DefaultSelector() as selector:
            descriptors = [os.pidfd_open(process.pid) for process in processes]
            for descriptor in descriptors:
                selector.register(descriptor, selectors.EVENT_READ)
            selector.select(TIMEOUT_S)
            for descriptor in descriptors:
                os.close(descriptor)


@pytest.fixture(scope="session")
def make_manifest() -> Callable[..., Manifest]:
    """`make_manifest(layers=(0, 2))`: two layers of 16 elements, float32, one shard."""
    return _manifest


class ShardMaker:
    """Makes shards whose processes end with it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shards: list[Shard] = []

    def __call__(self, output: Path | None = None, manifest: Manifest | None = None, **settings: object) -> Shard:
        ring_dir = self._root / f"ring-{len(self._shards)}"
        ring_dir.mkdir()
        defaults = {"rows_in": 20, "ring_bytes": 1 << 20, "min_tokens": 1, "max_tokens": 40}
        manifest_json = (manifest or _manifest()).to_json()
        shard = Shard(ring_dir, output or self._root / "output", {"manifest": manifest_json} | defaults | settings)
        self._shards.append(shard)
        return shard

    def close(self) -> None:
        for shard in self._shards:
            shard.close()


@pytest.fixture
def make_shard(tmp_path: Path) -> Iterator[ShardMaker]:
    """`make_shard(rows_in=..., output=...)`: a shard on this test's output; see `Settings` in processes/server.py."""
    maker = ShardMaker(tmp_path)
    yield maker
    maker.close()


@pytest.fixture(scope="module")
def make_module_shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardMaker]:
    """The same, kept for all tests of a module."""
    maker = ShardMaker(tmp_path_factory.mktemp("module"))
    yield maker
    maker.close()


@pytest.fixture
def shard(make_shard: ShardMaker) -> Shard:
    """20 rows of 1 to 40 tokens over a ring of 1 MiB."""
    return make_shard()
