"""What each example job leaves behind is what its user is promised."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "volumes/models/smollm2-135m-instruct"
BF16_TOLERANCE = 5e-3
PAGES = {
    "eagle3": "draft-models",
    "sae": "sparse-autoencoders",
    "embeddings": "embeddings",
    "on-policy": "on-policy",
}

pytestmark = [pytest.mark.demo, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL)


def test_draft_training_data_holds_each_conversation_with_the_answers_marked(
    run_example, tokenizer, reference_states, row_criterion
):
    output = run_example("eagle3").output

    assert [sample.id for sample in output][:2] == ["tide-table", "unit-tests"]
    sample = output[0]
    said = tokenizer.decode(sample.token_ids[sample.loss_mask == 1])
    assert said.startswith("Because the moon pulls")
    assert "the tides follow the moon." in said
    assert "almost an hour later" not in said
    states = reference_states(MODEL, sample.token_ids.tolist())
    for layer in (2, 15, 27, 30):
        row_criterion(sample.layer(layer), states.residual[layer], BF16_TOLERANCE)


def test_contexts_for_an_autoencoder_are_full_and_without_their_first_tokens(run_example):
    output = run_example("sae").output

    assert len(output) > 100
    for sample in output:
        assert len(sample.token_ids) == 128
        assert sample.positions.tolist() == list(range(4, 128))
    norms = np.linalg.norm(np.concatenate([s.layer(15).astype(np.float32) for s in output]), axis=1)
    assert norms.max() < 5 * np.median(norms), "no outlier is left"


def test_an_embedding_is_the_last_tokens_state(run_example, tokenizer, reference_states, row_criterion):
    output = run_example("embeddings").output

    assert len(output) == 12
    for sample in output:
        assert sample.positions.tolist() == [len(sample.token_ids) - 1]
        states = reference_states(MODEL, sample.token_ids.tolist())
        row_criterion(sample.layer("finalNorm")[0], states.final_norm[-1])
        row_criterion(sample.layer(20)[0], states.residual[20][-1])


def test_on_policy_data_ends_with_what_the_model_wrote(run_example, tokenizer, reference_states, row_criterion):
    output = run_example("on-policy").output

    assert len(output) == 8
    for sample in output:
        prompt = tokenizer.decode(sample.token_ids[: sample.num_prompt_tokens])
        assert prompt.endswith("<|im_start|>assistant\n")
        assert 1 <= len(sample.token_ids) + 1 - sample.num_prompt_tokens <= 48
        assert (sample.loss_mask[sample.num_prompt_tokens :] == 1).all()
    states = reference_states(MODEL, output[0].token_ids.tolist())
    row_criterion(output[0].layer(27), states.residual[27], BF16_TOLERANCE)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_tells_what_the_example_takes(run_example, name):
    page = (ROOT / f"docs/{PAGES[name]}.md").read_text()
    counts = run_example(name).counts

    told = re.search(r"`(\S+)\.yaml`: ([\d,]+) rows, ([\d,]+) tokens, ([\d,]+) states, ([\d,]+) bytes", page)
    assert told[1] == name
    rows, tokens, states, size_bytes = (int(number.replace(",", "")) for number in told.groups()[1:])
    # What is sampled may differ in its last bits from machine to machine.
    tolerance = 0.1 if name == "on-policy" else 0
    assert rows == counts["rowsOut"]
    assert tokens == pytest.approx(counts["tokens"], rel=tolerance)
    assert states == pytest.approx(counts["states"], rel=tolerance)
    assert size_bytes == pytest.approx(counts["bytes"], rel=max(tolerance, 0.001))


@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_the_page_reads_the_example(run_example, name):
    page = (ROOT / f"docs/{PAGES[name]}.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    path = f"volumes/outputs/{name}"
    assert path in code

    variables: dict[str, object] = {"epoch": 0}
    exec(code.replace(path, str(run_example(name).path)), variables)

    if name == "embeddings":
        assert variables["vectors"].shape == (12, 576)
        assert len(variables["names"]) == 12
    if name == "on-policy":
        assert len(variables["states"]) == len(variables["answer"])
