"""Each example job is one that can be run, and its comments name commands and pages that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drillcore_spec import load_job
from drillcore_spec.features import refuse_unbuilt

ROOT = Path(__file__).parents[2]
JOBS = sorted((ROOT / "examples/jobs").glob("*.yaml"))


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_asks_for_what_is_built_and_for_data_that_is_there(path):
    job = load_job(path)

    refuse_unbuilt(job.spec)
    claim, _, name = job.spec.dataset.uri.removeprefix("pvc://").partition("/")
    assert claim == "datasets"
    assert path.stem == "cluster" or (ROOT / "examples/data" / name).is_file()


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_the_files_that_a_job_names_in_its_comments_exist(path):
    text = path.read_text()
    for named in re.findall(r"\b(?:docs|examples)/[\w./-]+\w", text):
        assert (ROOT / named).is_file(), named
