"""The pages for each kind of user, and the README: links lead to files, and the settings they show are fields."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from drillcore_spec import ExtractionJob

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *(f"docs/{n}.md" for n in ["draft-models", "sparse-autoencoders", "embeddings", "on-policy", "datasets"]),
]


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_every_file_of_a_command_is_there(page):
    named = re.findall(r"\bexamples/[\w./-]+\.(?:yaml|py)\b", (ROOT / page).read_text())
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if "```yaml" in (ROOT / page).read_text()])
def test_settings_that_are_shown_make_a_job_together_with_the_quickstarts(page):
    base = yaml.safe_load((ROOT / "examples/jobs/quickstart.yaml").read_text())
    for text in re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        shown = yaml.safe_load(text)
        ExtractionJob.from_resource(shown if "kind" in shown else base | {"spec": base["spec"] | shown})
