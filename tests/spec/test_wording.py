"""Each way in which pydantic can refuse a job has words of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from drillcore_spec import SpecError
from drillcore_spec.errors import Source
from drillcore_spec.load import validate_job

JobData = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"dataset": {"split": 3}}, "spec.dataset.split: expected text; got 3 (write it in quotes)"),
        ({"dataset": {"split": ["a"]}}, "spec.dataset.split: expected text; got a list of 1"),
        ({"dataset": {"split": ""}}, "spec.dataset.split: expected a length of at least 1; got 0"),
        ({"dataset": {"split": "x" * 254}}, "spec.dataset.split: expected a length of at most 253; got 254"),
        ({"dataset": {"split": "\ud800"}}, 'spec.dataset.split: expected text; got "\ud800"'),
        ({"dataset": {"maxSamples": "3"}}, 'spec.dataset.maxSamples: expected an integer; got "3"'),
        ({"dataset": {"maxSamples": True}}, "spec.dataset.maxSamples: expected an integer; got true"),
        ({"dataset": {"maxSamples": 2.0}}, "spec.dataset.maxSamples: expected an integer; got 2.0"),
        ({"dataset": {"maxSamples": 2**80}}, "spec.dataset.maxSamples: expected at most 1099511627775; got 12089"),
        ({"extraction": {"finalNorm": "yes"}}, 'spec.extraction.finalNorm: expected true or false; got "yes"'),
        ({"extraction": {"finalNorm": 1}}, "spec.extraction.finalNorm: expected true or false; got 1"),
        ({"extraction": {"layers": 3}}, "spec.extraction.layers: expected a list; got 3"),
        ({"extraction": {"layers": []}}, "spec.extraction.layers: expected a length of at least 1; got 0"),
        (
            {"extraction": {"layers": list(range(257))}},
            "spec.extraction.layers: expected a length of at most 256; got 257",
        ),
        ({"generation": {"topP": 2}}, "spec.generation.topP: expected at most 1; got 2"),
        ({"generation": {"topP": "1"}}, 'spec.generation.topP: expected a number; got "1"'),
        ({"generation": {"topP": float("nan")}}, "spec.generation.topP: expected a finite number; got NaN"),
        ({"generation": {"topP": float("inf")}}, "spec.generation.topP: expected a finite number; got Infinity"),
        ({"model": {"dtype": "int8"}}, "spec.model.dtype: expected 'Auto', 'Float32', 'Float16' or 'BFloat16';"),
        ({"model": {"dtype": 8}}, "spec.model.dtype: expected 'Auto', 'Float32', 'Float16' or 'BFloat16'; got 8"),
        ({"podTemplate": {"labels": []}}, "spec.podTemplate.labels: expected a mapping; got an empty list"),
        (
            {"podTemplate": {"labels": {str(i): "" for i in range(33)}}},
            "spec.podTemplate.labels: expected a length of at most 32; got 33",
        ),
        ({"podTemplate": {"env": [3]}}, "spec.podTemplate.env[0]: expected a mapping; got 3"),
        (
            {"dataset": {"chatTemplateKwargs": {"a": "{"}}},
            """spec.dataset.chatTemplateKwargs.a: expected JSON text, such as "false" or "\\"high\\""; got '{'""",
        ),
        ({"output": {"claimName": "A_b"}}, "spec.output.claimName: expected the name of a Kubernetes object"),
        ({"output": {"zzz": 1}}, "spec.output.zzz: expected a known field; got 'zzz'"),
    ],
    ids=str,
)  # fmt: skip
def test_an_error_says_what_was_expected_and_what_was_got(
    change: dict[str, Any], expected: str, job_data: JobData
) -> None:
    with pytest.raises(SpecError) as error:
        validate_job(job_data(spec=change), Source(""))
    (problem,) = error.value.problems
    assert str(problem).startswith(expected)
    assert "expected another value" not in str(problem)
