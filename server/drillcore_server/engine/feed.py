"""A lazy source of requests, taken a bounded way ahead."""

from __future__ import annotations

from collections.abc import Iterable

from drillcore.records import QuarantineEntry
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.request import Request

_MAX_WAITING_STEPS = 16
"""Steps' worth of waiting prompts: enough to fill steps from, and little memory."""
_STEPS_A_TURN = 4
"""Steps' worth taken in a turn, of which one is computed: the device does not wait until the queue is long, and steps
are full even when most of the prompts wait for a prefix or have it already."""


class RequestFeed:
    """Takes the source's next item only while the queue is short."""

    def __init__(self, source: Iterable[Request | QuarantineEntry], config: EngineConfig) -> None:
        step_tokens = max(config.max_num_batched_tokens, config.max_model_len)
        self._source = iter(source)
        self._max_requests = config.look_ahead
        self._max_tokens = _MAX_WAITING_STEPS * step_tokens
        self._max_tokens_a_turn = _STEPS_A_TURN * step_tokens
        self._tokens_this_turn = 0
        self.is_exhausted = False
        """Whether the source has ended."""

    def begin_turn(self) -> None:
        """Allows another turn's worth to be taken."""
        self._tokens_this_turn = 0

    def take(self, num_waiting: int, num_waiting_tokens: int) -> Request | QuarantineEntry | None:
        """The next item; None if the queue is long enough for now, or the source has ended.

        Blocks as long as the source does, and raises what it raises.
        """
        queue_is_long = num_waiting >= self._max_requests or num_waiting_tokens >= self._max_tokens
        if self.is_exhausted or queue_is_long or self._tokens_this_turn >= self._max_tokens_a_turn:
            return None
        item = next(self._source, None)
        self.is_exhausted = item is None
        if isinstance(item, Request):
            self._tokens_this_turn += item.num_prompt_tokens
        return item
