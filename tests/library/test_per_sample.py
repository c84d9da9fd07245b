"""Layout PerSample: a file a row beside the same journals, indexes and commits."""

import os
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

import drillcore
from drillcore.cleaning import clean_shard
from drillcore.dtypes import StoreDType
from drillcore.part_schema import PartSchema
from drillcore.recover import recover

LATER_S = 10**10
"""A time at which every file of the test is old."""


@pytest.fixture
def maker(make):
    return make(layout="PerSample")


def sample(maker, row):
    return maker.layout.shard(0).sample(row)


def damage(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_each_row_has_a_file_with_exactly_its_states_and_tokens(make):
    maker = make(layout="PerSample", store_dtype=StoreDType.BF16)
    maker.shard([range(0, 10, 2), range(1, 10, 2)], quarantined=[10], loss_mask=True)
    maker.complete()
    assert sorted(path.name for path in maker.layout.samples.iterdir()) == [
        f"hs_{row}.safetensors" for row in range(10)
    ]
    for row in range(10):
        tensors = load_file(sample(maker, row))
        assert sorted(tensors) == ["hidden_states", "token_ids"]
        assert tensors["hidden_states"].tobytes() == maker.row(row).states.tobytes()
        np.testing.assert_array_equal(tensors["token_ids"], maker.row(row).token_ids)
    assert drillcore.verify(maker.root).ok


@pytest.mark.parametrize("committed", [True, False])
def test_an_output_reads_the_same_in_both_layouts(make, committed):
    maker = make(layout="PerSample", shard_count=2)
    maker.shard([range(0, 8, 2), range(1, 8, 2)], loss_mask=True)
    maker.shard([range(8, 12)], shard=1, loss_mask=True, commit=committed)
    output = drillcore.open(maker.root, allow_incomplete=not committed)
    assert output.rows.tolist() == list(range(12))
    for stored in output:
        expected = maker.row(stored.row, loss_mask=True)
        assert stored.hidden_states.tobytes() == expected.states.tobytes()
        assert stored.layer(0).tobytes() == expected.states[:, 1].tobytes()
        assert stored.token_ids.tolist() == expected.token_ids.tolist()
        assert stored.loss_mask.tolist() == expected.loss_mask.tolist()
        assert stored.positions.tolist() == list(range(len(expected.token_ids)))
        assert (stored.id, stored.last_token) == (expected.id, expected.end.last_token)
    assert output.by_row(9).row == 9
    files = [*maker.layout.samples.iterdir(), *maker.root.rglob("part-*.safetensors")]
    assert output.counts.bytes == sum(path.stat().st_size for path in files)


def test_sizes_are_those_that_the_schema_foretells(maker):
    info = maker.part(range(9), loss_mask=True)
    rows = [maker.row(row) for row in range(9)]
    tokens = sum(len(row.token_ids) for row in rows)
    id_bytes = sum(len((row.id or "").encode()) for row in rows)
    foretold = PartSchema.of(maker.manifest).part_bytes(
        samples=9, tokens=tokens, states=tokens, id_bytes=id_bytes, loss_mask=True
    )
    assert info.total_bytes == foretold


def test_a_file_that_is_there_stays_and_the_part_lists_it(make):
    maker = make(layout="PerSample")
    maker.claim()
    theirs = maker.part([4], attempt="00000001")
    before = sample(maker, 4).read_bytes()
    ours = maker.part([3, 4, 5], attempt="00000002")
    assert sample(maker, 4).read_bytes() == before
    maker.journal([ours], attempt="00000002")
    recovered = recover(maker.layout.shard(0), maker.manifest)
    assert recovered.rows.tolist() == [3, 4, 5]
    assert theirs.sample_bytes == len(before)
    assert not list(maker.root.rglob("*.tmp"))


def test_a_file_of_another_run_keeps_its_own_generated_tokens_and_statistics(maker, monkeypatch):
    """The states of two runs may differ, and on a device so may what they sample: the file that stays is described."""
    maker.claim()
    row = maker.row(4, loss_mask=True)
    prompt = row.token_ids[:-1]
    longer = type(row)(
        4, row.id, np.append(prompt, [9, 8, 7]), np.ones((len(prompt) + 3, 3, 8), np.float32), None, None
    )
    monkeypatch.setattr(type(maker), "row", lambda self, number, loss_mask=False: longer)
    maker.part([4])
    monkeypatch.undo()
    info = maker.part([4], attempt="00000002", loss_mask=True)
    maker.journal([info], attempt="00000002")
    stored = drillcore.open(maker.root, allow_incomplete=True)[0]
    assert stored.token_ids.tolist() == [*prompt.tolist(), 9, 8, 7]
    assert stored.hidden_states.tobytes() == longer.states.tobytes()
    assert stored.loss_mask.tolist() == [*row.loss_mask.tolist()[: len(row.token_ids)], 1, 1]
    assert info.norm_sums == pytest.approx([np.sqrt(8) * len(longer.token_ids)] * 3)
    assert info.max_abs == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("harm", ["bit", "torn", "foreign", "prompt"])
def test_a_file_that_is_not_what_was_written_is_replaced(maker, harm):
    maker.claim()
    maker.part([4])
    path = sample(maker, 4)
    if harm == "bit":
        damage(path)
    elif harm == "torn":
        path.write_bytes(path.read_bytes()[:-8])
    elif harm == "foreign":
        maker.vary(max_model_len=32).part([5])
        shutil.copy(sample(maker, 5), path)
    else:
        maker.part([5])
        shutil.copy(sample(maker, 5), path)
    maker.journal([maker.part([4], attempt="00000002")], attempt="00000002")
    assert recover(maker.layout.shard(0), maker.manifest).rows.tolist() == [4]
    assert load_file(path)["hidden_states"].tobytes() == maker.row(4).states.tobytes()


@pytest.mark.parametrize("harm", [damage, os.unlink])
def test_a_damaged_file_is_found_and_its_part_computed_again(maker, harm):
    maker.shard([range(3), range(3, 6)], commit=False)
    harm(sample(maker, 4))
    recovered = recover(maker.layout.shard(0), maker.manifest)
    assert recovered.rows.tolist() == [0, 1, 2]
    assert re.search(r"hs_4\.safetensors", str(recovered.dropped[0]))
    maker.shard([range(3, 6)], attempt="00000002", commit=False)
    assert recover(maker.layout.shard(0), maker.manifest).rows.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("harm", [damage, os.unlink])
def test_verify_names_the_file_that_is_wrong(maker, harm):
    maker.shard([range(6)])
    harm(sample(maker, 4))
    report = drillcore.verify(maker.root)
    assert len(report.problems) == 1
    assert "hs_4.safetensors" in report.problems[0]


def test_reading_refuses_a_file_of_another_row(maker):
    maker.shard([range(6)])
    shutil.copy(sample(maker, 3), sample(maker, 4))
    output = drillcore.open(maker.root)
    with pytest.raises(drillcore.FormatError, match=r"hs_4\.safetensors: holds other tokens"):
        output.by_row(4)


def test_clean_finds_files_that_no_part_lists_once_no_attempt_is_at_work(maker):
    maker.shard([range(4)])
    maker.part([6, 7], attempt="00000002")
    shard = maker.layout.shard(0)
    shard.part(0, "00000002").unlink()
    shard.unpublished_sample(0, 0, "00000002").write_bytes(bytes(10))
    (maker.layout.samples / "notes.txt").write_text("mine")
    assert drillcore.clean(maker.root, now_s=shard.commit.stat().st_mtime).files == ()
    report = drillcore.clean(maker.root, remove=True, now_s=LATER_S)
    assert sorted(path.name for path in report.files) == [
        "hs_6.safetensors", "hs_7.safetensors", "sample-00000-0-00000002.safetensors.tmp"
    ]  # fmt: skip
    assert (maker.layout.samples / "notes.txt").exists()
    assert drillcore.verify(maker.root).ok


def test_a_resume_removes_what_crashed_attempts_were_building_and_no_sample(maker):
    maker.shard([range(2)], commit=False)
    shard = maker.layout.shard(0)
    shard.unpublished_sample(1, 5, "00000002").write_bytes(bytes(10))
    maker.part([9], attempt="00000003")
    assert clean_shard(shard, now_s=LATER_S) > 10
    assert sample(maker, 9).exists()
    assert not shard.unpublished_sample(1, 5, "00000002").exists()


def test_an_abandoned_part_leaves_no_file_under_construction(maker):
    maker.claim()
    shard = maker.layout.shard(0)
    shard.directory.mkdir(parents=True)
    writer = maker.part_writer(shard, 0, "00000001")
    maker.write(writer, range(40))
    writer.append(memoryview(bytes(96)))
    writer.abandon()
    assert list(shard.directory.iterdir()) == []
    assert all(load_file(path)["token_ids"].size for path in maker.layout.samples.iterdir())


def test_a_refused_sync_of_any_file_ends_the_part(maker, monkeypatch):
    maker.claim()
    shard = maker.layout.shard(0)
    shard.directory.mkdir(parents=True)
    real, calls = os.fsync, iter(range(100))

    def refuse(fd):
        if next(calls) == 5:
            raise OSError(5, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", refuse)
    writer = maker.part_writer(shard, 0, "00000001")
    maker.write(writer, range(8))
    with pytest.raises(drillcore.OutputIOError):
        writer.close()
    writer.abandon()
    assert list(shard.directory.iterdir()) == []


def test_dropped_samples_leave_nothing(maker):
    maker.claim()
    shard = maker.layout.shard(0)
    shard.directory.mkdir(parents=True)
    writer = maker.part_writer(shard, 0, "00000001")
    writer.append(memoryview(bytes(96)))
    writer.drop_sample()
    writer.drop_sample()
    assert writer.close() is None
    assert list(shard.directory.iterdir()) == []


def test_only_positions_all_have_files_of_their_own(make):
    with pytest.raises(drillcore.FormatError, match="`layout` must be Packed with positions Last"):
        drillcore.Manifest.from_json(make(layout="PerSample", positions="Last").manifest.to_json(), make().root)
