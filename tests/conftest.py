"""Tiny random models with a tokenizer, their states by transformers, and the criterion of equal states."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

TINY_CONFIG: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 320,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ("<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>")
"""Ids 256 to 260; every byte b is the id b's place in a byte-level alphabet below them."""


class ReferenceStates(NamedTuple):
    """float32 tensors of one sequence of S tokens."""

    residual: list[Any]
    """r_0 .. r_L, each [S, D]."""
    final_norm: Any
    """n_L [S, D]"""
    logits: Any
    """[S, V]"""


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_model_folder("qwen2", tie_word_embeddings=True)`: a folder with random float32 weights and a tokenizer.

    Overrides change `TINY_CONFIG`. The same arguments give the same folder: tests must not write into it.
    """
    made: dict[str, Path] = {}

    def make(model_type: str = "llama", **overrides: Any) -> Path:
        config = TINY_CONFIG | overrides
        key = json.dumps([model_type, config], sort_keys=True)
        if key not in made:
            made[key] = tmp_path_factory.mktemp(model_type)
            _save_random_model(made[key], model_type, config)
            _save_byte_tokenizer(made[key])
        return made[key]

    return make


@pytest.fixture(scope="session")
def reference_states() -> Callable[[Path, list[int]], ReferenceStates]:
    """`reference_states(folder, token_ids)`: transformers with eager attention in float32, by hooks."""
    import torch
    from transformers import AutoModelForCausalLM

    models: dict[Path, Any] = {}

    def states(folder: Path, token_ids: list[int]) -> ReferenceStates:
        if folder not in models:
            models[folder] = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            )
        model, residual, final = models[folder].eval(), [], []
        hooks = [
            module.register_forward_pre_hook(lambda _m, args: residual.append(args[0][0].clone()))
            for module in (*model.model.layers, model.model.norm)
        ]
        hooks.append(model.model.norm.register_forward_hook(lambda _m, _a, out: final.append(out[0].clone())))
        with torch.inference_mode():
            logits = model(torch.tensor([token_ids]), use_cache=False).logits[0]
        for hook in hooks:
            hook.remove()
        return ReferenceStates(residual, final[0], logits)

    return states


@pytest.fixture(scope="session")
def row_criterion() -> Callable[..., None]:
    """`row_criterion(got, reference)`: fails unless ||got - ref|| <= tolerance * ||ref|| in every row [..., D].

    Never a maximum over tokens: one token with a huge state would hide a wrong layer in all others.
    """

    def check(got: Any, reference: Any, tolerance: float = 2e-5) -> None:
        got_rows, reference_rows = _float64(got), _float64(reference)
        assert got_rows.shape == reference_rows.shape
        error = np.linalg.norm(got_rows - reference_rows, axis=-1)
        allowed = tolerance * np.linalg.norm(reference_rows, axis=-1)
        wrong = np.argwhere(~(error <= allowed))
        assert not len(wrong), (
            f"{len(wrong)} of {error.size} rows differ, the first is {wrong[0].tolist()}: "
            f"error {error[tuple(wrong[0])]:.3g}, allowed {allowed[tuple(wrong[0])]:.3g}"
        )

    return check


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The folder of the real demo model."""
    folder = Path(__file__).parents[1] / "volumes/models/smollm2-135m-instruct"
    if not (folder / "config.json").is_file():
        pytest.fail(f"{folder} is not there: run `make demo-model`")
    return folder


@pytest.fixture(scope="session")
def peer_python() -> Path:
    """The interpreter of an environment with speculators, made once and kept under .cache/."""
    folder = Path(__file__).parents[1] / ".cache/speculators-venv"
    python = folder / "bin/python"
    if subprocess.run([python, "-c", "import speculators"], check=False).returncode if python.exists() else True:
        uv = shutil.which("uv")
        make = [uv, "venv", "--allow-existing"] if uv else [sys.executable, "-m", "venv"]
        install = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
        for command in ([*make, folder], [*install, "-r", Path(__file__).parent / "data/peers/requirements.txt"]):
            result = subprocess.run(command, check=False, capture_output=True, text=True)
            if result.returncode != 0:
                report = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
                report(f"speculators cannot be installed: {result.stderr[-300:]}")
    return python


def _float64(values: Any) -> np.ndarray:
    return np.asarray(values.double() if hasattr(values, "double") else values, dtype=np.float64)


def _save_random_model(folder: Path, model_type: str, config: dict[str, Any]) -> None:
    """Random weights of a size that every one of them moves the states: norms and biases too."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **config), dtype=torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)


def _save_byte_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
