"""What the connector is told: about a request once, and about a step's states each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drillcore_spec.enums import PositionsKind


@dataclass(frozen=True, slots=True, eq=False)
class SampleHeader:
    """What is known of a sample before anything is computed."""

    row: int
    """Dataset row; the request's id."""
    positions: PositionsKind
    num_prompt_tokens: int
    streams: bool
    """Whether its states may be shipped before the request has ended: its prompt is all there is."""
    position_range: range | None = None
    """Positions that Window and Stride select, as far as there are tokens."""
    loss_mask: NDArray[np.uint8] | None = None
    id: str | None = None
    original_tokens: int | None = None
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class SampleText:
    """What is known of a sample when its request has ended."""

    token_ids: NDArray[np.int64]
    """Ids [S] of the tokens that have states: prompt and generated ones but the last."""
    last_token: int | None
    """The last sampled token, which was never an input; None: nothing was sampled."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenRange:
    """Tokens of one request whose states a step makes available, prefix hits included."""

    header: SampleHeader
    first_token: int
    end_token: int
    starts: bool
    """Whether this is the request's first step; an earlier sample of the same row is over."""


@dataclass(frozen=True, slots=True, eq=False)
class StateSlice:
    """States of one request that a step makes available."""

    header: SampleHeader
    positions: NDArray[np.int64]
    """Token positions [n] of the states, ascending; may be empty."""
    starts: bool
    """See `TokenRange.starts`."""


@dataclass(frozen=True, slots=True)
class StepMetadata:
    """The states of one step, request by request in batch order."""

    slices: tuple[StateSlice, ...]
