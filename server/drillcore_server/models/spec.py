"""The sizes and flags that tell one decoder apart from another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from drillcore_server.errors import ShardError
from drillcore_server.models.families import FAMILIES
from drillcore_server.models.plain_config import SIZE_FIELDS, plain_config
from drillcore_server.models.rope import RopeSpec
from drillcore_spec.reasons import Reason


@dataclass(frozen=True)
class ModelSpec:
    """One model, as its config.json gives it."""

    model_type: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    dtype: torch.dtype
    """The checkpoint's own dtype: what `dtype: Auto` in a job means."""
    norm_eps: float
    rope: RopeSpec
    attention_scale: float
    """Factor on q k^T."""
    windows: tuple[int | None, ...]
    """For each block: how many positions a query sees, itself included; None: all before it."""
    qkv_bias: bool = False
    output_bias: bool = False
    """Bias of the attention's output projection."""
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMSNorm on each query and key head before rope."""
    tied_embeddings: bool = False
    """The output embedding is the input embedding."""

    @classmethod
    def from_folder(cls, folder: Path) -> ModelSpec:
        """The spec of a model folder's config.json.

        Raises:
            ShardError: as `from_config`; MODEL_BROKEN when the file is missing or not a JSON object.
        """
        path = folder / "config.json"
        try:
            config = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise ShardError(
                Reason.MODEL_BROKEN, f"{folder} must be a model folder with a config.json; it has none"
            ) from None
        except (OSError, ValueError) as error:
            raise ShardError(Reason.MODEL_BROKEN, f"{path} must be a JSON object: {error}") from error
        if not isinstance(config, dict):
            raise ShardError(Reason.MODEL_BROKEN, f"{path} must be a JSON object; got {type(config).__name__}")
        return cls.from_config(config)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ModelSpec:
        """The spec of a config.json; fields that it leaves out have transformers' defaults for its `model_type`.

        Raises:
            ShardError: MODEL_UNSUPPORTED for an unknown model type or a feature that is not built;
                MODEL_BROKEN for values that no model can have.
        """
        model_type = config.get("model_type")
        family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
        if model_type is None or family is None:
            raise ShardError(
                Reason.MODEL_UNSUPPORTED,
                f"config.json: `model_type` must be one of {', '.join(sorted(FAMILIES))}; got {model_type!r}",
            )
        _refuse_unbuilt(config)
        full = _with_defaults(model_type, config)
        head_dim = _head_dim(full)
        return cls(
            model_type=model_type,
            num_layers=full.num_hidden_layers,
            hidden_size=full.hidden_size,
            intermediate_size=full.intermediate_size,
            num_heads=full.num_attention_heads,
            num_kv_heads=full.num_key_value_heads,
            head_dim=head_dim,
            vocab_size=full.vocab_size,
            max_position_embeddings=full.max_position_embeddings,
            dtype=full.dtype or torch.float32,
            norm_eps=full.rms_norm_eps,
            rope=RopeSpec.from_config(full, head_dim),
            attention_scale=head_dim**-0.5,
            windows=family.windows(full),
            qkv_bias=family.flag("qkv_bias", full),
            output_bias=family.flag("output_bias", full),
            mlp_bias=family.flag("mlp_bias", full),
            qk_norm=family.qk_norm,
            tied_embeddings=full.tie_word_embeddings,
        )


def _refuse_unbuilt(config: Mapping[str, Any]) -> None:
    """Refuses what a known model type may ask for and the decoder does not do."""
    if config.get("quantization_config"):
        method = config["quantization_config"]
        raise ShardError(
            Reason.MODEL_UNSUPPORTED,
            "config.json: weights must be stored as float32, float16 or bfloat16; got `quantization_config` "
            f"{method.get('quant_method', method) if isinstance(method, dict) else method!r}. "
            "Use the model's unquantised weights",
        )
    for name, built in (("hidden_act", "silu"), ("is_causal", True)):
        if config.get(name, built) != built:
            raise ShardError(Reason.MODEL_UNSUPPORTED, f"config.json: `{name}` must be {built!r}; got {config[name]!r}")


def _completed(model_type: str, config: Mapping[str, Any]) -> Any:
    """The transformers config object, which has a default for everything; its class takes seconds to import."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    fields = {name: deepcopy(value) for name, value in config.items() if name != "model_type"}
    try:
        return CONFIG_MAPPING[model_type](**fields)
    except (StrictDataclassError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise ShardError(Reason.MODEL_BROKEN, f"config.json: {' '.join(str(error).split())}") from error


def _with_defaults(model_type: str, config: Mapping[str, Any]) -> Any:
    """The config with every field that the decoder reads, its sizes checked."""
    full = plain_config(model_type, config) or _completed(model_type, config)
    for name in SIZE_FIELDS:
        if getattr(full, name) < 1:
            raise ShardError(
                Reason.MODEL_BROKEN, f"config.json: `{name}` must be at least 1; got {getattr(full, name)}"
            )
    if full.num_attention_heads % full.num_key_value_heads:
        raise ShardError(
            Reason.MODEL_BROKEN,
            "config.json: `num_attention_heads` must be a multiple of `num_key_value_heads`; "
            f"got {full.num_attention_heads} and {full.num_key_value_heads}",
        )
    if full.dtype not in (None, torch.float32, torch.float16, torch.bfloat16):
        raise ShardError(
            Reason.MODEL_UNSUPPORTED,
            f"config.json: `dtype` must be float32, float16 or bfloat16; got {full.dtype}",
        )
    return full


def _head_dim(full: Any) -> int:
    head_dim: int = getattr(full, "head_dim", None) or full.hidden_size // full.num_attention_heads
    if head_dim < 2 or head_dim % 2:
        raise ShardError(Reason.MODEL_BROKEN, f"config.json: `head_dim` must be even and > 0; got {head_dim}")
    return head_dim
