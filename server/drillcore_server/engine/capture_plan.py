"""Which states are captured, and where each stands in the hidden cache: the owner of layer numbering.

`r_0` is the embedding output, `r_i` the residual stream that enters block i, `r_L` the output of the last
block before the final norm, `n_L = final_norm(r_L)`. Id i is `r_i`, 0 <= i <= L (the numbering of vLLM's
`eagle_aux_hidden_state_layer_ids` and of speculators); `n_L` has no id and is asked for by finalNorm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drillcore_server.errors import ShardError
from drillcore_spec.enums import LayerConvention
from drillcore_spec.reasons import Reason


@dataclass(frozen=True, slots=True)
class CapturePlan:
    """The columns of the hidden cache, in the order asked for, the final norm last."""

    ids: tuple[int, ...]
    """r_i numbers, whatever convention the job used."""
    final_norm: bool
    """Whether n_L is captured too."""
    num_model_layers: int
    """L."""
    hidden_size: int
    """D."""

    @classmethod
    def resolve(
        cls,
        layers: Sequence[int],
        convention: LayerConvention,
        final_norm: bool,
        num_model_layers: int,
        hidden_size: int,
    ) -> CapturePlan:
        """The plan for ids written in `convention`.

        Raises:
            ShardError: BadSpec; an empty list, a duplicate, or an id out of range. The message names the
                model's L, both conventions and finalNorm.
        """
        _check_ids(layers, convention, num_model_layers)
        shift = 1 if convention is LayerConvention.BLOCK_OUTPUT else 0
        return cls(tuple(i + shift for i in layers), final_norm, num_model_layers, hidden_size)

    @property
    def num_columns(self) -> int:
        """C: captured states of a token."""
        return len(self.ids) + self.final_norm

    @property
    def last_layer(self) -> int:
        """The highest r_i that is needed, which is also the number of blocks to load and run for it."""
        return self.num_model_layers if self.final_norm else max(self.ids)

    def num_layers_to_run(self, *, generates: bool) -> int:
        """Blocks that have to be loaded and run: all of them if tokens are sampled."""
        return self.num_model_layers if generates else self.last_layer

    def column_of(self, i: int) -> int | None:
        """Column of r_i; None if it is not captured."""
        return self.ids.index(i) if i in self.ids else None

    @property
    def final_norm_column(self) -> int | None:
        """Column of n_L; None if it is not captured."""
        return len(self.ids) if self.final_norm else None

    @property
    def column_names(self) -> tuple[str, ...]:
        """A name of each column for messages."""
        return (*(f"layer {i}" for i in self.ids), *(["finalNorm"] if self.final_norm else []))

    @property
    def never_zero(self) -> tuple[bool, ...]:
        """For each column, whether a token of zeros is a fault: r_0 can be a pad token's zero embedding."""
        return (*(i != 0 for i in self.ids), *([True] if self.final_norm else []))


def _check_ids(layers: Sequence[int], convention: LayerConvention, num_model_layers: int) -> None:
    if not layers:
        raise ShardError(Reason.BAD_SPEC, f"`layers` must name at least one layer. {_rules(num_model_layers)}")
    highest = num_model_layers - (convention is LayerConvention.BLOCK_OUTPUT)
    for i in layers:
        if not 0 <= i <= highest:
            expected = f"`layers` must be between 0 and {highest} under {convention.value}; got {i}."
            raise ShardError(Reason.BAD_SPEC, f"{expected} {_rules(num_model_layers)}")
    duplicates = sorted({i for i in layers if list(layers).count(i) > 1})
    if duplicates:
        raise ShardError(
            Reason.BAD_SPEC, f"`layers` must not repeat an id; got {duplicates} twice or more in {list(layers)}."
        )


def _rules(num_model_layers: int) -> str:
    """What the ids mean, for error messages."""
    last = num_model_layers
    return (
        f"The model has L = {last} layers. layerConvention ResidualIn: id i is the residual stream that enters "
        f"block i, 0 to {last}, and {last} is the last block's output before the final norm. BlockOutput: id i is "
        f"the output of block i, 0 to {last - 1}. The state after the final norm is asked for with finalNorm: true."
    )
