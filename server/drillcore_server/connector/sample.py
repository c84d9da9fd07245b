"""One sample on its way out: which of its states are computed, shipped, and arrived."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from drillcore.records import QuarantineEntry, QuarantineReason, SampleEnd
from drillcore_server.connector.errors import StatesMissing
from drillcore_server.connector.metadata import SampleHeader, SampleText
from drillcore_server.connector.positions import extend_loss_mask, replaces_earlier
from drillcore_spec.enums import PositionsKind

_WITHOUT_POSITIONS = frozenset((PositionsKind.ALL, PositionsKind.MEAN))
"""Every token has its state, or none has."""


@dataclass(slots=True, eq=False)
class Sample:
    """The worker side's record of one request.

    States, left to right:

        | sealed, or landing in a chunk | computed, slots known | not computed yet |
        0                          num_shipped              num_computed
    """

    header: SampleHeader
    num_columns: int
    text: SampleText | None = None
    """Set when the request has ended: no more states will come."""
    quarantine: QuarantineEntry | None = None
    """Why its states must not be used."""
    aborted: bool = False
    """Nobody wants it any more."""
    closed: bool = False
    """Its end, or its abort, is recorded in the sink."""
    num_unsealed: int = 0
    """Chunks whose copies have not landed: its blocks must stay."""
    num_shipped: int = 0
    """States that a chunk was reserved for."""
    num_computed: int = 0
    """States whose slots are known."""
    slots: deque[NDArray[np.int64]] = field(default_factory=deque)
    """Slots of the states that are computed and not shipped, in order; of all tokens that a mean is over."""
    mean: torch.Tensor | None = None
    """For `Mean`: the state [1, C, D] in host memory that takes the place of the tokens' own."""
    positions: list[NDArray[np.int64]] = field(default_factory=list)
    """Token positions of all computed states."""
    norm_sums: NDArray[np.float64] | None = None
    """Sum [C] of the norms of the states that are stored."""
    max_abs: NDArray[np.float64] | None = None
    """Largest absolute values [C] of the states that are stored."""

    @property
    def row(self) -> int:
        """Dataset row."""
        return self.header.row

    @property
    def is_over(self) -> bool:
        """Whether nothing more of it is to be shipped."""
        return self.aborted or self.quarantine is not None

    @property
    def can_move(self) -> bool:
        """Whether something of it could be recorded in the sink now."""
        return self.is_over or self.text is not None or self.num_ready > 0

    @property
    def num_ready(self) -> int:
        """States that are computed and not shipped."""
        return self.num_computed - self.num_shipped

    @property
    def awaits_mean(self) -> bool:
        """Whether its tokens' states are complete and are still to be averaged."""
        wants_mean = self.header.positions is PositionsKind.MEAN and self.mean is None
        return wants_mean and self.text is not None and not self.is_over

    @property
    def streams(self) -> bool:
        """Whether its states may leave before the request has ended."""
        kind = self.header.positions
        return self.header.streams and kind is not PositionsKind.MEAN and not replaces_earlier(kind)

    def add_states(
        self,
        slots: NDArray[np.int64],
        positions: NDArray[np.int64],
        norm_sums: NDArray[np.float64],
        max_abs: NDArray[np.float64],
    ) -> None:
        """Takes in states that a step computed; for `Last` they replace what was there."""
        if replaces_earlier(self.header.positions):
            self.slots.clear()
            self.positions.clear()
            self.num_computed, self.norm_sums, self.max_abs = 0, None, None
        self.slots.append(slots)
        self.positions.append(positions)
        self.num_computed += len(slots)
        self.norm_sums = norm_sums if self.norm_sums is None else self.norm_sums + norm_sums
        self.max_abs = max_abs if self.max_abs is None else np.maximum(self.max_abs, max_abs)

    def reject(self, reason: QuarantineReason, message: str) -> None:
        """Notes that its states must not be used, and why."""
        header = self.header
        self.quarantine = QuarantineEntry(header.row, header.file, header.line, header.id, reason, message)

    def take_mean(self, mean: torch.Tensor, norms: NDArray[np.float64], max_abs: NDArray[np.float64]) -> None:
        """Puts the mean [1, C, D] and its statistics [C] in the place of the tokens' states."""
        self.mean, self.num_computed, self.norm_sums, self.max_abs = mean, 1, norms, max_abs
        self.slots.clear()
        self.positions.clear()

    def ready_slots(self) -> NDArray[np.int64]:
        """Slots of every state that is computed and not shipped."""
        if len(self.slots) > 1:
            joined = np.concatenate(self.slots)
            self.slots.clear()
            self.slots.append(joined)
        return self.slots[0]

    def ship(self, num_states: int) -> None:
        """Notes that a chunk was reserved for the first `num_states` of those that are ready."""
        if self.mean is None:
            slots = self.ready_slots()
            self.slots.clear()
            if num_states < len(slots):
                self.slots.append(slots[num_states:])
        self.num_shipped += num_states
        self.num_unsealed += 1

    def require_every_token(self, text: SampleText) -> None:
        """Raises `StatesMissing` unless as many states are computed as there are tokens."""
        num_tokens = len(text.token_ids)
        if self.num_computed != num_tokens:
            raise StatesMissing(f"row {self.row} has {num_tokens} tokens but {self.num_computed} states")

    def end(self, text: SampleText) -> SampleEnd:
        """The record that completes the sample.

        Raises:
            StatesMissing: a token has no state though all were asked for.
        """
        header, num_tokens = self.header, len(text.token_ids)
        if header.positions is PositionsKind.ALL:
            self.require_every_token(text)
        positions = np.concatenate([np.empty(0, dtype=np.int64), *self.positions]).astype(np.int32)
        return SampleEnd(
            row=header.row,
            id=header.id,
            token_ids=text.token_ids,
            num_prompt_tokens=header.num_prompt_tokens,
            original_tokens=header.original_tokens or header.num_prompt_tokens,
            last_token=text.last_token,
            num_states=self.num_computed,
            positions=None if header.positions in _WITHOUT_POSITIONS else positions,
            loss_mask=extend_loss_mask(header.loss_mask, num_tokens),
            norm_sums=np.zeros(self.num_columns) if self.norm_sums is None else self.norm_sums,
            max_abs=np.zeros(self.num_columns) if self.max_abs is None else self.max_abs,
        )
