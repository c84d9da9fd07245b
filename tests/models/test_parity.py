"""Every state of every family equals transformers', token by token."""

from __future__ import annotations

import pytest
import torch

from drillcore_server.models.attention import AttentionMetadata
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.spec import ModelSpec

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS = {
    "llama": ("llama", {}),
    "llama-multi-head": ("llama", {"num_key_value_heads": 4}),
    "llama-multi-query": ("llama", {"num_key_value_heads": 1}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-wide-heads": ("llama", {"head_dim": 40}),
    "llama-odd-sizes": (
        "llama",
        {
            "hidden_size": 51,
            "intermediate_size": 77,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "head_dim": 18,
        },
    ),
    "llama-one-block": ("llama", {"num_hidden_layers": 1}),
    "llama-rope-llama3": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama-rope-linear": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 5e4, "factor": 4.0}},
    ),
    "llama-rope-yarn": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            }
        },
    ),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral-window": ("mistral", {"sliding_window": 5}),
    "qwen2": ("qwen2", {"head_dim": 16, "rms_norm_eps": 1e-5}),
    "qwen2-tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2-window-above": ("qwen2", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}),
    "qwen3": ("qwen3", {}),
    "qwen3-wide-heads": ("qwen3", {"head_dim": 48}),
    "qwen3-biases": ("qwen3", {"attention_bias": True, "tie_word_embeddings": True}),
}
LENGTHS = (1, 33, 2, 70)


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS.keys())
def folder(request, tiny_model_folder):
    model_type, overrides = request.param
    return tiny_model_folder(model_type, **overrides)


def prompts(lengths=LENGTHS, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 320, (length,), generator=generator).tolist() for length in lengths]


def packed(sequences):
    token_ids = torch.tensor([token for sequence in sequences for token in sequence])
    positions = torch.cat([torch.arange(len(sequence)) for sequence in sequences])
    return token_ids, positions


def load(folder, **options):
    spec = ModelSpec.from_folder(folder)
    options = {"num_layers": spec.num_layers, "lm_head": True, "final_norm": True} | options
    return load_decoder(folder, spec, device="cpu", dtype=torch.float32, **options)


def test_every_state_and_the_logits_of_a_packed_batch_equal_transformers(
    folder, recording_sink, reference_states, row_criterion
):
    decoder = load(folder)
    sequences = prompts()
    token_ids, positions = packed(sequences)
    num_layers = decoder.spec.num_layers
    sink = recording_sink(range(num_layers + 1), len(token_ids), decoder.spec.hidden_size, final_norm=True)
    attention = AttentionMetadata.build(LENGTHS, LENGTHS)
    hidden = decoder.forward(token_ids, positions, attention, None, sink, want_hidden=True)
    references = [reference_states(folder, sequence) for sequence in sequences]
    for i in range(num_layers + 1):
        row_criterion(sink.states(i), torch.cat([reference.residual[i] for reference in references]))
    final_norm = torch.cat([reference.final_norm for reference in references])
    row_criterion(sink.final_states(), final_norm)
    row_criterion(hidden, final_norm)
    row_criterion(decoder.logits(hidden), torch.cat([reference.logits for reference in references]))
