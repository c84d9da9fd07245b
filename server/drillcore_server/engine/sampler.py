"""From logits to the next tokens.

Shapes: N sampled rows of a step, V vocabulary.

Sampling is the Gumbel-max trick: the token with the largest logit / temperature + noise. Noise is a function of
(seed, row, position, token), see `random_stream`; so is the draw, up to the rounding of the logits: a draw changes
only where two tokens are within that rounding of each other. Drawing from cumulated probabilities would change
wherever two neighbours in their order swap places, and CUDA's cumulated sums are not the same in every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from drillcore_server.connector.host_memory import empty_host
from drillcore_server.engine.random_stream import gumbel_noise, row_keys, token_keys
from drillcore_server.engine.scheduler_output import ScheduledRequest

_MAX_VALUES = 1 << 25
"""Logits that are sampled at a time: noise and its bits take eight bytes for each, beside the logits."""


@dataclass(frozen=True, slots=True, eq=False)
class SamplingInputs:
    """How each row is sampled; tensors on the device of the logits."""

    greedy: torch.Tensor
    """bool [N]."""
    temperature: torch.Tensor
    """float32 [N]; 1 for greedy rows."""
    top_p: torch.Tensor | None
    """float32 [N]; None: every row takes all tokens."""
    keys: torch.Tensor
    """int32 [N, 2]."""

    @classmethod
    def of(cls, scheduled: Sequence[ScheduledRequest], device: torch.device) -> SamplingInputs:
        """The inputs of requests that sample in this step. Copies are asynchronous."""
        sampling = [s.request.sampling for s in scheduled]
        temperature = np.array([s.temperature for s in sampling], np.float32)
        top_p = np.array([s.top_p for s in sampling], np.float32)
        seeds = np.array([s.seed for s in sampling], np.uint64)
        streams = ((s.request.sampling.stream, s.request.request_id) for s in scheduled)
        rows = np.array([row if stream is None else stream for stream, row in streams], np.uint64)
        keys = token_keys(row_keys(seeds, rows), np.array([s.end_token for s in scheduled]))
        return cls(
            greedy=_to_device(temperature == 0, device),
            temperature=_to_device(np.where(temperature == 0, np.float32(1), temperature), device),
            top_p=_to_device(top_p, device) if (top_p < 1).any() else None,
            keys=_to_device(keys, device),
        )


class Sampler:
    """Greedy rows take their most likely token, the others draw one."""

    def sample(self, logits: torch.Tensor, scheduled: Sequence[ScheduledRequest]) -> torch.Tensor:
        """Next token ids [N] for `logits` [N, V] of the requests that sample, on the device of the logits."""
        best = logits.argmax(dim=-1)
        if all(s.request.sampling.temperature == 0 for s in scheduled):
            return best
        inputs = SamplingInputs.of(scheduled, logits.device)
        num_rows = max(_MAX_VALUES // logits.shape[1], 1)
        drawn = [_draw(logits, inputs, slice(row, row + num_rows)) for row in range(0, len(logits), num_rows)]
        return torch.where(inputs.greedy, best, torch.cat(drawn))


def _draw(logits: torch.Tensor, inputs: SamplingInputs, rows: slice) -> torch.Tensor:
    """Ids [n] for some rows."""
    scores = logits[rows].float() / inputs.temperature[rows, None]
    if inputs.top_p is not None:
        keep_top_p(scores, inputs.top_p[rows])
    return scores.add_(gumbel_noise(inputs.keys[rows], logits.shape[1])).argmax(dim=-1)


def keep_top_p(scores: torch.Tensor, top_p: torch.Tensor) -> None:
    """Sets all but the most likely tokens that together have probability `top_p` [n] to -inf in scores [n, V].

    The token that reaches it is kept, as are its equals, so that the order of equals does not matter; and so is the
    most likely one in any case.
    """
    probabilities = scores.softmax(dim=-1)
    descending = probabilities.sort(dim=-1, descending=True).values
    before = descending.cumsum(dim=-1) - descending
    beyond = before >= top_p[:, None]
    beyond[:, 0] = False
    least_kept = descending.masked_fill(beyond, torch.inf)
    scores.masked_fill_(probabilities < least_kept.amin(dim=-1, keepdim=True), -torch.inf)


def _to_device(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    host = torch.from_numpy(values)
    staged = empty_host(host.shape, host.dtype, device).copy_(host)
    return staged.to(device, non_blocking=True)
