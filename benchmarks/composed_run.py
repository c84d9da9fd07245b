"""The composed forward pass (see `composed_forward`) over a workload's prompts, with the decoder's own weights."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from composed_decoder import Block, DecoderShape, Step, Weights, forward, make_step
from documents import pack
from forward_only import Forward
from workload_list import Prompts, Workload

from drillcore_server.models.decoder import Decoder


def composed_run(workload: Workload, decoder: Decoder, prompts: Prompts) -> Forward:
    """Runs the prompts, packed into nearly full steps beforehand, through the layers that the workload needs."""
    num_layers = max(workload.layers)
    shape, weights = _shape_of(decoder, num_layers), _weights_of(decoder, num_layers)
    device = decoder.weights.embedding.device
    packed = pack([len(ids) for ids in prompts], workload.max_num_batched_tokens)
    steps = [make_step(lengths, shape, decoder.ops, device) for lengths in packed]
    _run(decoder, shape, weights, steps[:1])
    began = time.perf_counter()
    _run(decoder, shape, weights, steps)
    return Forward(time.perf_counter() - began, sum(map(len, prompts)), len(prompts), len(steps))


@torch.inference_mode()
def _run(decoder: Decoder, shape: DecoderShape, weights: Weights, steps: Sequence[Step]) -> None:
    for step in steps:
        forward(decoder.ops, shape, weights, step, lambda _: None)
    if weights.embedding.device.type == "cuda":
        torch.cuda.synchronize()


def _shape_of(decoder: Decoder, num_layers: int) -> DecoderShape:
    spec = decoder.spec
    return DecoderShape(
        num_layers=num_layers,
        hidden=spec.hidden_size,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        mlp=spec.intermediate_size,
        vocab=spec.vocab_size,
        qk_norm=spec.qk_norm,
    )


def _weights_of(decoder: Decoder, num_layers: int) -> Weights:
    """The decoder's parameters, not copied."""
    blocks = tuple(
        Block(
            input_norm=block.input_norm,
            qkv=block.qkv.weight,
            q_norm=block.q_norm,
            k_norm=block.k_norm,
            output=block.output.weight,
            post_norm=block.post_attention_norm,
            gate_up=block.gate_up.weight,
            down=block.down.weight,
        )
        for block in decoder.weights.blocks[:num_layers]
    )
    return Weights(decoder.weights.embedding, blocks, decoder.cos, decoder.sin)
