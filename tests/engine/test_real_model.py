"""SmolLM2-135M-Instruct through the engine: every state and generated id equals transformers'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from drillcore_server.engine import Request
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.spec import ModelSpec

DEMO_MODEL = Path(__file__).parents[2] / "volumes/models/smollm2-135m-instruct"
TEXTS = (
    "A drill core is the cylinder of rock that shows every layer at the place where the drill went down.",
    "A drill core is the cylinder of rock that tells",
    "def add(a: int, b: int) -> int:\n    return a + b\n",
    "Straße, café, 東京, 🙂",
)
pytestmark = [
    pytest.mark.demo,
    pytest.mark.skipif(not DEMO_MODEL.exists(), reason="needs the demo model: `make demo-model`"),
]


@pytest.fixture(scope="module")
def decoder():
    spec = ModelSpec.from_folder(DEMO_MODEL)
    return load_decoder(
        DEMO_MODEL,
        spec,
        device="cpu",
        dtype=torch.float32,
        num_layers=spec.num_layers,
        lm_head=True,
        final_norm=True,
    )


@pytest.fixture(scope="module")
def prompts():
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(DEMO_MODEL)
    return [np.array(tokenizer(text)["input_ids"]) for text in TEXTS]


@pytest.mark.parametrize("budget", [1, 7, 64, 10_000])
def test_every_state_equals_transformers_under_every_budget(
    make_engine, decoder, prompts, reference_states, row_criterion, budget
):
    under_test = make_engine(decoder, max_num_batched_tokens=budget, block_size=8, num_blocks=40)

    under_test.engine.run(Request(row, prompt) for row, prompt in enumerate(prompts))

    assert under_test.engine.prefix_counters.hits > 0
    samples = under_test.samples()
    for row, prompt in enumerate(prompts):
        found = reference_states(DEMO_MODEL, prompt.tolist())
        expected = torch.stack([*found.residual, found.final_norm], dim=1)
        row_criterion(samples[row].hidden_states, expected)


def test_greedy_ids_equal_transformers(make_engine, decoder, prompts):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(DEMO_MODEL, dtype=torch.float32).eval()
    under_test = make_engine(decoder, max_tokens=12, num_blocks=40)

    under_test.engine.run(Request(row, prompt, max_tokens=12) for row, prompt in enumerate(prompts))

    samples = under_test.samples()
    for row, prompt in enumerate(prompts):
        ids = torch.from_numpy(prompt)[None]
        expected = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )[0]
        end = samples[row].end
        assert [*end.token_ids.tolist(), end.last_token] == expected.tolist()
