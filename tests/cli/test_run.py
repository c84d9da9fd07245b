"""`drillcore run`: two real processes, a real model, a real ring."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch

import drillcore
from drillcore_spec.reasons import Reason

pytestmark = pytest.mark.e2e


def test_a_job_is_extracted_whole_and_a_second_run_has_nothing_to_do(
    workplace, tiny_model_folder, reference_states, row_criterion
):
    workplace.set("shards", {"count": 2})

    first = workplace.drillcore("run", "job.yaml")
    estimate = json.loads(workplace.drillcore("estimate", "job.yaml", "--json").stdout)
    second = workplace.run_json()

    assert first.returncode == 0, first.stderr
    assert "39 out, 1 quarantined" in first.stdout
    assert f"drillcore.open('{workplace.output}')" in first.stdout
    counts = second["counts"]
    assert (counts["rowsIn"], counts["rowsOut"], counts["rowsQuarantined"]) == (40, 39, 1)
    assert abs(estimate["bytes"] - counts["bytes"]) <= 0.01 * counts["bytes"]
    assert (estimate["tokens"], estimate["rows_out"]) == (counts["tokens"], counts["rowsOut"])
    assert drillcore.verify(workplace.output).ok

    output = drillcore.open(workplace.output)
    assert [entry.line for entry in output.quarantined()] == [8]
    for sample in output:
        states = reference_states(tiny_model_folder(), sample.token_ids.tolist())
        expected = [states.residual[3], states.residual[0], states.residual[2], states.final_norm]
        row_criterion(np.asarray(sample.hidden_states), torch.stack(expected, dim=1))
    journals = [len(list(shard.glob("journal-*"))) for shard in sorted((workplace.output / "shards").iterdir())]
    assert journals == [1, 1], "the second run must not have begun an attempt"


def test_generated_tokens_are_extracted_with_their_prompt(
    workplace, tiny_model_folder, reference_states, row_criterion
):
    workplace.set("generation", {"maxTokens": 5})
    workplace.set("dataset.maxSamples", 6)

    summary = workplace.run_json()

    assert summary["code"] == 0, summary
    for sample in drillcore.open(workplace.output):
        token_ids = sample.token_ids.tolist()
        states = reference_states(tiny_model_folder(), token_ids)
        greedy = states.logits.argmax(dim=-1).tolist()
        generated = token_ids[sample.num_prompt_tokens :]
        assert generated == greedy[sample.num_prompt_tokens - 1 : len(token_ids) - 1]
        assert sample.last_token == greedy[-1]
        row_criterion(np.asarray(sample.layer(3)), states.residual[3])


def test_a_larger_max_samples_goes_on_and_a_smaller_one_is_refused(workplace):
    workplace.set("dataset.maxSamples", 10)
    assert workplace.run_json()["counts"]["rowsIn"] == 10

    workplace.set("dataset.maxSamples", 20)
    larger = workplace.run_json()
    workplace.set("dataset.maxSamples", 5)
    smaller = workplace.run_json()

    assert (larger["code"], larger["counts"]["rowsIn"]) == (0, 20)
    assert (smaller["code"], smaller["reason"]) == (73, Reason.OUTPUT_IDENTITY)
    assert "maxSamples" in smaller["message"]
    assert len(drillcore.open(workplace.output)) == 19


def test_the_output_of_another_job_is_refused_with_the_fields_that_differ(workplace):
    assert workplace.run_json()["code"] == 0
    workplace.set("extraction.layers", [1])

    refused = workplace.drillcore("run", "job.yaml")

    assert refused.returncode == 73
    assert "layers" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert drillcore.verify(workplace.output).ok


def test_a_folder_with_other_files_is_left_alone(workplace):
    workplace.output.mkdir(parents=True)
    (workplace.output / "thesis.tex").write_text("precious")

    refused = workplace.drillcore("run", "job.yaml")

    assert refused.returncode == 73
    assert Reason.OUTPUT_FOREIGN in refused.stderr
    assert [path.name for path in workplace.output.iterdir()] == ["thesis.tex"]


def test_too_many_broken_rows_end_the_shard_and_a_higher_limit_goes_on(workplace):
    workplace.set("failurePolicy.maxQuarantinedPercent", 1)
    refused = workplace.drillcore("run", "job.yaml")
    workplace.set("failurePolicy.maxQuarantinedPercent", 5)
    summary = workplace.run_json()

    assert refused.returncode == 67
    assert "maxQuarantinedPercent" in refused.stderr
    assert "quarantine-" in refused.stderr
    assert (summary["code"], summary["counts"]["rowsQuarantined"]) == (0, 1)


def test_truncated_weights_are_named_and_nothing_is_written(workplace, tiny_model_folder, tmp_path):
    import shutil

    folder = shutil.copytree(tiny_model_folder(), tmp_path / "model")
    weights = folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1000)
    workplace.set("model.uri", folder.as_uri())

    refused = workplace.drillcore("run", "job.yaml")

    assert refused.returncode == 78
    assert "model.safetensors" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not workplace.output.exists()
