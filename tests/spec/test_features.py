"""What is not built is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from drillcore_spec import SpecError, read_job, refuse_unbuilt
from drillcore_spec.errors import Source
from drillcore_spec.features import UNBUILT
from drillcore_spec.load import validate_job

JobData = Callable[..., dict[str, Any]]
EVERYTHING: dict[str, Any] = {
    "dataset": {
        "uri": "hf://org/data",
        "format": "Parquet",
        "chatTemplate": "file:///a.jinja",
        "chatTemplateKwargs": {"a": "1"},
    },
    "engine": {"tensorParallelSize": 2},
    "server": {"resources": {"gpus": 2}},
}


def test_a_job_of_what_is_built_passes(job_data: JobData) -> None:
    refuse_unbuilt(validate_job(job_data(), Source("")).spec)


def test_every_unbuilt_feature_is_refused_with_its_field(job_data: JobData) -> None:
    with pytest.raises(SpecError) as error:
        refuse_unbuilt(validate_job(job_data(spec=EVERYTHING), Source("")).spec)
    assert {problem.location for problem in error.value.problems} == {row.field for row in UNBUILT}


def test_the_refusal_tells_file_line_and_value(tmp_path: Path, job_data: JobData) -> None:
    path = tmp_path / "job.yaml"
    change = {"engine": {"tensorParallelSize": 2}, "server": {"resources": {"gpus": 2}}}
    path.write_text(yaml.safe_dump(job_data(spec=change), sort_keys=False))
    job, source = read_job(path)
    line = path.read_text().splitlines().index("    tensorParallelSize: 2") + 1
    with pytest.raises(SpecError) as error:
        refuse_unbuilt(job.spec, source)
    assert str(error.value) == (
        f"{path}:{line}: spec.engine.tensorParallelSize: expected 1; got 2, which this version cannot do"
    )
