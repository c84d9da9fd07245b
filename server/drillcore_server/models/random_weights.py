"""Decoders with random weights made on the device: for benchmarks and tests, of any size, in no time."""

from __future__ import annotations

import torch

from drillcore_kernels import select_ops
from drillcore_server.models.decoder import Decoder
from drillcore_server.models.spec import ModelSpec
from drillcore_server.models.weights import Parameter, build_weights

_STANDARD_DEVIATION = 0.02
"""transformers' `initializer_range` for these families."""


def random_decoder(
    spec: ModelSpec,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    num_layers: int,
    seed: int = 0,
    max_positions: int | None = None,
) -> Decoder:
    """The first `num_layers` blocks, final norm and lm_head, drawn with `seed`: the same on each run of a device.

    Norm weights lie around 1, all others around 0.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def make(parameter: Parameter) -> torch.Tensor:
        values = torch.empty(parameter.shape, dtype=dtype, device=device)
        is_norm = parameter.pieces[0].key.endswith("norm.weight")
        return values.normal_(float(is_norm), _STANDARD_DEVIATION, generator=generator)

    weights = build_weights(spec, make, num_layers=num_layers, final_norm=True, lm_head=True)
    cos, sin = spec.rope.tables(max_positions or spec.max_position_embeddings, device)
    return Decoder(spec, weights, select_ops(device, dtype), cos, sin)
