"""Run a job on this machine: for each shard the same two processes as in a pod, and a supervisor in kubelet's place.

The supervisor starts a sidecar and a server on a run folder in shared memory, starts a dead sidecar again while
the server lives, passes SIGTERM on to the server, and reads the server's termination message. It holds a lock on
the run folder together with its children, so that the folder of a run that was killed can be told and removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drillcore_server import life_lock
from drillcore_server.volumes import Volumes
from drillcore_spec import ExtractionJobSpec, names
from drillcore_spec.messages import Counts, TerminationMessage
from drillcore_spec.reasons import EXIT_RULES, Reason

_RUN_PREFIX = "drillcore-"
_LOCK_FILE = "lock"
_TERMINATION_FILE = "termination.json"
_TICK_S = 0.2
_MAX_SIDECAR_STARTS = 10
_SIDECAR_GRACE_S = 120.0
"""How long a sidecar may go on writing what was sealed after the server's end; a pod's grace period."""
_LOG_TAIL_LINES = 40


@dataclass(frozen=True)
class LocalRun:
    """What `drillcore run` runs."""

    spec: ExtractionJobSpec
    volumes: Volumes
    output: Path
    shards: Sequence[int]
    """Indexes of the shards to run, one after the other."""
    ring_bytes: int
    run_root: Path
    """Where the run folder with the ring is made: a memory file system."""


@dataclass(frozen=True)
class Progress:
    """What the sidecar last wrote to progress.json: counts of one shard."""

    rows_total: int = 0
    rows_done: int = 0
    rows_written: int = 0
    rows_quarantined: int = 0
    tokens: int = 0
    bytes: int = 0
    state: str = "Starting"


@dataclass(frozen=True)
class ShardResult:
    """How a shard ended here."""

    shard: int
    reason: Reason
    message: str
    counts: Counts = field(default_factory=Counts)
    log_tail: str = ""
    """The last lines of both processes' logs; empty when the message says everything."""

    @property
    def ok(self) -> bool:
        """Whether the shard is committed."""
        return self.reason is Reason.COMMITTED


class Stopped(Exception):
    """SIGTERM or SIGINT reached the supervisor."""


def run_shards(
    run: LocalRun, on_progress: Callable[[int, Progress], None], on_sidecar_restart: Callable[[int], None]
) -> list[ShardResult]:
    """Runs each shard in turn and stops at the first that fails.

    Args:
        run: The job and where its claims lie.
        on_progress: Called some times a second with the shard and its latest counts.
        on_sidecar_restart: Called with the shard when a dead sidecar is started again.
    """
    remove_stale_run_folders(run.run_root)
    results = []
    for shard in run.shards:
        with _run_folder(run.run_root) as (folder, lock_fd):
            supervisor = _ShardSupervisor(run, shard, folder, lock_fd)
            results.append(supervisor.run(on_progress, on_sidecar_restart))
        if not results[-1].ok:
            break
    return results


def remove_stale_run_folders(run_root: Path) -> list[Path]:
    """Removes run folders whose processes are all gone; returns them."""
    removed = []
    for folder in sorted(run_root.glob(f"{_RUN_PREFIX}*")):
        if (lock_fd := life_lock.take(folder / _LOCK_FILE)) is None:
            continue
        try:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                shutil.rmtree(folder)
                removed.append(folder)
        finally:
            os.close(lock_fd)
    return removed


@contextlib.contextmanager
def _run_folder(run_root: Path) -> Iterator[tuple[Path, int]]:
    """A folder for one shard's ring, and the descriptor of its lock, which the children inherit."""
    lock_fd = None
    while lock_fd is None:
        folder = Path(tempfile.mkdtemp(prefix=_RUN_PREFIX, dir=run_root))
        lock_fd = life_lock.make(folder / _LOCK_FILE)
    try:
        yield folder, lock_fd
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock_fd)


class _ShardSupervisor:
    """Both processes of one shard."""

    def __init__(self, run: LocalRun, shard: int, folder: Path, lock_fd: int) -> None:
        self._run = run
        self._shard = shard
        self._folder = folder
        self._lock_fd = lock_fd
        self._sidecar_starts = 0
        self._sidecar = self._start_sidecar()
        self._server = self._start_server()

    def run(
        self, on_progress: Callable[[int, Progress], None], on_sidecar_restart: Callable[[int], None]
    ) -> ShardResult:
        """Supervises until the server has ended and the sidecar has written what was sealed."""
        try:
            while self._server_lives(_TICK_S):
                on_progress(self._shard, self._progress())
                if self._sidecar.poll() and self._sidecar_starts < _MAX_SIDECAR_STARTS:
                    on_sidecar_restart(self._shard)
                    self._sidecar = self._start_sidecar()
        except (Stopped, KeyboardInterrupt):
            self._server.send_signal(signal.SIGTERM)
            self._server.wait()
        finally:
            self._end()
        on_progress(self._shard, self._progress())
        return self._result()

    def _server_lives(self, timeout_s: float) -> bool:
        try:
            self._server.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return True
        return False

    def _end(self) -> None:
        """Ends both processes, whatever happened: as kubelet does, the sidecar after the server and by SIGTERM, on
        which it first writes what was sealed.
        """
        if self._server.poll() is None:
            self._server.kill()
            self._server.wait()
        self._sidecar.terminate()
        try:
            self._sidecar.wait(_SIDECAR_GRACE_S)
        except subprocess.TimeoutExpired:
            self._sidecar.kill()
            self._sidecar.wait()

    def _start_sidecar(self) -> subprocess.Popen[bytes]:
        self._sidecar_starts += 1
        return self._start("drillcore_server.sidecar", [])

    def _start_server(self) -> subprocess.Popen[bytes]:
        arguments = ["--volumes", str(self._run.volumes.root), "--ring-size", str(self._run.ring_bytes)]
        for claim, folder in self._run.volumes.mounts.items():
            arguments += ["--mount", f"{claim}={folder}"]
        arguments += ["--termination-log", str(self._folder / _TERMINATION_FILE), "--local"]
        return self._start("drillcore_server.shard", arguments)

    def _start(self, module: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Starts a module on this shard's run folder, in a session of its own: a terminal's ^C reaches only us."""
        with self._log(module).open("ab") as log:
            command = [sys.executable, "-m", module, "--ring-dir", str(self._folder), "--output", str(self._run.output)]
            return subprocess.Popen(
                [*command, "--shard", str(self._shard), *arguments],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(self._lock_fd,),
                start_new_session=True,
            )

    def _environment(self) -> Mapping[str, str]:
        spec = self._run.spec.model_dump_json(by_alias=True, exclude_none=True)
        return {**os.environ, names.ENV_JOB: spec}

    def _log(self, module: str) -> Path:
        return self._folder / f"{module.rpartition('.')[2]}.log"

    def _progress(self) -> Progress:
        try:
            fields = json.loads((self._folder / names.PROGRESS_FILE).read_bytes())
        except FileNotFoundError:
            return Progress()
        return Progress(
            rows_total=fields["rowsTotal"],
            rows_done=fields["rowsDone"],
            rows_written=fields["rowsWritten"],
            rows_quarantined=fields["rowsQuarantined"],
            tokens=fields["tokens"],
            bytes=fields["bytes"],
            state=fields["state"],
        )

    def _result(self) -> ShardResult:
        """From the server's termination message; without one, from how the process ended."""
        with contextlib.suppress(FileNotFoundError):
            said = TerminationMessage.from_text((self._folder / _TERMINATION_FILE).read_text())
            if said is not None:
                tail = self._log_tail() if said.reason is Reason.INTERNAL else ""
                return ShardResult(self._shard, said.reason, said.message, said.counts, tail)
        code = self._server.returncode
        reason = _reason_of_silent_end(code)
        return ShardResult(self._shard, reason, _silent_end(code), log_tail=self._log_tail())

    def _log_tail(self) -> str:
        lines: list[str] = []
        for module in ("drillcore_server.sidecar", "drillcore_server.shard"):
            with contextlib.suppress(FileNotFoundError):
                text = self._log(module).read_text(errors="replace")
                lines += [f"{module}: {line}" for line in text.splitlines()[-_LOG_TAIL_LINES:]]
        return "\n".join(lines)


def _reason_of_silent_end(code: int) -> Reason:
    """The reason of a server that said nothing: a signal is 128 + its number, as in a container's exit code."""
    container_code = 128 - code if code < 0 else code
    for rule in EXIT_RULES:
        if rule.code == container_code and len(rule.reasons) == 1 and rule.code != 0:
            return rule.reasons[0]
    return Reason.INTERNAL


def _silent_end(code: int) -> str:
    if code < 0:
        return f"the server was ended by signal {signal.Signals(-code).name}"
    return f"the server ended with code {code} and left no message"
