"""A request, and the sequence that the engine makes of it.

Ranges of a sequence's tokens, left to right:

    | computed, or part of a scheduled step | known, not scheduled |  not sampled yet  |
    0                     num_computed_tokens             num_tokens           num_slots (+1)

There is no prefill or decode phase: each step moves num_computed_tokens towards num_tokens, and a sampled
token moves num_tokens by one (the scheduler of vLLM v1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from drillcore_server.connector.metadata import SampleHeader
from drillcore_server.connector.positions import RANGED_POSITIONS, select_positions
from drillcore_spec.enums import PositionsKind

if TYPE_CHECKING:
    from drillcore_server.engine.prefix_cache import PrefixNode


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a request's tokens are drawn.

    Raises:
        ValueError: a value is out of range.
    """

    temperature: float = 0.0
    """0: always the most likely token."""

    top_p: float = 1.0
    """Drawn among the most likely tokens that together have this probability."""

    seed: int = 0
    """Of the job; a request draws with hash(seed, stream)."""

    stream: int | None = None
    """None: the request's id, which is the row of a job."""

    def __post_init__(self) -> None:
        """Checks every value."""
        if not (0 <= self.temperature < math.inf and 0 <= self.top_p <= 1 and 0 <= self.seed < 1 << 64):
            raise ValueError(f"temperature must be 0 or more, top_p 0 to 1, seed 0 to 2^64 - 1; got {self}")


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What to extract: one row of a dataset, or one prompt of an in-process user.

    Raises:
        ValueError: the fields do not fit each other.
    """

    request_id: int
    """Unique among the requests of an engine; the dataset row of an extraction job."""

    prompt_token_ids: NDArray[np.int64]
    """Ids [S], S >= 1, never altered; read only from now on."""

    positions: PositionsKind = PositionsKind.ALL
    """Which states are kept."""

    position_range: range | None = None
    """Positions kept by Window and Stride, with a positive step; it may go beyond the last token."""

    loss_mask: NDArray[np.uint8] | None = None
    """Mask [S]; needed by positions LossMask. Generated tokens count as 1."""

    id: str | None = None
    """The row's own name, copied to the output."""

    original_tokens: int | None = None
    """Tokens before the row was truncated; None: not truncated."""

    max_tokens: int = 0
    """Tokens to generate; states of all of them but the last are kept, as the last is never an input."""

    sampling: Sampling = Sampling()
    """How they are drawn."""

    stop_token_ids: frozenset[int] = frozenset()
    """A sampled id of these ends the generation."""

    on_token: Callable[[int], bool] | None = None
    """Takes each sampled id, in the engine's thread; true ends the generation."""

    file: str = ""
    """Dataset file of the row, for the quarantine list."""

    line: int = 0
    """Line in `file`, from 1."""

    def __post_init__(self) -> None:
        """Checks what would otherwise fail in the middle of a step."""
        name, ids, mask = f"request {self.request_id}", self.prompt_token_ids, self.loss_mask
        if ids.dtype != np.int64 or ids.ndim != 1:
            raise ValueError(f"{name}: prompt_token_ids must be int64 [S]; got {ids.dtype} {list(ids.shape)}")
        if mask is not None and mask.shape != ids.shape:
            raise ValueError(f"{name}: loss_mask must have {len(ids)} values; got {list(mask.shape)}")
        if (self.position_range is not None) != (self.positions in RANGED_POSITIONS):
            raise ValueError(f"{name}: position_range must be given with positions Window and Stride, and only then")
        if self.position_range is not None and (self.position_range.step < 1 or self.position_range.start < 0):
            raise ValueError(f"{name}: position_range must start at 0 or later and ascend; got {self.position_range}")
        if self.positions is PositionsKind.LOSS_MASK and mask is None:
            raise ValueError(f"{name}: positions LossMask need a loss_mask")

    @property
    def num_prompt_tokens(self) -> int:
        """S."""
        return len(self.prompt_token_ids)

    @property
    def generates(self) -> bool:
        """Whether tokens are sampled, so that every layer of the model needs the keys and values of its tokens."""
        return self.max_tokens > 0

    @property
    def num_slots(self) -> int:
        """Slots that the caches must hold: the last sampled token is never an input."""
        return self.num_prompt_tokens + max(self.max_tokens, 1) - 1

    @property
    def max_states(self) -> int:
        """States that are stored of it, if the generation is not stopped early. 0: nothing can be selected."""
        if self.positions in (PositionsKind.LAST, PositionsKind.MEAN):
            return 1
        return len(select_positions(_header_of(self), 0, self.num_slots))


class SequenceStatus(Enum):
    """Where a sequence is; it only moves down this list."""

    WAITING = auto()
    """Queued: holds nothing."""
    RUNNING = auto()
    """Admitted: its blocks are reserved, some step is still to be scheduled."""
    SHIPPING = auto()
    """Every step is scheduled; its states are computed or on their way out, its blocks are held."""
    ABORTED = auto()
    """Stopped; its blocks are held until no copy reads them."""


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine. Owned by the scheduler; blocks are the KV cache manager's."""

    request: Request
    header: SampleHeader
    """What the connector knows the request by; one for each admission."""
    token_ids: NDArray[np.int64]
    """Known ids, in a buffer with room for every token that may be sampled."""
    num_tokens: int
    """Ids of `token_ids` that are known."""
    num_computed_tokens: int = 0
    """Tokens whose keys, values and states are computed, or will be by a step that is already scheduled."""
    status: SequenceStatus = SequenceStatus.WAITING
    has_started: bool = False
    """Whether some step was scheduled for it."""
    block_ids: list[int] = field(default_factory=list)
    """Blocks held, in the order of the tokens."""
    num_reserved_blocks: int = 0
    """Blocks that are promised but not held yet."""
    prefix_nodes: list[PrefixNode] = field(default_factory=list)
    """Prefix cache entries of its first blocks, found or made at admission."""
    awaited_prefix: PrefixNode | None = None
    """A prefix block that another request is about to compute; admission waits for it."""

    @classmethod
    def of(cls, request: Request) -> Sequence:
        """A sequence with nothing computed. Without generation it shares the request's ids."""
        prompt = request.prompt_token_ids
        token_ids = prompt
        if request.max_tokens > 0:
            token_ids = np.empty(len(prompt) + request.max_tokens, dtype=np.int64)
            token_ids[: len(prompt)] = prompt
        return cls(request, _header_of(request), token_ids, num_tokens=len(prompt))

    @property
    def request_id(self) -> int:
        """The request's id."""
        return self.request.request_id

    @property
    def num_new_tokens(self) -> int:
        """Known tokens that no step has been scheduled for."""
        return self.num_tokens - self.num_computed_tokens

    @property
    def num_sampled_tokens(self) -> int:
        """Tokens sampled so far."""
        return self.num_tokens - self.request.num_prompt_tokens

    def append(self, token_id: int) -> bool:
        """Adds a sampled token; gives whether the sequence is complete."""
        self.token_ids[self.num_tokens] = token_id
        self.num_tokens += 1
        on_token = self.request.on_token
        stopped = on_token is not None and on_token(token_id)
        stopped = stopped or token_id in self.request.stop_token_ids
        return stopped or self.num_sampled_tokens == self.request.max_tokens


def _header_of(request: Request) -> SampleHeader:
    return SampleHeader(
        row=request.request_id,
        positions=request.positions,
        num_prompt_tokens=request.num_prompt_tokens,
        streams=request.max_tokens <= 1,
        position_range=request.position_range,
        loss_mask=request.loss_mask,
        id=request.id,
        original_tokens=request.original_tokens,
        file=request.file,
        line=request.line,
    )
