"""What one step computes: the scheduler's message to the model runner and the connector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drillcore_server.connector.metadata import SampleHeader
from drillcore_server.engine.request import Request


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledRequest:
    """The part of one request that a step computes."""

    request: Request
    header: SampleHeader
    """What the connector knows the request by."""
    first_token: int
    """Index of the first token to compute: the context before it is in the caches."""
    token_ids: NDArray[np.int64]
    """Ids of the tokens to compute, at least one; a view of the sequence's own."""
    block_ids: tuple[int, ...] | None
    """The request's whole block table; None: this step brings no new blocks, the table is as it was."""
    starts: bool
    """Whether this is the request's first step."""
    samples: bool
    """Whether the last token's logits give the request its next token."""

    @property
    def end_token(self) -> int:
        """Index after the last token to compute."""
        return self.first_token + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step."""

    requests: tuple[ScheduledRequest, ...]
    """In batch order: decodes (1 token after context), extends (tokens after context), prefills (no context)."""
    ended: tuple[int, ...]
    """Requests whose block tables can be forgotten: they ended, or were aborted, since the step before."""
    num_tokens: int
    """T: tokens of the step."""
