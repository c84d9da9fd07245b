from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import drillcore
from drillcore.part_file import PartFile
from drillcore.part_info import CommittedPart
from drillcore.ranges import concatenated_ranges
from drillcore.sample_index import SampleIndex


@pytest.fixture
def tables(maker):
    infos = [maker.part([7, 3]), maker.part([4, 3, 9], number=1)]
    shard = maker.layout.shard(0)
    tables = [PartFile(shard.named(info.name), maker.schema).samples() for info in infos]
    return [CommittedPart.of(info) for info in infos], tables


def test_rows_ascend_and_the_first_part_of_a_row_counts(tables):
    index = SampleIndex.build(tables[1])
    assert index.row.tolist() == [3, 4, 7, 9]
    assert index.part.tolist() == [0, 1, 0, 1]


def test_a_range_keeps_its_rows_only(tables):
    assert SampleIndex.build(tables[1], range(4, 9)).row.tolist() == [4, 7]
    assert SampleIndex.build([]).row.tolist() == []


def test_ids_follow_their_rows(tables, tmp_path):
    index = SampleIndex.build(tables[1])
    assert [index.id_of(i, tmp_path) for i in range(4)] == [None, "id-4-é", "id-7-é", None]


def test_an_index_comes_back_from_its_file(tables, tmp_path):
    index = SampleIndex.build(tables[1])
    (tmp_path / "x").write_bytes(index.to_bytes())
    loaded = SampleIndex.load(tmp_path / "x", tables[0])
    assert loaded.to_bytes() == index.to_bytes()
    assert loaded.of_rows(np.array([4, 5, 9])).row.tolist() == [4, 9]


def changed(index, name, position, value):
    column = getattr(index, name).copy()
    column[position] = value
    return replace(index, **{name: column})


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("part", -1),
        ("part", 2),
        ("first_token", -1),
        ("first_token", 2**62),
        ("num_tokens", -1),
        ("num_tokens", 2**63 - 1),
        ("first_state", -1),
        ("first_state", 2**63 - 1),
        ("num_states", -1),
        ("num_states", 2**62),
        ("row", 100),
        ("cu_ids", 10**6),
        ("cu_ids", -1),
    ],
)
def test_an_entry_outside_its_part_is_refused(tables, tmp_path, part, name, value):
    (tmp_path / "x").write_bytes(changed(SampleIndex.build(tables[1]), name, part, value).to_bytes())
    with pytest.raises(drillcore.FormatError, match="tensor `"):
        SampleIndex.load(tmp_path / "x", tables[0])


@pytest.mark.parametrize("kind", ["token", "state"])
def test_an_entry_that_ends_one_behind_its_part_is_refused(tables, tmp_path, kind):
    index = SampleIndex.build(tables[1])
    last = int(np.argmax(index.first_token + 10**6 * (index.part == 0)))
    moved = changed(index, f"first_{kind}", last, getattr(index, f"first_{kind}")[last] + 1)
    (tmp_path / "x").write_bytes(moved.to_bytes())
    with pytest.raises(drillcore.FormatError, match=f"num_{kind}s"):
        SampleIndex.load(tmp_path / "x", tables[0])


def test_an_id_that_is_no_utf8_is_a_format_error(tables, tmp_path):
    index = SampleIndex.build(tables[1])
    with pytest.raises(drillcore.FormatError, match="id of row 4 is not UTF-8"):
        changed(index, "ids", 0, 0xFF).id_of(1, tmp_path)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5))))
def test_concatenated_ranges_are_the_ranges_one_after_another(ranges):
    starts, lengths = (np.array([r[i] for r in ranges], np.int64) for i in (0, 1))
    expected = [index for start, length in ranges for index in range(start, start + length)]
    assert concatenated_ranges(starts, lengths).tolist() == expected
