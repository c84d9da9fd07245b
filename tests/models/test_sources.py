from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import pytest
import torch

from drillcore_server.errors import ShardError
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.sources import resolve_model
from drillcore_server.models.spec import ModelSpec
from drillcore_server.volumes import Volumes
from drillcore_spec.model_source import ModelSource
from drillcore_spec.reasons import Reason


@pytest.fixture
def volumes(tmp_path):
    return Volumes(tmp_path / "volumes")


def source(uri, revision=None):
    return ModelSource(uri=uri, revision=revision)


@pytest.fixture
def published(hub, tiny_model_folder, tmp_path):
    """A hub with a model beside files that nobody needs."""
    folder = shutil.copytree(tiny_model_folder("llama"), tmp_path / "published")
    for name in ("pytorch_model.bin", "consolidated.safetensors", "README.md", "original.pth"):
        (folder / name).write_bytes(b"not needed")
    hub.folders["org/tiny"] = folder
    return hub


def test_a_folder_and_a_claim_are_taken_where_they_are(tiny_model_folder, tmp_path):
    folder = tiny_model_folder("llama")
    assert resolve_model(source(f"file://{folder}"), Volumes(tmp_path), cache_dir=None).path == folder
    claim = Volumes(tmp_path, {"models": folder.parent})
    model = resolve_model(source(f"pvc://models/{folder.name}"), claim, cache_dir=None)
    assert (model.path, model.uri, model.revision) == (folder, f"pvc://models/{folder.name}", None)


@pytest.mark.parametrize(("made", "got"), [(False, "nothing there"), (True, "a file")])
def test_a_missing_folder_is_unavailable(tmp_path, volumes, made, got):
    path = tmp_path / "model"
    if made:
        path.write_text("")
    with pytest.raises(ShardError, match=got) as error:
        resolve_model(source(f"file://{path}"), volumes, cache_dir=None)
    assert error.value.reason is Reason.MODEL_UNAVAILABLE
    assert str(path) in error.value.message


def test_a_hub_model_is_taken_at_its_commit_with_only_the_files_that_are_needed(published, volumes, tmp_path):
    model = resolve_model(source("hf://org/tiny"), volumes, cache_dir=tmp_path / "cache")
    assert model.revision == published.COMMIT
    assert published.downloaded == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    spec = ModelSpec.from_folder(model.path)
    load_decoder(model.path, spec, device="cpu", dtype=torch.float32, num_layers=3, lm_head=True, final_norm=True)


def test_a_sharded_hub_model_is_taken_by_its_index(published, volumes, tmp_path):
    folder = published.folders["org/tiny"]
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    model = resolve_model(source("hf://org/tiny"), volumes, cache_dir=tmp_path / "cache")
    assert {path.name for path in model.path.glob("*.safetensors")} == {"model-00001-of-00001.safetensors"}


def test_weights_are_left_on_the_hub_for_an_estimate(published, volumes, tmp_path):
    model = resolve_model(source("hf://org/tiny"), volumes, cache_dir=tmp_path / "cache", weights=False)
    assert "model.safetensors" not in published.downloaded
    assert ModelSpec.from_folder(model.path).num_layers == 3


def test_a_commit_in_the_cache_needs_no_hub(published, volumes, tmp_path):
    model = source("hf://org/tiny", published.COMMIT)
    first = resolve_model(model, volumes, cache_dir=tmp_path / "cache")
    published.close()
    assert resolve_model(model, volumes, cache_dir=tmp_path / "cache") == first


def test_an_unsupported_model_is_refused_before_its_weights_are_downloaded(published, volumes, tmp_path):
    (published.folders["org/tiny"] / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(ShardError, match="mamba") as error:
        resolve_model(source("hf://org/tiny"), volumes, cache_dir=tmp_path)
    assert error.value.reason is Reason.MODEL_UNSUPPORTED
    assert "model.safetensors" not in published.downloaded


def test_a_hub_model_without_safetensors_is_unsupported(published, volumes, tmp_path):
    (published.folders["org/tiny"] / "model.safetensors").unlink()
    with pytest.raises(ShardError, match=r"must have model\.safetensors") as error:
        resolve_model(source("hf://org/tiny"), volumes, cache_dir=tmp_path)
    assert error.value.reason is Reason.MODEL_UNSUPPORTED


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (401, "RepoNotFound", r"HF_TOKEN .*spec\.model\.secretName"),
        (403, "GatedRepo", "accept its licence"),
        (404, "RevisionNotFound", r"spec\.model\.revision"),
        (500, None, "did not give"),
    ],
)
def test_what_the_hub_refuses_is_unavailable_with_advice(published, volumes, tmp_path, status, code, advice):
    published.error_codes["org/tiny"] = (status, code)
    with pytest.raises(ShardError, match=advice) as error:
        resolve_model(source("hf://org/tiny", "v1"), volumes, cache_dir=tmp_path)
    assert error.value.reason is Reason.MODEL_UNAVAILABLE
    assert "\n" not in error.value.message


def test_an_unreachable_hub_is_unavailable(hub, volumes, tmp_path):
    hub.close()
    with pytest.raises(ShardError, match="HF_ENDPOINT") as error:
        resolve_model(source("hf://org/tiny"), volumes, cache_dir=tmp_path)
    assert error.value.reason is Reason.MODEL_UNAVAILABLE


def test_a_cut_off_download_is_unavailable_and_leaves_no_file(published, volumes, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.file_download.time", SimpleNamespace(sleep=lambda _: None))
    published.truncated.add("tokenizer.json")
    with pytest.raises(ShardError, match="org/tiny") as error:
        resolve_model(source("hf://org/tiny"), volumes, cache_dir=tmp_path / "cache")
    assert error.value.reason is Reason.MODEL_UNAVAILABLE
    assert not list((tmp_path / "cache").rglob("snapshots/*/tokenizer.json"))


def test_a_cache_that_cannot_be_written_is_unavailable(published, volumes, tmp_path):
    (tmp_path / "cache").write_text("a file where the cache should be")
    with pytest.raises(ShardError, match="cache") as error:
        resolve_model(source("hf://org/tiny"), volumes, cache_dir=tmp_path / "cache")
    assert error.value.reason is Reason.MODEL_UNAVAILABLE


def test_an_id_that_no_hub_can_have_is_a_bad_spec(hub, volumes):
    with pytest.raises(ShardError, match="hf://ORG/NAME") as error:
        resolve_model(source("hf://org/tiny/subfolder"), volumes, cache_dir=None)
    assert error.value.reason is Reason.BAD_SPEC
    assert not hub.requests


def test_every_request_for_the_model_carries_the_token(published, volumes, tmp_path):
    resolve_model(source("hf://org/tiny"), volumes, cache_dir=tmp_path)
    assert {token for _, path, token in published.requests if "org/tiny" in path} == {"Bearer hf_secret"}
