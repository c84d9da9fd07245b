"""kill -9 of either process, at points over the records and over the commit's steps; then the shard goes on.

The sidecar is killed just before its N-th operation on the output volume, a write half-way; the operations of an
undisturbed run tell where N lies: half of the points fall between the last part's rename and complete.json.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

SETTINGS: dict[str, Any] = {
    "rows_in": 40,
    "ring_bytes": 64 * 1024,
    "min_tokens": 20,
    "max_tokens": 120,
    "part_bytes": 13_000,
    "quarantine_every": 11,
    "abort_every": 6,
}
"""More than 20 parts, over a ring that several samples fill."""


def points(count: int) -> list[Any]:
    """`count` fractions of a run; the first 10 for every day, all of them for `make test-long`."""
    few = set(range(0, count, count // 10))
    return [
        pytest.param(i / count, marks=[pytest.mark.kill, *([] if i in few else [pytest.mark.long])], id=f"{i}of{count}")
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def operations(make_module_shard: Callable[..., Any]) -> list[str]:
    """What an undisturbed sidecar does on the volume, in order."""
    shard = make_module_shard(**SETTINGS)
    sidecar, server = shard.sidecar(crash_at=0), shard.server()
    assert server.wait(60) == 0
    assert sidecar.wait(60) == 0
    lines = shard.trace_path.read_text().splitlines()
    assert sum(line.startswith("rename") and "/part-" in line for line in lines) >= 20
    return lines


def crash_point(operations: list[str], fraction: float) -> int:
    """The number of an operation: the first half of the fractions before the last part is renamed, the rest after."""
    last_rename = max(i for i, line in enumerate(operations) if line.startswith("rename") and "/part-" in line)
    if fraction < 0.5:
        return 1 + int(2 * fraction * last_rename)
    return 1 + last_rename + int((2 * fraction - 1) * (len(operations) - last_rename))


@pytest.mark.parametrize("fraction", points(50))
def test_a_sidecar_killed_anywhere_loses_nothing_and_repeats_nothing(
    make_shard: Callable[..., Any], operations: list[str], fraction: float
) -> None:
    shard = make_shard(**SETTINGS)
    server, sidecar = shard.server(), shard.sidecar(crash_at=crash_point(operations, fraction))
    assert sidecar.wait(60) == -signal.SIGKILL
    shard.sidecar()
    assert server.wait(60) == 0
    shard.check_output()
    shard.check_no_row_ran_twice()


@pytest.mark.parametrize("fraction", points(50))
def test_a_server_killed_anywhere_loses_nothing_and_repeats_nothing(
    make_shard: Callable[..., Any], fraction: float
) -> None:
    shard = make_shard(**SETTINGS)
    records = 1 + int(fraction * 85)
    sidecar, server = shard.sidecar(), shard.server(die_after_records=records)
    assert server.wait(60) == -signal.SIGKILL
    assert sidecar.wait(60) == 1
    assert shard.run() == 0
    shard.check_output()
    shard.check_no_row_ran_twice()


@pytest.mark.kill
def test_killing_every_sidecar_a_little_later_still_ends(make_shard: Callable[..., Any], operations: list[str]) -> None:
    shard = make_shard(**SETTINGS)
    server = shard.server()
    crash_at = len(operations) // 6
    while server.poll() is None:
        sidecar = shard.sidecar(crash_at=crash_at)
        shard.wait_for_one_of(server, sidecar)
        crash_at += 3
    sidecar.terminate()
    assert server.returncode == 0
    shard.check_output()
    shard.check_no_row_ran_twice()
