from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drillcore.dtypes import StoreDType
from drillcore.errors import FormatError
from drillcore.manifest import Manifest, ModelIdentity
from drillcore_server.ring.job_file import JobFile

JOB = JobFile(
    manifest=Manifest(
        engine_version="0.1.0",
        model=ModelIdentity("file:///models/tiny", None, "c" * 64, "d" * 64, "e" * 64),
        dataset={"uri": "file:///data.jsonl", "files": [{"path": "data.jsonl", "bytes": 1}]},
        layers=(3, 1),
        final_norm=True,
        hidden_size=16,
        positions="All",
        dtype=StoreDType.F32,
        store_dtype=StoreDType.BF16,
        generation=None,
        max_model_len=64,
        shard_count=4,
        special_token_ids=(),
    ),
    shard=3,
    first_row=300,
    rows_in=100,
    part_bytes=1 << 30,
    commit_interval_s=60.0,
    size_limit_bytes=None,
)


@pytest.mark.parametrize(
    "changes", [{}, {"rows_in": None, "size_limit_bytes": 7, "max_quarantined_percent": 0.5, "num_writers": 3}]
)
def test_a_job_file_comes_back(tmp_path: Path, changes: dict[str, int | None]) -> None:
    job = replace(JOB, **changes)
    job.write(tmp_path)
    assert JobFile.load(tmp_path) == job
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('"shard": 3', '"shard": -3', "shard"),
        ('"partBytes": 1073741824', '"partBytes": 0', "partBytes"),
        ('"numWriters": 8', '"numWriters": 1000000', "numWriters"),
        ('"rowsIn": 100', '"rowsOut": 100', "rowsIn"),
        ('"BF16"', '"BF8"', "storeDtype"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, old: str, new: str, field: str) -> None:
    JOB.write(tmp_path)
    path = tmp_path / "job.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(FormatError, match=field):
        JobFile.load(tmp_path)


def test_no_job_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"job\.json"):
        JobFile.load(tmp_path)
