"""Which tokens of a sample have their states kept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drillcore_server.connector.metadata import SampleHeader
from drillcore_spec.enums import PositionsKind

RANGED_POSITIONS = frozenset((PositionsKind.WINDOW, PositionsKind.STRIDE))
"""Kinds that keep the positions of a range, whatever the sample."""


def select_positions(header: SampleHeader, first: int, end: int) -> NDArray[np.int64]:
    """Positions in [first, end) whose states are kept, or averaged, ascending.

    For `Last` it is the last one of the range: a later range of the same sample replaces it. Tokens beyond
    the loss mask were generated, and count as masked in.

    Raises:
        ValueError: LossMask was asked for without a mask, or Window or Stride without a range.
    """
    match header.positions:
        case PositionsKind.ALL | PositionsKind.MEAN:
            return np.arange(first, end)
        case PositionsKind.LAST:
            return np.arange(end - 1, end)
        case PositionsKind.LOSS_MASK if header.loss_mask is not None:
            in_mask = first + np.flatnonzero(header.loss_mask[first:end])
            beyond = np.arange(max(first, len(header.loss_mask)), end)
            return np.concatenate((in_mask, beyond)) if len(beyond) else in_mask
        case PositionsKind.WINDOW | PositionsKind.STRIDE if header.position_range is not None:
            return _within(header.position_range, first, end)
    raise ValueError(f"row {header.row}: positions {header.positions.value} need a loss mask or a range")


def _within(selected: range, first: int, end: int) -> NDArray[np.int64]:
    """The members of an ascending range that are in [first, end)."""
    num_before = max(-(-(first - selected.start) // selected.step), 0)
    return np.arange(selected.start + num_before * selected.step, min(end, selected.stop), selected.step)


def replaces_earlier(kind: PositionsKind) -> bool:
    """Whether a range's states take the place of those of earlier ranges."""
    return kind is PositionsKind.LAST


def extend_loss_mask(mask: NDArray[np.uint8] | None, num_tokens: int) -> NDArray[np.uint8] | None:
    """The mask over all tokens of a sample: generated tokens are 1."""
    if mask is None or len(mask) >= num_tokens:
        return mask
    return np.concatenate((mask, np.ones(num_tokens - len(mask), dtype=np.uint8)))
