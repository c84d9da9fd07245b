"""SmolLM2-135M-Instruct on real text: every state equals transformers'."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from drillcore_server.models.attention import AttentionMetadata
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.spec import ModelSpec

DEMO_MODEL = Path(__file__).parents[2] / "volumes/models/smollm2-135m-instruct"
TEXTS = (
    "A drill core is the cylinder of rock that shows every layer at the place where the drill went down.",
    "def add(a: int, b: int) -> int:\n    return a + b\n",
    "Straße, café, 東京, 🙂",
)


@pytest.mark.demo
@pytest.mark.skipif(not DEMO_MODEL.exists(), reason="needs the demo model: `make demo-model`")
def test_every_state_of_the_demo_model_equals_transformers(recording_sink, reference_states, row_criterion):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(DEMO_MODEL)
    sequences = [tokenizer(text)["input_ids"] for text in TEXTS]
    lengths = [len(sequence) for sequence in sequences]
    spec = ModelSpec.from_folder(DEMO_MODEL)
    decoder = load_decoder(
        DEMO_MODEL,
        spec,
        device="cpu",
        dtype=torch.float32,
        num_layers=spec.num_layers,
        lm_head=True,
        final_norm=True,
    )
    token_ids = torch.tensor([token for sequence in sequences for token in sequence])
    positions = torch.cat([torch.arange(length) for length in lengths])
    sink = recording_sink(range(spec.num_layers + 1), len(token_ids), spec.hidden_size, final_norm=True)
    attention = AttentionMetadata.build(lengths, lengths)
    hidden = decoder.forward(token_ids, positions, attention, None, sink, want_hidden=True)
    references = [reference_states(DEMO_MODEL, sequence) for sequence in sequences]
    for i in range(spec.num_layers + 1):
        row_criterion(sink.states(i), torch.cat([reference.residual[i] for reference in references]))
    row_criterion(sink.final_states(), torch.cat([reference.final_norm for reference in references]))
    row_criterion(decoder.logits(hidden), torch.cat([reference.logits for reference in references]))
