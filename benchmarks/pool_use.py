"""How full an engine's blocks become during a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drillcore_server.engine import Engine


@dataclass
class PoolUse:
    """Least numbers of blocks that were seen when a step was issued."""

    num_blocks: int
    """That can be given out."""
    least_free: int
    """Held by no request."""
    least_available: int
    """Held by no request and promised to none."""


@contextlib.contextmanager
def watch_pool(engine: Engine) -> Iterator[PoolUse]:
    """Looks at the pool before every step that the engine executes inside the block."""
    pool, execute = engine.kv.pool, engine.runner.execute
    use = PoolUse(pool.num_blocks - 1, pool.num_free, pool.num_available)

    def watched(*arguments: Any) -> Any:
        use.least_free = min(use.least_free, pool.num_free)
        use.least_available = min(use.least_available, pool.num_available)
        return execute(*arguments)

    engine.runner.execute = watched  # type: ignore[method-assign]
    try:
        yield use
    finally:
        engine.runner.execute = execute  # type: ignore[method-assign]
