"""Files under construction when a server is killed: the next one removes them, and nobody else's."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from drillcore_server.api.unfinished import Unfinished, remove_leftovers

TIMEOUT_S = 120


def ask(url: str, num_tokens: int) -> httpx.Response:
    fields = {"prompt": [5] * num_tokens, "max_tokens": 0}
    return httpx.post(f"{url}/v1/completions", json=fields, timeout=TIMEOUT_S, trust_env=False)


@contextmanager
def asked_all_the_time(url: str) -> Iterator[None]:
    """Several clients ask the server, until the context ends or the server does."""
    over = threading.Event()

    def client() -> None:
        with suppress(httpx.TransportError):
            while not over.is_set():
                ask(url, 400)

    clients = [threading.Thread(target=client) for _ in range(8)]
    for each in clients:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in clients:
            each.join(TIMEOUT_S)


def interrupted(process: subprocess.Popen[str], number: signal.Signals, root: Path) -> set[Path]:
    """Sends the signal while the server writes; gives its unfinished files, again and again until there is one."""
    others, deadline_s = set(root.glob(".*.tmp")), time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        if set(root.glob(".*.tmp")) - others:
            process.send_signal(number)
            if number == signal.SIGKILL:
                process.wait()
            else:
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            if (unfinished := set(root.glob(".*.tmp")) - others) or number == signal.SIGKILL:
                return unfinished
            process.send_signal(signal.SIGCONT)
    raise AssertionError("the server was never seen writing")


@pytest.mark.e2e
@pytest.mark.kill
def test_the_next_server_removes_what_a_killed_one_left_and_nothing_of_a_living_one(start, tmp_path):
    root = tmp_path / "storage"
    left: set[Path] = set()
    while not left:  # the last file may have been finished at that very moment
        killed = start()
        with asked_all_the_time(killed.url):
            left = interrupted(killed, signal.SIGKILL, root)
    finished = set(root.glob("*.safetensors"))
    living = start()
    url = living.url
    assert not [path for path in left if path.exists()]
    assert finished <= set(root.glob("*.safetensors"))
    with asked_all_the_time(url):
        being_written = interrupted(living, signal.SIGSTOP, root)
        assert start().url  # it is ready
        assert [path for path in being_written if path.exists()] == list(being_written)
        living.send_signal(signal.SIGCONT)
        assert ask(url, 1).status_code == 200
    assert not list(root.glob(".*.tmp"))


def test_a_server_that_ends_leaves_no_lock(tmp_path):
    unfinished = Unfinished(tmp_path)
    assert list((tmp_path / ".serve").iterdir())
    unfinished.close()
    assert not list((tmp_path / ".serve").iterdir())


def test_leftovers_in_folders_go_and_what_links_lead_to_stays(tmp_path):
    gone = Unfinished(tmp_path)
    name = gone.name_of("path." + "a" * 200)
    assert len(name.encode()) <= 255
    outside, inside = tmp_path.parent / "outside", tmp_path / "deep" / "er"
    for folder in (outside, inside):
        folder.mkdir(parents=True)
        (folder / name).touch()
    (tmp_path / "link").symlink_to(outside)
    os.close(gone._lock_fd)  # as the kernel does when a process ends
    assert remove_leftovers(tmp_path) == 1
    assert not (inside / name).exists()
    assert (outside / name).exists()
    assert remove_leftovers(tmp_path) == 0


def test_nothing_is_removed_where_a_file_system_has_no_locks(tmp_path, monkeypatch):
    def no_locks(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    living = Unfinished(tmp_path)
    (tmp_path / living.name_of("a")).touch()
    assert remove_leftovers(tmp_path) == 0
    assert list(tmp_path.glob(".*.tmp"))
