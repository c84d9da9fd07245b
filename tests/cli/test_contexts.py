"""`contextSize` from the job file to the output: two real processes over a tiny model."""

from __future__ import annotations

import json

import pytest

import drillcore

pytestmark = pytest.mark.e2e
CONTEXT_SIZE = 32


def _expected_contexts(workplace, tiny_model_folder, rows):
    """The rows' texts joined, each after BOS, and cut; the broken row left out."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_folder())
    lines = (workplace.folder / "volumes/data/rows.jsonl").read_text().splitlines()
    texts = [json.loads(lines[row])["text"] for row in rows if row != 7]
    ids = [token for text in texts for token in [tokenizer.bos_token_id, *tokenizer(text)["input_ids"]]]
    return [ids[start : start + CONTEXT_SIZE] for start in range(0, len(ids) - CONTEXT_SIZE + 1, CONTEXT_SIZE)]


def _contexts_of(output, shard):
    return [s.token_ids.tolist() for s in output if s.row >> 40 == shard]


def test_each_shard_packs_its_own_texts_and_the_estimate_holds(workplace, tiny_model_folder):
    workplace.set("dataset.contextSize", CONTEXT_SIZE)
    workplace.set("shards", {"count": 2})

    counts = workplace.run_counts()
    estimate = workplace.estimate()

    output = drillcore.open(workplace.output)
    for shard, rows in enumerate((range(20), range(20, 40))):
        assert _contexts_of(output, shard) == _expected_contexts(workplace, tiny_model_folder, rows)
    assert counts["rowsIn"] == len(output) + 1
    assert [entry.line for entry in output.quarantined()] == [8]
    assert (estimate.tokens, estimate.rows_out) == (counts["tokens"], counts["rowsOut"])
    assert estimate.bytes == pytest.approx(counts["bytes"], rel=0.01)
    assert drillcore.verify(workplace.output).ok


def test_more_texts_go_on_after_the_contexts_that_are_there(workplace, tiny_model_folder):
    workplace.set("dataset.contextSize", CONTEXT_SIZE)
    workplace.set("dataset.maxSamples", 15)
    assert workplace.run_json()["code"] == 0
    assert _contexts_of(drillcore.open(workplace.output), 0) == _expected_contexts(
        workplace, tiny_model_folder, range(15)
    )

    workplace.set("dataset.maxSamples", 40)
    assert workplace.run_json()["code"] == 0
    assert _contexts_of(drillcore.open(workplace.output), 0) == _expected_contexts(
        workplace, tiny_model_folder, range(40)
    )
    assert drillcore.verify(workplace.output).ok
