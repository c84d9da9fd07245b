"""A whole job in two processes that writes a file for each row."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import drillcore
from drillcore.layout import Layout

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def runs(make_workplace, tmp_path_factory):
    """The same job in both layouts: its workplace, the output of layout Packed, and the summary of PerSample."""
    lines = [json.dumps({"id": f"row-{i}", "text": "core " * (1 + i % 40)}) for i in range(40)]
    lines[7] = '{"id": "row-7", "text": '
    workplace = make_workplace(tmp_path_factory.mktemp("layouts"), lines)
    packed = workplace.folder / "packed"
    assert workplace.run_json("--output", str(packed))["code"] == 0
    workplace.set("output.layout", "PerSample")
    workplace.set("output.partSize", "16Ki")
    return workplace, packed, workplace.run_json()


def test_the_rows_are_those_of_the_other_layout(runs):
    workplace, packed, summary = runs
    assert summary["code"] == 0
    output, expected = drillcore.open(workplace.output), drillcore.open(packed)
    assert output.rows.tolist() == expected.rows.tolist()
    assert [entry.row for entry in output.quarantined()] == [7]
    for ours, theirs in zip(output, expected, strict=True):
        assert (ours.id, ours.token_ids.tolist()) == (theirs.id, theirs.token_ids.tolist())
        difference = np.linalg.norm(ours.hidden_states - theirs.hidden_states, axis=-1)
        assert np.all(difference <= 2e-5 * np.linalg.norm(theirs.hidden_states, axis=-1))
    assert drillcore.verify(workplace.output).ok


def test_each_file_is_what_a_trainer_reads(runs):
    output = drillcore.open(runs[0].output)
    layout = Layout(runs[0].output)
    assert {path.name for path in layout.samples.iterdir()} == {f"hs_{row}.safetensors" for row in output.rows.tolist()}
    for sample in output:
        tensors = load_file(layout.shard(0).sample(sample.row))
        assert sorted(tensors) == ["hidden_states", "token_ids"]
        assert tensors["hidden_states"].tobytes() == sample.hidden_states.tobytes()
        assert tensors["token_ids"].tolist() == sample.token_ids.tolist()


def test_the_estimate_is_within_one_percent(runs):
    workplace, _, summary = runs
    estimate = workplace.estimate()
    assert (estimate.rows_out, estimate.tokens) == (39, drillcore.open(workplace.output).counts.tokens)
    assert estimate.bytes == pytest.approx(summary["counts"]["bytes"], rel=0.01)


def test_running_it_again_changes_nothing_and_a_lost_file_is_missed(runs):
    workplace = runs[0]
    layout = Layout(workplace.output)
    before = {path: path.stat().st_mtime_ns for path in workplace.output.rglob("*")}
    assert workplace.run_json()["code"] == 0
    assert {path: path.stat().st_mtime_ns for path in workplace.output.rglob("*")} == before
    layout.shard(0).sample(3).unlink()
    process = workplace.drillcore("run", "job.yaml")
    assert process.returncode != 0
    assert "hs_3.safetensors" in process.stderr
