"""Whatever is wrong with a job is said once, by name, before weights are loaded and before anything is written."""

from __future__ import annotations

import json
import shutil

import pytest

from drillcore_spec.reasons import Reason

WRONG = [
    ("model.uri", "file:///no/such/model", Reason.MODEL_UNAVAILABLE, ["spec.model.uri", "/no/such/model"]),
    ("dataset.uri", "file:///no/such/rows.jsonl", Reason.DATASET_NOT_FOUND, ["/no/such/rows.jsonl"]),
    ("dataset.columns", {"text": "txt"}, Reason.BAD_DATASET, ["spec.dataset.columns.text", "'txt'", "'text'"]),
    ("extraction.layers", [4], Reason.BAD_SPEC, ["layers", "4", "L = 3", "BlockOutput", "finalNorm"]),
    ("extraction.layers", [-1], Reason.BAD_SPEC, ["spec.extraction.layers", "-1"]),
    ("extraction.layers", [], Reason.BAD_SPEC, ["spec.extraction.layers"]),
    ("extraction.layers", [1, 1], Reason.BAD_SPEC, ["spec.extraction.layers", "duplicates"]),
    ("extraction.lairs", [1], Reason.BAD_SPEC, ["lairs", "layers"]),
    ("engine.maxModelLen", 513, Reason.BAD_SPEC, ["spec.engine.maxModelLen", "512", "513"]),
    ("generation.maxTokens", 512, Reason.BAD_SPEC, ["spec.generation.maxTokens", "512"]),
    ("extraction.positions", "Stride", Reason.BAD_SPEC, ["spec.extraction.stride", "Stride"]),
    ("output.layout", "Loose", Reason.BAD_SPEC, ["spec.output.layout", "Packed", "PerSample"]),
]


@pytest.mark.parametrize(("path", "value", "reason", "said"), WRONG, ids=[f"{w[0]}={w[1]}" for w in WRONG])
def test_a_wrong_field_is_named_with_what_was_got(changed, run_server, tmp_path, path, value, reason, said):
    code, message, log = run_server(changed(path, value))

    assert (code, message.reason) == (reason.exit_code, reason)
    assert [word for word in said if word not in message.message] == []
    assert "Traceback" not in log
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("job", ["{", "[]", '"text"', "{}"])
def test_a_job_that_is_no_spec_is_refused(run_server, job):
    code, message, log = run_server(job)

    assert (code, message.reason) == (64, Reason.BAD_SPEC)
    assert "Traceback" not in log


def test_a_shard_out_of_range_is_refused(job_spec, run_server):
    code, message, _ = run_server(job_spec, "--shard", "1")

    assert code == 64
    assert "shards.count is 1" in message.message


def test_an_empty_dataset_is_refused(job_spec, run_server, tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n\n")

    code, message, _ = run_server(job_spec)

    assert (code, message.reason) == (65, Reason.BAD_DATASET)
    assert "rows.jsonl" in message.message


def test_an_unknown_model_type_is_refused_with_the_list_of_what_works(job_spec, changed, run_server, tmp_path):
    folder = _copy_of_model(job_spec, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}))

    code, message, _ = run_server(changed("model.uri", folder.as_uri()))

    assert (code, message.reason) == (78, Reason.MODEL_UNSUPPORTED)
    assert "mamba" in message.message
    assert "qwen3" in message.message


def test_a_pod_that_asks_for_a_gpu_never_runs_on_the_cpu(job_spec, monkeypatch):
    from drillcore_server.engine.device import choose_device
    from drillcore_server.errors import ShardError

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ShardError, match=r"server\.resources\.gpus") as refused:
        choose_device(1, local=False)

    assert refused.value.exit_code == 77
    assert choose_device(0, local=False).type == "cpu"
    assert choose_device(1, local=True).type == "cpu"


def _copy_of_model(job_spec, tmp_path):
    source = job_spec["model"]["uri"].removeprefix("file://")
    return shutil.copytree(source, tmp_path / "model")
