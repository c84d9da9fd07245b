"""From logits to the next tokens.

Shapes: N sampled rows of a step, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from drillcore_server.engine.request import Request


class Sampler:
    """Greedy: every request takes its most likely token, the lowest id among equals."""

    def sample(self, logits: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
        """Next token ids [N] for `logits` [N, V] of `requests`, on the device of the logits."""
        return logits.argmax(dim=-1)
