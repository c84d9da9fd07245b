"""Conditions between fields, tried on the cases that the API server is tried on too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drillcore_spec import ExtractionJob, SpecError
from drillcore_spec.base import SpecModel
from drillcore_spec.errors import Source
from drillcore_spec.fields import walk
from drillcore_spec.load import validate_job
from drillcore_spec.rules import Got, Rule

CASES = yaml.safe_load((Path(__file__).parent / "rule_cases.yaml").read_text())["cases"]
JobData = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_rule_decides_and_says_why(case: dict[str, Any], job_data: JobData) -> None:
    data = job_data(**case["change"])
    if "refused" not in case:
        validate_job(data, Source(""))
        return
    with pytest.raises(SpecError) as error:
        validate_job(data, Source(""))
    assert str(error.value) == case["refused"]


def all_rules() -> Iterator[Rule]:
    models: set[type[SpecModel]] = {ExtractionJob}
    models |= {entry.model for entry in walk(ExtractionJob) if entry.model is not None}
    for model in models:
        yield from model.rules


def test_every_rule_has_a_case_that_it_refuses() -> None:
    refused = [case["refused"] for case in CASES if "refused" in case]
    untried = {rule.message for rule in all_rules() if not any(rule.message in text for text in refused)}
    assert untried == set()


def test_every_broken_rule_of_an_object_is_listed(job_data: JobData) -> None:
    data = job_data(spec={"parallelism": 9, "ring": {"size": "64Gi"}, "output": {"subPath": "a/.."}})
    with pytest.raises(SpecError) as error:
        validate_job(data, Source(""))
    assert len(error.value.problems) == 1, "rules of the spec wait until its objects are whole"
    data = job_data(spec={"parallelism": 9, "ring": {"size": "64Gi"}})
    with pytest.raises(SpecError) as error:
        validate_job(data, Source(""))
    assert [problem.location for problem in error.value.problems] == [("spec", "parallelism"), ("spec", "ring")]


def test_a_message_with_braces_and_percent_signs_stays_as_it_is() -> None:
    rule = Rule("true", lambda _: False, "100% of {it}, don't ask", got=Got("%s", ("self.x",), lambda x: (x,)))
    assert rule.message_for("{y}") == "expected 100% of {it}, don't ask; got {y}"
    assert rule.message_cel == r"'expected 100%% of {it}, don\'t ask; got %s'.format([self.x])"
