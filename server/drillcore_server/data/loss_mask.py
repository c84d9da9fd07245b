"""Where a row's loss mask comes from."""

from __future__ import annotations

from drillcore_spec.dataset import DatasetSource
from drillcore_spec.enums import LossMaskKind


def resolve_loss_mask(source: DatasetSource) -> LossMaskKind:
    """What lossMask Auto stands for: the column if one is set, else the assistant's turns, else none."""
    if source.loss_mask is not LossMaskKind.AUTO:
        return source.loss_mask
    if source.columns.loss_mask is not None:
        return LossMaskKind.COLUMN
    return LossMaskKind.NONE if source.columns.messages is None else LossMaskKind.ASSISTANT
