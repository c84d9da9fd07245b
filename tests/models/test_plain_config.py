"""A config.json read without transformers' classes means what it means to them."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.errors import ShardError
from drillcore_server.models import spec as spec_module
from drillcore_server.models.plain_config import plain_config
from drillcore_server.models.spec import ModelSpec
from drillcore_spec.reasons import Reason

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SIZES = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 3,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "torch_dtype": "bfloat16",
}
NO_WINDOW = {"sliding_window": 32768, "use_sliding_window": False, "max_window_layers": 2}
CONFIGS = {
    "llama-3.1": SIZES
    | {"model_type": "llama", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
    | {"rope_scaling": LLAMA3_ROPE, "rope_theta": 500000.0, "eos_token_id": [128001, 128008], "pretraining_tp": 1},
    "llama, as transformers 5 writes it": SIZES
    | {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": 64}
    | {"rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}, "dtype": "float16"},
    "llama-2": SIZES | {"model_type": "llama", "rope_theta": 10000.0, "rope_scaling": None},
    "mistral": SIZES
    | {"model_type": "mistral", "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False},
    "qwen2.5": SIZES | NO_WINDOW | {"model_type": "qwen2", "rope_theta": 1000000, "tie_word_embeddings": True},
    "qwen3": SIZES
    | NO_WINDOW
    | {"model_type": "qwen3", "attention_bias": False, "head_dim": 128, "tie_word_embeddings": True}
    | {"rope_scaling": None, "rope_theta": 1000000, "sliding_window": None},
}
"""The fields of published configs, with fewer layers."""
UNREAD = {"attention_dropout", "eos_token_id", "pretraining_tp", "max_window_layers"}
"""The decoder does not read these: transformers may refuse one that does no harm here."""
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 70_000), st.floats(-2, 1e6), st.sampled_from(["", "float32", "linear"])
)


def outcome(config: dict) -> ModelSpec | Reason:
    try:
        return ModelSpec.from_config(deepcopy(config))
    except ShardError as error:
        return error.reason


def outcome_of_transformers(config: dict) -> ModelSpec | Reason:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spec_module, "plain_config", lambda *_: None)
        return outcome(config)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_needs_no_class_of_transformers(name):
    config = CONFIGS[name]

    assert plain_config(config["model_type"], config) is not None
    assert outcome(config) == outcome_of_transformers(config)
    assert isinstance(outcome(config), ModelSpec)


@pytest.mark.parametrize("name", CONFIGS)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_changed_config_means_what_it_means_to_transformers(name, data):
    config = deepcopy(CONFIGS[name])
    fields = sorted(config.keys() - UNREAD - {"model_type", "num_hidden_layers"})
    target = config
    field = data.draw(st.sampled_from([*fields, "rope_theta", "rope_scaling", "layer_types", "partial_rotary_factor"]))
    if isinstance(config.get(field), dict) and data.draw(st.booleans()):
        target, field = config[field], data.draw(st.sampled_from(sorted(config[field])))
    if data.draw(st.booleans()):
        target.pop(field, None)
    else:
        target[field] = data.draw(VALUES)

    assert outcome(config) == outcome_of_transformers(config)


def test_a_rope_value_of_another_type_is_told():
    config = CONFIGS["llama-3.1"] | {"rope_scaling": LLAMA3_ROPE | {"low_freq_factor": True}}

    assert outcome(config) is Reason.MODEL_BROKEN


def test_a_published_config_is_read_without_torchs_compiler(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama-3.1"]))
    program = (
        "import sys, pathlib, drillcore_server.shard.run\n"
        "from drillcore_server.models.spec import ModelSpec\n"
        "ModelSpec.from_folder(pathlib.Path(sys.argv[1]))\n"
        "heavy = {'torch._dynamo', 'transformers.configuration_utils', 'sympy'} & sys.modules.keys()\n"
        "sys.exit(' '.join(heavy) or 0)"
    )

    result = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stderr) == (0, "")
