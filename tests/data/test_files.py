from pathlib import Path

import pytest

from drillcore_server.data.files import find_local_files
from drillcore_server.data.formats import resolve_format
from drillcore_server.errors import ShardError
from drillcore_server.volumes import Volumes
from drillcore_spec.enums import DatasetFormat
from drillcore_spec.reasons import Reason

NOWHERE = Volumes(Path("/nowhere"))


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}\n")


def _names(folder: Path, pattern: str) -> list[str]:
    return [file.name for file in find_local_files(f"file://{folder}/{pattern}", None, NOWHERE)]


def test_files_of_a_pattern_are_sorted_by_name(tmp_path: Path) -> None:
    _touch(tmp_path, "b.jsonl", "a.jsonl", "B.jsonl", "a-10.jsonl", "a-9.jsonl", "other.txt")
    assert _names(tmp_path, "*.jsonl") == ["B.jsonl", "a-10.jsonl", "a-9.jsonl", "a.jsonl", "b.jsonl"]


def test_two_stars_reach_into_folders_and_names_start_at_the_fixed_part(tmp_path: Path) -> None:
    _touch(tmp_path, "data/x/1.jsonl", "data/y/z/0.jsonl", "data/2.jsonl")
    assert _names(tmp_path, "data/**/*.jsonl") == ["2.jsonl", "x/1.jsonl", "y/z/0.jsonl"]


def test_a_folder_stands_for_its_dataset_files(tmp_path: Path) -> None:
    _touch(tmp_path, "a.jsonl", "b.ndjson", "README.md", "deeper/c.jsonl")
    assert _names(tmp_path, "") == ["a.jsonl", "b.ndjson"]


def test_a_name_with_glob_characters_that_exists_is_taken_literally(tmp_path: Path) -> None:
    _touch(tmp_path, "rows[1].jsonl", "rows1.jsonl")
    assert _names(tmp_path, "rows[1].jsonl") == ["rows[1].jsonl"]


def test_folders_that_match_are_no_files(tmp_path: Path) -> None:
    _touch(tmp_path, "a.jsonl", "trap.jsonl/inner.txt")
    assert _names(tmp_path, "*.jsonl") == ["a.jsonl"]


def test_a_claim_is_a_folder_under_the_volumes(tmp_path: Path) -> None:
    _touch(tmp_path, "claim/set/a.jsonl", "elsewhere/set/b.jsonl")
    root = Volumes(tmp_path)
    mounted = Volumes(tmp_path, {"claim": tmp_path / "elsewhere"})
    assert [file.name for file in find_local_files("pvc://claim/set/*.jsonl", None, root)] == ["a.jsonl"]
    assert [file.name for file in find_local_files("pvc://claim/set/*.jsonl", None, mounted)] == ["b.jsonl"]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("missing.jsonl", "holds other.txt"),
        ("missing/*.jsonl", "does not exist"),
        ("*.parquet", "nothing matches"),
        ("", "holds no .jsonl"),
    ],
)
def test_nothing_found_says_what_is_there(tmp_path: Path, pattern: str, said: str) -> None:
    _touch(tmp_path, "other.txt")
    with pytest.raises(ShardError, match=r"spec\.dataset\.uri") as caught:
        _names(tmp_path, pattern)
    assert caught.value.reason is Reason.DATASET_NOT_FOUND
    assert said in caught.value.message


def test_a_name_that_no_message_could_hold_is_refused(tmp_path: Path) -> None:
    _touch(tmp_path, "a\nb.jsonl")
    with pytest.raises(ShardError, match="printable UTF-8") as caught:
        _names(tmp_path, "*.jsonl")
    assert caught.value.reason is Reason.BAD_DATASET


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", DatasetFormat.JSONL),
        ("a.JSONL.gz", DatasetFormat.JSONL),
        ("a.json", DatasetFormat.JSONL),
        ("a.parquet", DatasetFormat.PARQUET),
        ("a.arrow", DatasetFormat.ARROW),
    ],
)
def test_auto_goes_by_the_name(name: str, expected: DatasetFormat) -> None:
    assert resolve_format(DatasetFormat.AUTO, [name]) is expected


def test_a_format_that_is_set_is_not_guessed() -> None:
    assert resolve_format(DatasetFormat.JSONL, ["rows.txt"]) is DatasetFormat.JSONL
    with pytest.raises(ShardError, match=r"rows\.txt.*set the format"):
        resolve_format(DatasetFormat.AUTO, ["rows.txt"])


def test_two_formats_are_refused_with_one_file_of_each() -> None:
    with pytest.raises(ShardError, match=r"a\.jsonl.*b\.parquet"):
        resolve_format(DatasetFormat.AUTO, ["a.jsonl", "b.parquet"])
