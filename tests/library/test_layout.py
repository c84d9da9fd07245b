from pathlib import Path

import pytest

from drillcore.layout import (
    Layout,
    attempt_of,
    is_index,
    is_journal,
    is_part,
    is_quarantine,
    is_temporary,
    new_attempt_id,
    row_of_sample,
    temporary,
)


def test_names_are_those_of_the_format_document():
    shard = Layout(Path("out")).shard(3)
    assert shard.part(0, "5f2c9a10") == Path("out/shards/00003/part-00000-5f2c9a10.safetensors")
    assert shard.journal("5f2c9a10") == Path("out/shards/00003/journal-5f2c9a10.jsonl")
    assert shard.quarantine("5f2c9a10") == Path("out/shards/00003/quarantine-5f2c9a10.jsonl")
    assert shard.sample_index("5f2c9a10") == Path("out/shards/00003/index-5f2c9a10.safetensors")
    assert shard.commit == Path("out/shards/00003/commit.json")


def test_every_file_of_an_attempt_is_known_by_its_name_also_under_construction():
    shard = Layout(Path("out")).shard(0)
    attempt = new_attempt_id()
    files = [
        shard.part(123456, attempt),
        shard.journal(attempt),
        shard.quarantine(attempt),
        shard.sample_index(attempt),
    ]
    kinds = [is_part, is_journal, is_quarantine, is_index]
    for path, kind in zip(files, kinds, strict=True):
        assert [other(path.name) for other in kinds] == [other is kind for other in kinds]
        assert attempt_of(path.name) == attempt == attempt_of(temporary(path).name)
        assert is_temporary(temporary(path).name)
        assert not kind(temporary(path).name)
    assert attempt_of(temporary(shard.commit, attempt).name) == attempt
    assert attempt_of(temporary(shard.sample_index(attempt), attempt).name) == attempt
    assert attempt_of(shard.unpublished_sample(2, 17, attempt).name) == attempt
    assert is_temporary(shard.unpublished_sample(2, 17, attempt).name)
    assert attempt_of("commit.json") is None


def test_the_file_of_a_row_is_the_one_that_trainers_look_for():
    layout = Layout(Path("out"))
    assert layout.shard(3).sample(41) == Path("out/samples/hs_41.safetensors")
    assert row_of_sample(layout.shard(0).sample(2**40 + 7).name) == 2**40 + 7
    for name in (
        "hs_041.safetensors",
        "hs_-1.safetensors",
        "hs_1.safetensors.tmp",
        "x_1.safetensors",
        "hs_.safetensors",
    ):
        assert row_of_sample(name) is None


@pytest.mark.parametrize("name", ["../part-00000-5f2c9a10.safetensors", "part-00000-5F2C9A10.safetensors", ""])
def test_a_name_from_a_file_cannot_leave_the_shard(name):
    assert not is_part(name)
    assert attempt_of(name) is None


def test_attempts_never_share_a_name():
    assert len({new_attempt_id() for _ in range(1000)}) == 1000


def test_only_folders_named_as_shards_below_the_count_are_shards(tmp_path):
    for name in ("00000", "00002", "00007", "1", "notes"):
        (tmp_path / "shards" / name).mkdir(parents=True)
    assert [shard.index for shard in Layout(tmp_path).existing_shards(3)] == [0, 2]
    assert Layout(tmp_path / "nothing").existing_shards(3) == []
