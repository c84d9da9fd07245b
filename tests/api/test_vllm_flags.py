"""vLLM's two blobs are taken as they are, and anything else in them is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drillcore_server.api.settings import ServeSettings, read_api_key
from drillcore_server.api.vllm_flags import KVTransferConfig, SpeculativeConfig, parse_blob
from drillcore_server.cli.arguments import build_parser
from drillcore_server.cli.serve import options_of
from drillcore_server.errors import ShardError

SPECULATIVE = {
    "method": "extract_hidden_states",
    "num_speculative_tokens": 1,
    "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": [2, 16, 29, 32]}},
}
TRANSFER = {
    "kv_connector": "ExampleHiddenStatesConnector",
    "kv_role": "kv_producer",
    "kv_connector_extra_config": {"shared_storage_path": "/dev/shm/hidden_states"},
}


def options(*arguments: str) -> dict:
    return options_of(build_parser("0").parse_args(["serve", "org/model", *arguments]))


@pytest.mark.parametrize("separator", ["-", "_"])
def test_the_blobs_of_vllms_documentation_give_layers_and_storage(separator):
    flags = [f"--speculative{separator}config", json.dumps(SPECULATIVE)]
    flags += [f"--kv{separator}transfer{separator}config", json.dumps(TRANSFER), "--no-enable-chunked-prefill"]
    made = options(*flags)

    assert made["layers"] == (2, 16, 29, 32)
    assert made["storage"] == Path("/dev/shm/hidden_states")
    assert made["model_uri"] == "hf://org/model"
    assert made["model_id"] == "org/model"


def test_options_of_vllms_connector_are_taken():
    extra = {"shared_storage_path": "/x", "num_writer_threads": 3, "use_synchronization_lock": False}
    extra["allow_custom_save_path"] = True
    made = options("--layers", "1", "--kv-transfer-config", json.dumps(TRANSFER | {"kv_connector_extra_config": extra}))
    assert (made["storage"], made["num_writer_threads"]) == (Path("/x"), 3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"method": "eagle3"}, "method"),
        ({"num_speculative_tokens": 2}, "num_speculative_tokens"),
        ({"draft_model_config": {"hf_config": {}}}, "eagle_aux_hidden_state_layer_ids"),
        ({"draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": []}}}, "layer_ids"),
        ({"model": "draft"}, "model"),
    ],
)
def test_another_speculative_config_is_refused(change, field):
    with pytest.raises(ShardError, match=f"--speculative-config.*{field}"):
        parse_blob(SpeculativeConfig, "--speculative-config", json.dumps(SPECULATIVE | change))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (json.dumps(TRANSFER | {"kv_connector": "NixlConnector"}), "kv_connector"),
        (json.dumps(TRANSFER | {"kv_role": "kv_consumer"}), "kv_role"),
        (json.dumps(TRANSFER | {"kv_connector_extra_config": {"path": "/x"}}), "path"),
        ("{", "JSON"),
    ],
)
def test_another_transfer_config_is_refused(text, field):
    with pytest.raises(ShardError, match=f"--kv-transfer-config.*{field}"):
        parse_blob(KVTransferConfig, "--kv-transfer-config", text)


def test_flags_that_contradict_a_blob_are_refused():
    with pytest.raises(ShardError, match="contradicts"):
        options("--layers", "1", "--storage", "/x", "--speculative-config", json.dumps(SPECULATIVE))


@pytest.mark.parametrize("given", [["--layers", "1"], ["--storage", "/x"]])
def test_what_is_missing_is_named(given):
    with pytest.raises(ShardError, match="must be given"):
        options(*given)


def test_a_folder_that_is_there_is_no_model_of_a_hub(tmp_path, monkeypatch):
    (tmp_path / "org/model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert options("--layers", "1", "--storage", "/x")["model_uri"] == (tmp_path / "org/model").as_uri()


def test_a_limit_below_its_least_value_is_refused():
    with pytest.raises(ShardError, match=r"`--max-queue` must be at least 1; got 0"):
        ServeSettings(model_uri="file:///m", model_id="m", layers=(1,), storage=Path("/x"), max_queue=0)


def test_the_api_key_comes_from_a_file_or_else_from_the_environment(tmp_path):
    (tmp_path / "key").write_text("from-file\n")
    environ = {"DRILLCORE_API_KEY": "from-environment"}
    assert read_api_key(tmp_path / "key", environ) == "from-file"
    assert read_api_key(None, environ) == "from-environment"
    assert read_api_key(None, {}) is None


@pytest.mark.parametrize("content", [b"", b" \n", "schlüssel".encode(), b"\xff"])
def test_a_key_that_could_not_be_sent_is_refused(tmp_path, content):
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(ShardError, match="--api-key-file"):
        read_api_key(tmp_path / "key", {})
