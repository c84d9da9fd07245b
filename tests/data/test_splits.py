import json
from pathlib import Path

import pytest

from drillcore_server.data.files import find_local_files
from drillcore_server.data.splits import split_of
from drillcore_server.errors import ShardError
from drillcore_server.volumes import Volumes
from drillcore_spec.reasons import Reason


def _names(folder: Path, split: str | None = None) -> list[str]:
    return [file.name for file in find_local_files(f"file://{folder}", split, Volumes(Path("/nowhere")))]


def _save(folder: Path, split: str | None = None, parts: int = 2) -> None:
    """The files that `datasets.Dataset.save_to_disk` leaves."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(json.dumps({"_split": split}))
    (folder / "dataset_info.json").write_text("{}")
    for part in range(parts):
        (folder / f"data-{part:05d}-of-{parts:05d}.arrow").touch()


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("data/train_sft-00000-of-00003-a3ecf92756993583.parquet", "train_sft"),
        ("train.jsonl.gz", "train"),
        ("en/test.v2.jsonl", "test"),
        ("my-data.jsonl", "my-data"),
    ],
)
def test_files_are_named_after_their_split(name: str, split: str) -> None:
    assert split_of(name) == split


def test_a_saved_dataset_is_its_arrow_files(tmp_path: Path) -> None:
    _save(tmp_path, "train")
    expected = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    assert _names(tmp_path) == expected
    assert _names(tmp_path, "train") == expected
    with pytest.raises(ShardError, match=r"one of the splits of .*: train; got 'test'"):
        _names(tmp_path, "test")


def test_a_saved_dataset_that_does_not_know_its_split_is_as_good_as_any(tmp_path: Path) -> None:
    _save(tmp_path)
    assert len(_names(tmp_path, "train")) == 2


def test_a_saved_dictionary_asks_for_one_of_its_splits(tmp_path: Path) -> None:
    _save(tmp_path / "train", "train")
    _save(tmp_path / "test", "test", parts=1)
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    assert _names(tmp_path, "test") == ["data-00000-of-00001.arrow"]
    with pytest.raises(ShardError, match=r"`spec\.dataset\.split` must be .*: test, train; none is chosen") as caught:
        _names(tmp_path)
    assert caught.value.reason is Reason.BAD_DATASET


def test_plain_folders_have_splits_as_folders_or_by_name(tmp_path: Path) -> None:
    (tmp_path / "valid").mkdir()
    for name in ("train-00000-of-00001.parquet", "test.parquet", "valid/a.parquet", "README.md"):
        (tmp_path / name).touch()
    assert _names(tmp_path) == ["test.parquet", "train-00000-of-00001.parquet"]
    assert _names(tmp_path, "train") == ["train-00000-of-00001.parquet"]
    assert _names(tmp_path, "valid") == ["a.parquet"]
    with pytest.raises(ShardError, match="test, train; got 'dev'"):
        _names(tmp_path, "dev")


def test_files_that_are_named_one_by_one_have_no_split(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").touch()
    with pytest.raises(ShardError, match="names files") as caught:
        _names(tmp_path / "train.jsonl", "train")
    assert caught.value.reason is Reason.BAD_SPEC


def test_a_broken_state_file_is_refused(tmp_path: Path) -> None:
    _save(tmp_path)
    (tmp_path / "state.json").write_text("[")
    with pytest.raises(ShardError, match=r"state\.json cannot be read"):
        _names(tmp_path)
