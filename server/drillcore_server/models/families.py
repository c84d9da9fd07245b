"""The model types that the decoder runs, and where each keeps its flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason


class WindowRule(Enum):
    """Which blocks use the config's `sliding_window`."""

    NEVER = "never"
    EVERY_BLOCK = "every-block"
    BY_LAYER_TYPE = "by-layer-type"
    """Those whose entry of `layer_types` is `sliding_attention`."""


@dataclass(frozen=True)
class Family:
    """The flags of one `model_type`: a value, or the name of the config field that holds it.

    Source: the `modeling_*.py` of each model type in transformers 5.17.
    """

    qkv_bias: bool | str = False
    output_bias: bool | str = False
    mlp_bias: bool | str = False
    qk_norm: bool = False
    window_rule: WindowRule = WindowRule.NEVER

    def flag(self, name: str, config: Any) -> bool:
        """The value of a flag for this config."""
        value = getattr(self, name)
        return bool(getattr(config, value) if isinstance(value, str) else value)

    @property
    def flag_fields(self) -> frozenset[str]:
        """The config fields that hold flags of this model type."""
        return frozenset(f for f in (self.qkv_bias, self.output_bias, self.mlp_bias) if isinstance(f, str))

    def windows(self, config: Any) -> tuple[int | None, ...]:
        """For each block, how many positions a query sees, itself included; None: all before it.

        Raises:
            ShardError: MODEL_UNSUPPORTED for a layer type of another kind of attention.
        """
        num_layers: int = config.num_hidden_layers
        match self.window_rule:
            case WindowRule.NEVER:
                return (None,) * num_layers
            case WindowRule.EVERY_BLOCK:
                window: int | None = config.sliding_window
                return (window,) * num_layers
            case WindowRule.BY_LAYER_TYPE:
                return tuple(_window(layer_type, config.sliding_window) for layer_type in config.layer_types)


def _window(layer_type: str, sliding_window: int | None) -> int | None:
    if layer_type == "full_attention":
        return None
    if layer_type == "sliding_attention" and sliding_window is not None:
        return sliding_window
    raise ShardError(
        Reason.MODEL_UNSUPPORTED,
        "config.json: `layer_types` must hold full_attention, or sliding_attention with a `sliding_window`; "
        f"got {layer_type!r} with sliding_window {sliding_window}",
    )


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": Family(qkv_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias"),
        "mistral": Family(window_rule=WindowRule.EVERY_BLOCK),
        "qwen2": Family(qkv_bias=True, window_rule=WindowRule.BY_LAYER_TYPE),
        "qwen3": Family(
            qkv_bias="attention_bias",
            output_bias="attention_bias",
            qk_norm=True,
            window_rule=WindowRule.BY_LAYER_TYPE,
        ),
    }
)
"""By `model_type` in config.json. SmolLM2, TinyLlama, Yi, DeepSeek-LLM and others are `llama`."""
