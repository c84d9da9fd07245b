from __future__ import annotations

import json

import pytest
import torch

from drillcore_server.errors import ShardError
from drillcore_server.models.families import FAMILIES
from drillcore_server.models.spec import ModelSpec
from drillcore_spec.reasons import Reason

SIZES = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}


def spec_of(model_type, **fields):
    return ModelSpec.from_config({"model_type": model_type} | SIZES | fields)


def refusal(config):
    with pytest.raises(ShardError) as error:
        ModelSpec.from_config(config)
    return error.value


def test_llama_flags_follow_the_config():
    spec = spec_of("llama", attention_bias=True, mlp_bias=True, head_dim=32, torch_dtype="bfloat16")
    assert (spec.qkv_bias, spec.output_bias, spec.mlp_bias, spec.qk_norm) == (True, True, True, False)
    assert (spec.head_dim, spec.attention_scale, spec.dtype) == (32, 32**-0.5, torch.bfloat16)


def test_qwen2_has_biases_on_queries_keys_and_values_only():
    spec = spec_of("qwen2")
    assert (spec.qkv_bias, spec.output_bias, spec.mlp_bias, spec.qk_norm) == (True, False, False, False)


def test_qwen3_norms_queries_and_keys():
    assert spec_of("qwen3").qk_norm


def test_fields_that_a_config_leaves_out_have_the_defaults_of_transformers():
    spec = spec_of("llama", num_key_value_heads=None)
    assert (spec.num_kv_heads, spec.head_dim, spec.norm_eps, spec.dtype) == (4, 16, 1e-6, torch.float32)
    assert spec.rope.inv_freq[1] == pytest.approx(10000 ** (-2 / 16))


def test_windows_follow_the_layer_types():
    assert spec_of("llama").windows == (None,) * 4
    assert spec_of("mistral", sliding_window=8).windows == (8,) * 4
    assert spec_of("qwen2", sliding_window=8).windows == (None,) * 4
    used = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}
    assert spec_of("qwen2", **used).windows == (None, None, None, 8)


def test_the_config_given_is_not_changed():
    config = {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}} | SIZES
    before = json.dumps(config)
    ModelSpec.from_config(config)
    assert json.dumps(config) == before


@pytest.mark.parametrize("model_type", ["gpt_oss", "LLAMA", None, 3, ["llama"]])
def test_an_unknown_model_type_is_refused_with_the_list_of_what_works(model_type):
    error = refusal({"model_type": model_type} | SIZES)
    assert error.reason is Reason.MODEL_UNSUPPORTED
    assert repr(model_type) in error.message
    assert all(name in error.message for name in FAMILIES)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"is_causal": False}, "is_causal"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_scaling": {"type": "made-up", "factor": 2.0}}, "made-up"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"dtype": "float64"}, "float64"),
    ],
)
def test_a_feature_that_is_not_built_is_refused_by_name(fields, named):
    error = refusal({"model_type": "llama"} | SIZES | fields)
    assert error.reason is Reason.MODEL_UNSUPPORTED
    assert named in error.message


@pytest.mark.parametrize("layer_types", [["full_attention"] * 3 + ["chunked_attention"], ["sliding_attention"] * 4])
def test_other_kinds_of_attention_are_refused(layer_types):
    error = refusal({"model_type": "qwen3", "layer_types": layer_types} | SIZES)
    assert error.reason is Reason.MODEL_UNSUPPORTED
    assert layer_types[-1] in error.message


@pytest.mark.parametrize(
    "fields",
    [
        {"hidden_size": "64"},
        {"hidden_size": 0},
        {"hidden_size": None},
        {"num_hidden_layers": -1},
        {"vocab_size": 0},
        {"num_attention_heads": 0},
        {"num_attention_heads": 3, "head_dim": 16, "hidden_size": 63},
        {"head_dim": 15},
        {"head_dim": -16},
        {"rope_theta": "large"},
        {"rope_theta": 0},
        {"rope_scaling": {"rope_type": "llama3"}},
        {"rope_scaling": {"rope_type": "linear", "factor": 0}},
        {"rope_scaling": [1]},
        {"torch_dtype": "float17"},
        {"torch_dtype": 7},
        {"rms_norm_eps": None},
    ],
    ids=str,
)
def test_values_that_no_model_can_have_are_broken(fields):
    error = refusal({"model_type": "llama"} | SIZES | fields)
    assert error.reason in (Reason.MODEL_BROKEN, Reason.MODEL_UNSUPPORTED)
    assert "config.json" in error.message
    assert "\n" not in error.message


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_a_config_that_is_no_json_object_is_broken(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ShardError, match=r"config\.json must be a JSON object") as error:
        ModelSpec.from_folder(tmp_path)
    assert error.value.reason is Reason.MODEL_BROKEN


def test_a_folder_without_a_config_is_broken(tmp_path):
    with pytest.raises(ShardError, match=r"config\.json") as error:
        ModelSpec.from_folder(tmp_path)
    assert error.value.reason is Reason.MODEL_BROKEN
