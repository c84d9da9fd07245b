"""Models of the workloads' shapes with random weights, made on the device: no hub, and nothing on a disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from drillcore_kernels import select_ops
from drillcore_server.models.decoder import Decoder
from drillcore_server.models.spec import ModelSpec
from drillcore_server.models.weights import Parameter, build_weights

_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14_336,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": _LLAMA3_ROPE,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    },
    "qwen3-0.6b": {
        "model_type": "qwen3",
        "num_hidden_layers": 28,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151_936,
        "max_position_embeddings": 40_960,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    },
    "tiny": {
        "model_type": "llama",
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "vocab_size": 256,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "tie_word_embeddings": False,
        "dtype": "float32",
    },
}
"""config.json of each shape."""
MAX_POSITIONS = 4096
_STANDARD_DEVIATION = 0.02
_EMBEDDING_DEVIATION = 1.0
_RESIDUAL_OUTPUTS = ("o_proj.weight", "down_proj.weight")
_NUM_FILES = 8


@dataclass(frozen=True)
class RandomModel:
    """A decoder with all of its blocks, and its weights under the names of a checkpoint."""

    name: str
    decoder: Decoder
    tensors: dict[str, torch.Tensor]
    """Views of the decoder's packed parameters."""

    @property
    def config(self) -> dict[str, Any]:
        """Its config.json."""
        return CONFIGS[self.name]

    @property
    def num_parameters(self) -> int:
        """Of everything that is loaded."""
        return sum(tensor.numel() for tensor in self.tensors.values())


def make_model(name: str, device: torch.device) -> RandomModel:
    """Draws the weights: norms around 1, everything else around 0. The same ones on each run of a device.

    Embeddings are of size 1 and what is added to the residual stream is scaled by 1 / sqrt(2 L) (Radford et al. 2019,
    section 2.3), so that rounding is not amplified from block to block and parity can tell a wrong state from a
    rounded one, as it can in a trained model.
    """
    spec = ModelSpec.from_config(CONFIGS[name])
    dtype = spec.dtype
    generator = torch.Generator(device).manual_seed(0)
    tensors: dict[str, torch.Tensor] = {}

    def make(parameter: Parameter) -> torch.Tensor:
        values = torch.empty(parameter.shape, dtype=dtype, device=device)
        key = parameter.pieces[0].key
        values.normal_(float(key.endswith("norm.weight")), _deviation(key, spec.num_layers), generator=generator)
        for piece in parameter.pieces:
            tensors[piece.key] = values[piece.first_row : piece.first_row + piece.num_rows]
        return values

    weights = build_weights(spec, make, num_layers=spec.num_layers, final_norm=True, lm_head=True)
    cos, sin = spec.rope.tables(MAX_POSITIONS, device)
    return RandomModel(name, Decoder(spec, weights, select_ops(device, dtype), cos, sin), tensors)


def _deviation(key: str, num_layers: int) -> float:
    if key == "model.embed_tokens.weight":
        return _EMBEDDING_DEVIATION
    return _STANDARD_DEVIATION / (2 * num_layers) ** 0.5 if key.endswith(_RESIDUAL_OUTPUTS) else _STANDARD_DEVIATION


def write_model_folder(model: RandomModel, folder: Path) -> None:
    """Writes the model as a hub would have it: config, weights in several files, and a tokenizer of single words."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model.config))
    keys = list(model.tensors)
    weight_map = {}
    for number in range(_NUM_FILES):
        name = f"model-{number + 1:05d}-of-{_NUM_FILES:05d}.safetensors"
        part = {key: model.tensors[key].cpu().contiguous() for key in keys[number::_NUM_FILES]}
        save_file(part, folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(part, name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    words = Tokenizer(WordLevel({"<unk>": 0, "<s>": 1}, unk_token="<unk>"))
    words.save(str(folder / "tokenizer.json"))
    tokenizer_config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
