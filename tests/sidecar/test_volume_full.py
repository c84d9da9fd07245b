"""A real small file system as the output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drillcore.layout import is_temporary
from drillcore_spec.reasons import Reason


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 5 MB, mounted here."""
    folder = tmp_path / "volume"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=5m", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        message = f"mounting a tmpfs needs root: {mounted.stderr.decode().strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_volume_ends_with_its_reason_and_goes_on_once_there_is_space(
    make_shard: Callable[..., Any], small_volume: Path
) -> None:
    output = small_volume / "output"
    shard = make_shard(output, rows_in=30, min_tokens=2000, max_tokens=4000, part_bytes=1 << 20, quarantine_every=9)
    assert shard.run() == Reason.OUTPUT_VOLUME_FULL.exit_code
    assert "the output volume is full" in shard.failure()
    assert [path for path in output.rglob("*") if is_temporary(path.name)] == []
    committed = set.union(*shard.journaled().values())
    assert committed

    assert shard.run() == Reason.OUTPUT_VOLUME_FULL.exit_code, "it is still full"
    subprocess.run(["mount", "-o", "remount,size=64m", small_volume], check=True)
    assert shard.run() == 0
    shard.check_output()
    shard.check_no_row_ran_twice()


def test_a_read_only_volume_is_unwritable(make_shard: Callable[..., Any], small_volume: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_volume], check=True)
    shard = make_shard(small_volume / "output")
    assert shard.run() == Reason.OUTPUT_UNWRITABLE.exit_code
    assert "not writable" in shard.failure()
