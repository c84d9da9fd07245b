"""The parameters of a decoder: the one description of how they are packed and what a checkpoint calls them.

`build_weights` names every parameter once. A maker turns each into a tensor: the loader by reading a
checkpoint, `random_decoder` by drawing numbers, `checkpoint_keys` by writing down its keys.

Shapes: D hidden, H query heads, K key/value heads, Dh head dim, F intermediate, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from drillcore_server.models.spec import ModelSpec


@dataclass(frozen=True)
class Piece:
    """Rows of a parameter that one checkpoint tensor fills."""

    key: str
    first_row: int
    num_rows: int


@dataclass(frozen=True)
class Parameter:
    """One parameter, as the decoder holds it."""

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    """Checkpoint tensors stacked along the first dimension; they cover it."""


Maker = Callable[[Parameter], torch.Tensor]


@dataclass(frozen=True)
class Linear:
    """A linear map; several that share their input are packed into one."""

    weight: torch.Tensor
    """[N, D], rows are outputs."""
    bias: torch.Tensor | None
    """[N]"""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[T, N] of x [T, D]."""
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class BlockWeights:
    """One decoder block."""

    input_norm: torch.Tensor
    """[D]"""
    qkv: Linear
    """[(H + 2 K) Dh, D]: query heads, key heads, value heads."""
    q_norm: torch.Tensor | None
    """[Dh]"""
    k_norm: torch.Tensor | None
    """[Dh]"""
    output: Linear
    """[D, H Dh]"""
    post_attention_norm: torch.Tensor
    """[D]"""
    gate_up: Linear
    """[2 F, D]: gate rows, then up rows."""
    down: Linear
    """[D, F]"""


@dataclass(frozen=True)
class DecoderWeights:
    """The blocks 0..n-1 of a model and what a job needs around them."""

    embedding: torch.Tensor
    """[V, D]"""
    blocks: tuple[BlockWeights, ...]
    final_norm: torch.Tensor | None
    """[D]; None: nobody needs n_L."""
    lm_head: torch.Tensor | None
    """[V, D]; the embedding itself when they are tied; None: nobody needs logits."""


def build_weights(spec: ModelSpec, make: Maker, *, num_layers: int, final_norm: bool, lm_head: bool) -> DecoderWeights:
    """Asks `make` for every parameter of the first `num_layers` blocks, once each."""
    vocabulary = (spec.vocab_size, spec.hidden_size)
    embedding = make(_whole("model.embed_tokens.weight", *vocabulary))
    blocks = tuple(_block(spec, make, f"model.layers.{i}.") for i in range(num_layers))
    norm = make(_whole("model.norm.weight", spec.hidden_size)) if final_norm else None
    head = None
    if lm_head:
        head = embedding if spec.tied_embeddings else make(_whole("lm_head.weight", *vocabulary))
    return DecoderWeights(embedding, blocks, norm, head)


def checkpoint_keys(spec: ModelSpec, *, num_layers: int, final_norm: bool, lm_head: bool) -> frozenset[str]:
    """The checkpoint tensors that `build_weights` would ask for."""
    keys: set[str] = set()

    def note(parameter: Parameter) -> torch.Tensor:
        keys.update(piece.key for piece in parameter.pieces)
        return torch.empty(0)

    build_weights(spec, note, num_layers=num_layers, final_norm=final_norm, lm_head=lm_head)
    return frozenset(keys)


def _block(spec: ModelSpec, make: Maker, prefix: str) -> BlockWeights:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    query, key_value = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
    qkv = {f"{attention}q_proj": query, f"{attention}k_proj": key_value, f"{attention}v_proj": key_value}
    gate_up = {f"{mlp}gate_proj": inner, f"{mlp}up_proj": inner}
    return BlockWeights(
        input_norm=make(_whole(f"{prefix}input_layernorm.weight", hidden)),
        qkv=_linear(make, qkv, hidden, bias=spec.qkv_bias),
        q_norm=make(_whole(f"{attention}q_norm.weight", spec.head_dim)) if spec.qk_norm else None,
        k_norm=make(_whole(f"{attention}k_norm.weight", spec.head_dim)) if spec.qk_norm else None,
        output=_linear(make, {f"{attention}o_proj": hidden}, query, bias=spec.output_bias),
        post_attention_norm=make(_whole(f"{prefix}post_attention_layernorm.weight", hidden)),
        gate_up=_linear(make, gate_up, hidden, bias=spec.mlp_bias),
        down=_linear(make, {f"{mlp}down_proj": hidden}, inner, bias=spec.mlp_bias),
    )


def _linear(make: Maker, outputs: dict[str, int], inputs: int, *, bias: bool) -> Linear:
    """Maps that share their input, packed: module name to number of outputs, in order."""
    weight = make(_packed(outputs, ".weight", (inputs,)))
    return Linear(weight, make(_packed(outputs, ".bias", ())) if bias else None)


def _packed(outputs: dict[str, int], suffix: str, inner_shape: tuple[int, ...]) -> Parameter:
    pieces, first_row = [], 0
    for module, num_rows in outputs.items():
        pieces.append(Piece(f"{module}{suffix}", first_row, num_rows))
        first_row += num_rows
    return Parameter((first_row, *inner_shape), tuple(pieces))


def _whole(key: str, *shape: int) -> Parameter:
    return Parameter(shape, (Piece(key, 0, shape[0]),))
