"""Generation from the job file to the output: what a row's tokens depend on, and what they cost."""

from __future__ import annotations

import json

import numpy as np
import pytest

import drillcore

pytestmark = pytest.mark.e2e

MAX_TOKENS = 8


@pytest.fixture
def sampling_job(make_workplace, tmp_path):
    """18 rows, each text three times, of which the model writes up to 8 tokens more."""
    lines = [json.dumps({"text": f"The drill {'went ' * (i % 6)}down"}) for i in range(18)]
    place = make_workplace(tmp_path, lines)
    place.set("dataset.columns", {"text": "text"})
    place.set("generation", {"maxTokens": MAX_TOKENS, "temperature": 1.0, "topP": 0.95, "seed": 11})
    return place


def run(place, name, *arguments):
    """Runs the job into a folder of its own and opens that."""
    output = place.folder / name
    summary = place.run_json("--output", str(output), *arguments)
    assert summary["code"] == 0, summary
    return output


def generated(output):
    """What the model wrote for each row, with the token that has no state."""
    return {s.row: [*s.token_ids[s.num_prompt_tokens :].tolist(), s.last_token] for s in drillcore.open(output)}


def test_sampled_tokens_depend_on_seed_and_row_only(sampling_job):
    expected = generated(run(sampling_job, "once"))

    sampling_job.set("dataset.maxSamples", 5)
    run(sampling_job, "resumed")
    sampling_job.set("dataset.maxSamples", 18)
    assert generated(run(sampling_job, "resumed")) == expected

    sampling_job.set("shards", {"count": 3})
    sampling_job.set("engine.maxNumBatchedTokens", 16)
    for shard in ("2", "0", "1"):
        run(sampling_job, "shards", "--shard", shard)
    assert generated(sampling_job.folder / "shards") == expected

    assert len({tuple(expected[row]) for row in (0, 6, 12)}) == 3, "the same text in three rows"
    sampling_job.set("shards", {"count": 1})
    sampling_job.set("generation.seed", 12)
    other = generated(run(sampling_job, "other-seed"))
    assert sum(other[row] != expected[row] for row in expected) >= 16


def test_sampled_rows_hold_the_states_of_their_tokens_within_the_estimate(
    sampling_job, tiny_model_folder, reference_states, row_criterion
):
    counts = sampling_job.run_counts()
    estimate = sampling_job.estimate()

    output = drillcore.open(sampling_job.output)
    assert len(output) == estimate.rows_out == 18
    for name in ("tokens", "states", "bytes"):
        assert 0.7 * getattr(estimate, name) <= counts[name] <= getattr(estimate, name)
    for sample in output:
        states = reference_states(tiny_model_folder(), sample.token_ids.tolist())
        row_criterion(np.asarray(sample.layer(3)), states.residual[3])
        assert 1 <= len(sample.token_ids) - sample.num_prompt_tokens + 1 <= MAX_TOKENS
    assert output.manifest.generation["temperature"] == 1.0


def test_another_way_of_sampling_is_another_output(sampling_job):
    run(sampling_job, "states")
    sampling_job.set("generation.topP", 0.9)

    refused = sampling_job.run_json("--output", str(sampling_job.folder / "states"))

    assert (refused["code"], refused["reason"]) == (73, "OutputIdentity")
    assert "generation" in refused["message"]
