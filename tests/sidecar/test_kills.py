"""kill -9 of either process, at points over the records and over the commit's steps; then the shard goes on.

The sidecar is killed just before one of its operations on the output volume, a write half-way. The operations of an
undisturbed run are the points; half of those that are drawn fall between the last part's rename and complete.json.
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
    "num_writers": 1,
}
"""More than 20 parts, over a ring that several samples fill. One writer, so that each run has the same parts."""


def points(count: int) -> list[Any]:
    """`count` fractions of a run; the first 10 for every day, all of them for `make test-long`."""
    few = set(range(0, count, count // 10))
    return [
        pytest.param(i / count, marks=[pytest.mark.kill, *([] if i in few else [pytest.mark.long])], id=f"{i}of{count}")
        for i in range(count)
    ]


@pytest.fixture(scope="module", params=["Packed", "PerSample"])
def manifest(make_manifest: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    return make_manifest(layout=request.param)


@pytest.fixture(scope="module")
def operations(make_module_shard: Callable[..., Any], manifest: Any, tmp_path_factory: Any) -> list[str]:
    """What any sidecar does on the volume, in order. How many writes carry a sample depends on the ring's filling, so
    only the first two writes of each part are sure, and the first of each sample's own file."""
    shard = make_module_shard(tmp_path_factory.mktemp("undisturbed") / "output", manifest, **SETTINGS)
    sidecar, server = shard.sidecar(crash_at=""), shard.server()
    assert server.wait(60) == 0
    assert sidecar.wait(60) == 0
    lines = shard.trace_path.read_text().splitlines()
    assert sum(line.startswith("rename") and "/part-" in line for line in lines) >= 20
    return [line for line in lines if "pwrite" not in line or line.endswith(_sure_writes(line))]


def _sure_writes(line: str) -> str | tuple[str, ...]:
    return ("#1", "#2") if "/part-" in line else "#1" if "/sample-" in line else ""


def crash_point(operations: list[str], fraction: float) -> str:
    """An operation: for the first half of the fractions one before the last part is renamed, for the rest one after."""
    last_rename = max(i for i, line in enumerate(operations) if line.startswith("rename") and "/part-" in line)
    if fraction < 0.5:
        return operations[int(2 * fraction * last_rename)]
    return operations[last_rename + int((2 * fraction - 1) * (len(operations) - last_rename))]


@pytest.mark.parametrize("fraction", points(50))
def test_a_sidecar_killed_anywhere_loses_nothing_and_repeats_nothing(
    make_shard: Callable[..., Any], manifest: Any, operations: list[str], fraction: float
) -> None:
    shard = make_shard(manifest=manifest, **SETTINGS)
    server, sidecar = shard.server(), shard.sidecar(crash_at=crash_point(operations, fraction))
    assert sidecar.wait(60) == -signal.SIGKILL
    shard.sidecar()
    assert server.wait(60) == 0
    shard.check_output()
    shard.check_no_row_ran_twice()


@pytest.mark.parametrize("fraction", points(50))
def test_a_server_killed_anywhere_loses_nothing_and_repeats_nothing(
    make_shard: Callable[..., Any], make_manifest: Callable[..., Any], fraction: float
) -> None:
    manifest = make_manifest(layout=("Packed", "PerSample")[int(fraction * 10) % 2])
    shard = make_shard(manifest=manifest, **SETTINGS | {"num_writers": 4})
    records = 1 + int(fraction * 85)
    sidecar, server = shard.sidecar(), shard.server(die_after_records=records)
    assert server.wait(60) == -signal.SIGKILL
    assert sidecar.wait(60) == 1
    assert shard.run() == 0
    shard.check_output()
    shard.check_no_row_ran_twice()


@pytest.mark.kill
def test_killing_every_sidecar_a_little_later_still_ends(
    make_shard: Callable[..., Any], manifest: Any, operations: list[str]
) -> None:
    shard = make_shard(manifest=manifest, **SETTINGS)
    server = shard.server()
    crash_points = iter(operations[len(operations) // 6 :: len(operations) // 8])
    while server.poll() is None:
        sidecar = shard.sidecar(crash_at=next(crash_points, ""))
        shard.wait_for_one_of(server, sidecar)
    sidecar.terminate()
    assert server.returncode == 0
    shard.check_output()
    shard.check_no_row_ran_twice()
