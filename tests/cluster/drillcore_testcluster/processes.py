"""Processes of the test cluster, each known by its process id and start time, also after a crashed run.

A run folder holds `<name>.pid` for each process and `owner.pid` for the test session that started them.
`sweep` ends what an earlier session left: its owner is gone and its processes are not. A process id alone
would not do, because the kernel gives it to somebody else later; so the start time is compared too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from drillcore_testcluster.errors import ProcessDied

LOG_TAIL_LINES = 25
STOP_TIMEOUT_S = 20.0
_OWNER = "owner.pid"
_START_TIME_TOLERANCE_S = 1.0


class Process:
    """One program with its log file; started again after a stop if a test asks for it."""

    def __init__(
        self,
        name: str,
        program: Path | str,
        arguments: Sequence[str],
        folder: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._argv = [str(program), *arguments]
        self._pid_path = folder / f"{name}.pid"
        self.environment = dict(os.environ if env is None else env)
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running program."""
        assert self._popen is not None, f"{self.name} was not started"
        return self._popen.pid

    def start(self) -> None:
        """Starts the program; its output is appended to the log file."""
        with self.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self.environment
            )
        _write_identity(self._pid_path, self._popen.pid)

    def check(self) -> None:
        """Raises ProcessDied, with the tail of the log, if the program has ended by itself."""
        if self._popen is not None and (code := self._popen.poll()) is not None:
            raise ProcessDied(f"{self.name} ended with code {code}:\n{self.log_tail()}")

    def wait(self, timeout_s: float) -> int:
        """Waits until the program ends by itself and gives its exit code; negative: ended by that signal."""
        assert self._popen is not None, f"{self.name} was not started"
        return self._popen.wait(timeout_s)

    def stop(self, *, kill: bool = False) -> None:
        """Ends the program: SIGTERM, SIGKILL when it does not go or when `kill` asks for it."""
        if self._popen is None:
            return
        if kill:
            self._popen.kill()
        else:
            self._popen.terminate()
        try:
            self._popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._popen = None
        self._pid_path.unlink(missing_ok=True)

    def log_tail(self) -> str:
        """The last lines of the log."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])


def new_run_folder() -> Path:
    """A new run folder, owned by this test session."""
    root = _runs_root()
    root.mkdir(mode=0o700, exist_ok=True)
    unowned = Path(tempfile.mkdtemp(prefix="new-", dir=root))
    _write_identity(unowned / _OWNER, os.getpid())
    # Under its final name only now: another session's sweep takes a run folder without owner for a leftover.
    return unowned.rename(unowned.with_name(unowned.name.replace("new-", "run-", 1)))


def sweep() -> list[Path]:
    """Ends the processes of sessions that are gone and removes their run folders; gives those folders."""
    left = [folder for folder in sorted(_runs_root().glob("run-*")) if _find(folder / _OWNER) is None]
    return [folder for folder in left if _remove(folder)]


def _remove(folder: Path) -> bool:
    """Whether it was this session that removed it: several may sweep at the same time."""
    try:
        mine = folder.rename(folder.with_name(f"swept-{os.getpid()}-{folder.name}"))
    except FileNotFoundError:
        return False
    for pid_path in mine.glob("*.pid"):
        if (process := _find(pid_path)) is not None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
    shutil.rmtree(mine)
    return True


def _runs_root() -> Path:
    return Path(tempfile.gettempdir()) / f"drillcore-testcluster-{os.getuid()}"


def _write_identity(path: Path, pid: int) -> None:
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps({"pid": pid, "started": psutil.Process(pid).create_time()}))
    unfinished.replace(path)


def _find(pid_path: Path) -> psutil.Process | None:
    """The process that wrote the file, if it still runs."""
    try:
        identity = json.loads(pid_path.read_text())
        process = psutil.Process(identity["pid"])
    except (FileNotFoundError, psutil.NoSuchProcess):
        return None
    same = abs(process.create_time() - identity["started"]) < _START_TIME_TOLERANCE_S
    return process if same else None
