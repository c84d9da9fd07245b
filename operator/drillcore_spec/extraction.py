"""`spec.extraction` and `spec.generation`: which states are taken."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from drillcore_spec.base import SpecModel
from drillcore_spec.enums import DType, LayerConvention, PositionsKind
from drillcore_spec.forms import Flag, LayerId, PositiveTokenCount, Seed, TokenCount, number
from drillcore_spec.rules import Got, Rule


class Window(SpecModel):
    """The token positions start <= p < end."""

    start: TokenCount
    """First position, from 0."""
    end: PositiveTokenCount
    """Position after the last one."""

    rules = (
        Rule(
            cel="self.start < self.end",
            holds=lambda self: self.start < self.end,
            expected="start to be less than end",
            got=Got("%d and %d", ("self.start", "self.end"), lambda self: (self.start, self.end)),
        ),
    )


class Stride(SpecModel):
    """The token positions offset, offset + step, offset + 2 * step, and so on."""

    step: PositiveTokenCount
    """Distance between two positions."""
    offset: TokenCount = 0
    """First position, from 0."""


class Extraction(SpecModel):
    """Which layers and positions are stored, and how."""

    layers: Annotated[tuple[LayerId, ...], Field(min_length=1, max_length=256)]
    """Layer ids, stored in this order. Id i is the residual stream that enters block i (see
    layerConvention); negative ids do not exist.
    """
    final_norm: Flag = False
    """Also store the state after the model's final norm, as the last column."""
    layer_convention: LayerConvention = LayerConvention.RESIDUAL_IN
    """ResidualIn: id i enters block i, 0 to L for a model of L blocks, L being before the final norm (vLLM,
    speculators). BlockOutput: id i leaves block i, 0 to L-1 (SpecForge, SGLang).
    """
    store_dtype: DType = DType.AUTO
    """Number format of the stored states. Auto: the checkpoint's."""
    positions: PositionsKind = PositionsKind.ALL
    """Which token positions are stored: All, the Last, their Mean, those of the LossMask, a Window or a
    Stride.
    """
    window: Window | None = None
    """With positions Window only."""
    stride: Stride | None = None
    """With positions Stride only."""

    rules = (
        Rule(
            cel="self.layers.all(id, self.layers.exists_one(other, other == id))",
            holds=lambda self: len(set(self.layers)) == len(self.layers),
            expected="layers without duplicates",
            field=("layers",),
        ),
        Rule(
            cel="has(self.window) == (self.positions == 'Window')",
            holds=lambda self: (self.window is not None) == (self.positions is PositionsKind.WINDOW),
            expected="window to be set with positions Window, and only then",
            field=("window",),
        ),
        Rule(
            cel="has(self.stride) == (self.positions == 'Stride')",
            holds=lambda self: (self.stride is not None) == (self.positions is PositionsKind.STRIDE),
            expected="stride to be set with positions Stride, and only then",
            field=("stride",),
        ),
    )


class Generation(SpecModel):
    """Completions that are sampled before the states are taken; prompt and completion are then extracted
    together.
    """

    max_tokens: TokenCount = 0
    """Longest completion; 0: none, the row is extracted as it is."""
    temperature: Annotated[float, number(0, 10)] = 0.0
    """Sampling temperature; 0: the most likely token."""
    top_p: Annotated[float, number(0, 1)] = 1.0
    """Sample among the most likely tokens that together have this probability."""
    seed: Seed = 0
    """Each row samples with a seed made from this one and its row number, so that a retry gives the same
    tokens.
    """

    rules = (
        Rule(
            cel="!has(self.temperature) || self.temperature == 0.0 || self.maxTokens > 0",
            holds=lambda self: self.temperature == 0 or self.max_tokens > 0,
            expected="maxTokens to be more than 0 when temperature is",
            field=("maxTokens",),
        ),
    )
