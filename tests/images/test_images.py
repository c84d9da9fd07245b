"""What the images are made of, as far as it shows without building them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import drillcore

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SELF_TEST = ROOT / "charts" / "drillcore" / "templates" / "self-test.yaml"
TIMEOUT_S = 240


def _stage(name: str) -> str:
    return re.search(rf"^FROM \S+ AS {name}$(.*?)(?=^FROM |\Z)", DOCKERFILE, re.DOTALL | re.MULTILINE)[1]


@pytest.mark.parametrize("target", ["operator", "server", "sidecar"])
def test_an_image_is_not_root_and_installs_the_code_last(target):
    stage = _stage(target)
    assert "USER 65532:65532" in stage
    commands = [line for line in stage.splitlines() if line.startswith(("RUN", "COPY"))]
    assert commands[-1] == "RUN pip install --no-deps /build/wheel/*.whl"
    assert "--only-binary :all:" in stage


@pytest.mark.parametrize("target", ["operator", "sidecar"])
def test_no_compiler_is_where_nothing_is_compiled(target):
    assert "apt-get" not in _stage(target) + _stage("base")


def test_the_base_is_pinned_and_can_be_replaced():
    assert re.search(r"^ARG BASE=python:3\.11-slim-bookworm$", DOCKERFILE, re.MULTILINE)
    assert DOCKERFILE.count("FROM ${BASE}") == 1


@pytest.mark.parametrize("extras", [["operator"], ["sidecar"], ["server", "kernels"]])
def test_requirements_are_the_base_and_the_extras(extras):
    script = [sys.executable, ROOT / "images" / "requirements.py", *extras]
    lines = subprocess.run(script, capture_output=True, text=True, check=True).stdout.splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "pydantic>=2.11,<3" in lines
    assert all(requirement in lines for extra in extras for requirement in project["optional-dependencies"][extra])
    if extras != ["server", "kernels"]:
        assert not any(line.startswith(("torch", "triton", "transformers")) for line in lines)


def test_everything_that_is_copied_is_let_into_the_build():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert source.split("/")[0] in allowed
            assert (ROOT / source).exists()


@pytest.mark.e2e
def test_the_self_test_job_runs_with_the_images_model_and_rows(tmp_path):
    model = tmp_path / "model"
    subprocess.run([sys.executable, ROOT / "images" / "make_self_test_model.py", model], check=True, timeout=TIMEOUT_S)
    assert all(file.stat().st_mode & 0o044 == 0o044 for file in model.iterdir()), "the image's user is not its builder"
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(_self_test_job(model)))
    command = [sys.executable, "-m", "drillcore_server.cli", "run", "job.yaml", "--output", "out", "--json"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert run.returncode == 0, run.stdout + run.stderr
    output = drillcore.open(tmp_path / "out")
    assert len(output) == 8
    assert output[0].hidden_states.shape[1:] == (4, 32)


def _self_test_job(model: Path) -> dict:
    """The job in the chart's template, with the files of this checkout."""
    text = next(part for part in SELF_TEST.read_text().split("\n---\n") if "kind: ExtractionJob" in part)
    text = re.sub(r"\{\{-? (include|with|else|end|toYaml).*?\}\}\n?", "", text)
    text = re.sub(r"\{\{.*?\}\}", "x", text)
    spec = text[text.index("spec:") : text.index("  startDeadlineSeconds")]
    spec = spec.replace("/opt/drillcore/self-test/model", str(model))
    spec = spec.replace("/opt/drillcore/self-test", str(ROOT / "images")).replace(
        "images/rows", "images/self_test_rows"
    )
    return {
        "apiVersion": "drillcore.dev/v1alpha1",
        "kind": "ExtractionJob",
        "metadata": {"name": "self-test"},
        **yaml.safe_load(spec),
    }
