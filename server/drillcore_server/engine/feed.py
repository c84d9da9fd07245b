"""A lazy source of requests, taken a bounded way ahead."""

from __future__ import annotations

from collections.abc import Iterable

from drillcore.records import QuarantineEntry
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.request import Request

_LOOK_AHEAD_STEPS = 16
"""Token budgets of waiting prompts: enough to fill steps from, and little memory."""


class RequestFeed:
    """Takes the source's next item only while the queue is short."""

    def __init__(self, source: Iterable[Request | QuarantineEntry], config: EngineConfig) -> None:
        self._source = iter(source)
        self._max_requests = config.look_ahead
        self._max_tokens = _LOOK_AHEAD_STEPS * max(config.max_num_batched_tokens, config.max_model_len)
        self.is_exhausted = False
        """Whether the source has ended."""

    def take(self, num_waiting: int, num_waiting_tokens: int) -> Request | QuarantineEntry | None:
        """The next item; None if the queue is long enough, or the source has ended."""
        if self.is_exhausted or num_waiting >= self._max_requests or num_waiting_tokens >= self._max_tokens:
            return None
        item = next(self._source, None)
        self.is_exhausted = item is None
        return item
