"""The sidecar, killed just before one of its operations on the output volume.

    python crashing_sidecar.py OPERATION TRACE_FILE <the sidecar's arguments>

Every open for writing, pwrite, fsync, rename, link and unlink in the output is written to TRACE_FILE as
`NAME PATH#K`, the K-th operation of that name on that path, with `*` for attempt ids. OPERATION is one of these
lines, or empty for no crash. A pwrite writes half of its bytes before the process dies.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

crash_at, trace_path = sys.argv[1:3]
sys.argv = ["sidecar", *sys.argv[3:]]
output = Path(sys.argv[sys.argv.index("--output") + 1])
trace = os.open(trace_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
lock = threading.Lock()
seen: Counter[str] = Counter()


def operation(name: str, path: object, before_death: object = None) -> None:
    path = Path(os.fsdecode(path))
    if output not in (path, *path.parents):
        return
    with lock:
        line = f"{name} {re.sub('[0-9a-f]{8}', '*', str(path.relative_to(output)))}"
        seen[line] += 1
        line += f"#{seen[line]}"
        os.write(trace, f"{line}\n".encode())
        if line == crash_at:
            if before_death is not None:
                before_death()
            os.kill(os.getpid(), signal.SIGKILL)


def wrap_descriptor_call(name: str) -> None:
    real = getattr(os, name)

    def call(fd, *arguments):
        path = os.readlink(f"/proc/self/fd/{fd}")
        half = None
        if name == "pwrite":
            half = lambda: real(fd, arguments[0][: len(arguments[0]) // 2], arguments[1])  # noqa: E731
        operation(name, path, half)
        return real(fd, *arguments)

    setattr(os, name, call)


def audit(event: str, arguments: tuple) -> None:
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)) and arguments[2] & os.O_CREAT:
        operation("open", arguments[0])
    elif event in ("os.rename", "os.link"):
        operation(event.removeprefix("os."), arguments[1])
    elif event == "os.remove":
        operation("unlink", arguments[0])


wrap_descriptor_call("pwrite")
wrap_descriptor_call("fsync")
sys.addaudithook(audit)
runpy.run_module("drillcore_server.sidecar", run_name="__main__", alter_sys=True)
