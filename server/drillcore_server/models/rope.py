"""Rotary position embedding: from a config's rope parameters to cos and sin tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Types whose frequencies do not depend on the length of a sequence, so that lengths may mix in a batch."""


@dataclass(frozen=True)
class RopeSpec:
    """Rotary position embedding of the half-split (GPT-NeoX) kind."""

    inv_freq: tuple[float, ...]
    """float32 values, one for each rotated pair of dimensions: the rotary dimension is twice as many."""
    attention_scaling: float = 1.0
    """Factor on cos and sin (YaRN's mscale; 1 elsewhere)."""

    @classmethod
    def from_config(cls, config: Any, head_dim: int) -> RopeSpec:
        """The rope of a transformers config, by transformers' own ROPE_INIT_FUNCTIONS.

        Raises:
            ShardError: MODEL_UNSUPPORTED for another rope type, a partial rotary factor or parameters for each
                layer type; MODEL_BROKEN for values that give no frequencies.
        """
        parameters = config.rope_parameters
        rope_type = parameters.get("rope_type")
        if rope_type not in ROPE_TYPES:
            got = f"parameters by layer type {sorted(parameters)}" if rope_type is None else repr(rope_type)
            raise ShardError(
                Reason.MODEL_UNSUPPORTED,
                f"config.json: `rope_parameters.rope_type` must be one of {', '.join(ROPE_TYPES)}; got {got}",
            )
        if parameters.get("partial_rotary_factor", 1.0) != 1.0:
            raise ShardError(
                Reason.MODEL_UNSUPPORTED,
                "config.json: `partial_rotary_factor` must be 1 for this model type; "
                f"got {parameters['partial_rotary_factor']}",
            )
        try:
            inv_freq, scaling = _frequencies(rope_type, parameters, config, head_dim)
        except (TypeError, ValueError, KeyError, ArithmeticError, RuntimeError) as error:
            raise ShardError(
                Reason.MODEL_BROKEN, f"config.json: `rope_parameters` {parameters} give no frequencies: {error}"
            ) from error
        values = tuple(inv_freq.tolist())
        if len(values) * 2 != head_dim or not all(math.isfinite(value) for value in (*values, scaling)):
            raise ShardError(
                Reason.MODEL_BROKEN,
                f"config.json: `rope_parameters` {parameters} must give {head_dim / 2:g} finite frequencies "
                f"(half of head_dim {head_dim}); got {len(values)}",
            )
        return cls(values, scaling)

    def tables(self, num_positions: int, device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines, each float32 [num_positions, rotary dim / 2]."""
        inv_freq = torch.tensor(self.inv_freq, dtype=torch.float32, device=device)
        positions = torch.arange(num_positions, dtype=torch.float32, device=device)
        angles = torch.outer(positions, inv_freq)
        return angles.cos().mul_(self.attention_scaling), angles.sin().mul_(self.attention_scaling)


def _frequencies(
    rope_type: str, parameters: Mapping[str, Any], config: Any, head_dim: int
) -> tuple[torch.Tensor, float]:
    if rope_type == "default":
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        # Source: Su et al., RoFormer, section 3.2.2: theta_i = base ** (-2 i / d).
        return 1.0 / (parameters["rope_theta"] ** exponents), 1.0
    inv_freq, scaling = ROPE_INIT_FUNCTIONS[rope_type](config, torch.device("cpu"))
    return inv_freq, float(scaling)
