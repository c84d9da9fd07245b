"""Reads a config.json that leaves nothing open, without transformers' config classes.

Importing one of those classes brings in torch's compiler and distributed packages: six seconds of a shard's start on a
server. Most published configs state every value that the decoder asks for. Those are read here; whatever is missing,
unusual or wrong is for transformers to complete or to refuse, so that there is one judge of what a config means.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

import torch

from drillcore_server.models.families import FAMILIES, WindowRule

SIZE_FIELDS: Final = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
)
"""Each is at least 1."""
_DTYPES: Final = MappingProxyType(
    {str(d).removeprefix("torch."): d for d in (torch.float32, torch.float16, torch.bfloat16)}
)
_LLAMA3_ROPE: Final = frozenset(("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"))


class PlainConfig(SimpleNamespace):
    """The fields of a transformers config that the decoder reads."""

    def standardize_rope_params(self) -> None:
        """Nothing to do: the parameters are in transformers' standard form."""


def plain_config(model_type: str, config: Mapping[str, Any]) -> PlainConfig | None:
    """What transformers would make of `config`; None: it has to be asked.

    Args:
        model_type: one of `FAMILIES`.
        config: the object of a config.json.
    """
    family = FAMILIES[model_type]
    sizes = {name: config.get(name) for name in SIZE_FIELDS}
    # Old configs leave these out, and all of them are false then.
    flags = {name: config.get(name, False) for name in ("tie_word_embeddings", *family.flag_fields)}
    rope, head_dim = _rope_parameters(config), _head_dim(model_type, config)
    dtype, eps = _DTYPES.get(str(config.get("dtype", config.get("torch_dtype")))), config.get("rms_norm_eps")
    states_everything = (
        all(type(size) is int and size > 0 for size in sizes.values())
        and all(type(flag) is bool for flag in flags.values())
        and None not in (rope, head_dim, dtype)
        and type(eps) is float
        and _attends_to_everything(family.window_rule, config)
    )
    if not states_everything:
        return None
    return PlainConfig(
        **sizes,
        **flags,
        rope_parameters=rope,
        head_dim=head_dim,
        dtype=dtype,
        rms_norm_eps=eps,
        sliding_window=None,
        layer_types=("full_attention",) * config["num_hidden_layers"],
    )


def _head_dim(model_type: str, config: Mapping[str, Any]) -> int | None:
    """Stated, or the share of a head where that is the model type's rule."""
    stated, hidden, heads = (config.get(name) for name in ("head_dim", "hidden_size", "num_attention_heads"))
    if type(hidden) is not int or type(heads) is not int or min(hidden, heads) < 1 or hidden % heads:
        return None
    if type(stated) is int and stated > 0:
        return stated
    return hidden // heads if stated is None and model_type != "qwen3" else None


def _rope_parameters(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of the types `default` and `llama3`, in the form of transformers 5 or in the one before."""
    if "partial_rotary_factor" in config or (config.get("rope_scaling") and "rope_parameters" in config):
        return None
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {"rope_type": "default"}
    if not isinstance(parameters, dict):
        return None
    parameters = {"rope_theta": config.get("rope_theta")} | parameters
    if not _is_positive(parameters["rope_theta"]):
        return None
    others = parameters.keys() - {"rope_theta", "rope_type"}
    match parameters.get("rope_type"):
        case "default" if not others:
            return parameters
        case "llama3" if others == _LLAMA3_ROPE and all(_is_positive(parameters[name]) for name in others):
            return parameters
    return None


def _is_positive(value: object) -> bool:
    return type(value) in (int, float) and value > 0  # type: ignore[operator]


def _attends_to_everything(rule: WindowRule, config: Mapping[str, Any]) -> bool:
    """Whether no block has a window, and the config says so."""
    if "layer_types" in config:
        return False
    match rule:
        case WindowRule.EVERY_BLOCK:
            return "sliding_window" in config and config["sliding_window"] is None
        case WindowRule.BY_LAYER_TYPE:
            window = config.get("sliding_window")
            return config.get("use_sliding_window") is False and (window is None or type(window) is int)
    return True
