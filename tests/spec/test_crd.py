"""What is made from the models is up to date, and the command that makes it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from drillcore_spec.crd import GENERATED, main, write_generated
from drillcore_spec.resource_definition import CRD_NAME, chart_template, custom_resource_definition

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", GENERATED)
def test_a_generated_file_is_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text() == GENERATED[path](), "run `make crd` and commit the result"


def test_the_command_prints_the_crd(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == custom_resource_definition()


def test_the_command_refuses_other_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 2
    assert "usage:" in capsys.readouterr().err


def test_writing_makes_every_generated_file(tmp_path: Path) -> None:
    for path in GENERATED:
        (tmp_path / path).parent.mkdir(parents=True)
    write_generated(tmp_path)
    for path in GENERATED:
        assert (tmp_path / path).read_text() == (ROOT / path).read_text()


def test_the_template_is_the_crd_once_its_guards_are_gone() -> None:
    lines = [line for line in chart_template().splitlines() if not line.strip().startswith("{{-")]
    definition = yaml.safe_load("\n".join(lines))
    assert definition["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert definition == custom_resource_definition()


def test_nothing_in_the_template_reads_as_a_template_by_mistake() -> None:
    guards = [line.strip() for line in chart_template().splitlines() if "{{" in line]
    assert len(guards) == 5
    assert all(line.startswith("{{-") for line in guards)


def test_the_crd_fits_the_annotation_of_kubectl_apply() -> None:
    assert len(yaml.safe_dump(custom_resource_definition())) < 262_144


def test_the_resource_has_its_names() -> None:
    definition = custom_resource_definition()
    assert definition["metadata"]["name"] == CRD_NAME == "extractionjobs.drillcore.dev"
    assert definition["spec"]["names"]["shortNames"] == ["exj"]
