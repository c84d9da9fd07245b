"""Two real processes and a real ring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_shard_is_committed_and_both_processes_end(shard: Any) -> None:
    sidecar, server = shard.sidecar(), shard.server()
    assert server.wait(60) == 0
    assert sidecar.wait(60) == 0
    shard.check_output()
