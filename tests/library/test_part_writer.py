import errno
import os
from dataclasses import replace

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file

import drillcore
from drillcore.checksum import check_file
from drillcore.dtypes import StoreDType
from drillcore.layout import temporary
from drillcore.part_file import PartFile
from drillcore.part_writer import PartWriter


@pytest.fixture
def writer(maker):
    maker.claim()
    folder = maker.layout.shard(0)
    folder.directory.mkdir()
    return PartWriter(folder.part(0, "00000001"), maker.schema)


def as_bytes(states):
    return memoryview(np.ascontiguousarray(states).view(np.uint8).reshape(-1))


@pytest.mark.parametrize("positions", ["All", "Last", "LossMask", "Mean"])
@pytest.mark.parametrize("dtype", list(StoreDType))
def test_a_part_holds_what_was_appended(make, positions, dtype):
    maker = make(positions=positions, store_dtype=dtype)
    info = maker.part(range(20), loss_mask=True)
    rows = [maker.row(row, loss_mask=True) for row in range(20)]
    part = PartFile(maker.layout.shard(0).part(0, "00000001"), maker.schema)
    table = part.samples()
    assert np.array_equal(
        part.hidden_states.view(np.uint8), np.concatenate([row.states for row in rows]).view(np.uint8)
    )
    assert np.array_equal(part.token_ids, np.concatenate([row.token_ids for row in rows]))
    assert np.array_equal(part.loss_mask, np.concatenate([row.loss_mask for row in rows]))
    assert table.rows.tolist() == list(range(20))
    assert np.diff(table.cu_seqlens).tolist() == [len(row.token_ids) for row in rows]
    assert np.diff(table.cu_states).tolist() == [len(row.states) for row in rows]
    assert table.ids.tobytes().decode() == "".join(row.id or "" for row in rows)
    assert table.has_id.tolist() == [row.id is not None for row in rows]
    np.testing.assert_allclose(table.norm_sums, [row.end.norm_sums for row in rows])
    if positions in ("Last", "LossMask"):
        assert np.array_equal(part.positions, np.concatenate([row.positions for row in rows]))
    assert (info.num_rows, info.tokens, info.states) == (20, part.num_tokens, part.num_states)
    assert info.rows == ((0, 19),)


def test_any_safetensors_reader_opens_a_part(maker):
    maker.part(range(5), loss_mask=True)
    path = maker.layout.shard(0).part(0, "00000001")
    tensors = load_file(path)
    assert tensors["hidden_states"].shape[1:] == (3, 8)
    assert tensors["rows"].tolist() == [0, 1, 2, 3, 4]
    with safe_open(path, "np") as file:
        assert file.metadata() == {
            "format": "drillcore",
            "formatVersion": "1",
            "identity": maker.manifest.identity_sha256,
            "layers": "[2, 0]",
            "finalNorm": "true",
            "dtype": "F32",
        }


def test_tensors_with_an_odd_number_of_state_bytes_are_read_back(make):
    maker = make(store_dtype=StoreDType.BF16, hidden_size=7, layers=(1,), final_norm=False, positions="LossMask")
    info = maker.part([3])
    part = PartFile(maker.layout.shard(0).part(0, "00000001"), maker.schema)
    assert (info.states * 14) % 8, "the example must leave int64 tensors unaligned"
    assert part.samples().rows.tolist() == [3]
    assert np.array_equal(part.token_ids, maker.row(3).token_ids)


def test_nothing_has_a_final_name_before_close(maker, writer):
    maker.write(writer, range(3))
    names = [path.name for path in writer.path.parent.iterdir()]
    assert names == [writer.path.name + ".tmp"]
    writer.close()
    assert [path.name for path in writer.path.parent.iterdir()] == [writer.path.name]


def test_an_empty_part_leaves_no_file(maker, writer):
    writer.append(as_bytes(maker.row(0).states))
    assert writer.close() is None
    assert list(writer.path.parent.iterdir()) == []


def test_an_abandoned_part_leaves_no_file(maker, writer):
    maker.write(writer, range(3))
    writer.abandon()
    assert list(writer.path.parent.iterdir()) == []


def test_the_checksum_covers_the_data_first_and_then_the_header(maker, writer):
    maker.write(writer, range(3))
    info = writer.close()
    data = writer.path.read_bytes()
    start = maker.schema.header_block_bytes
    assert int.from_bytes(data[:8], "little") + 8 == start
    assert start % 4096 == 0
    assert info.xxh3_64 == xxhash.xxh3_64_hexdigest(data[start:] + data[:start])


@pytest.mark.parametrize("positions", ["All", "LossMask", "Mean"])
@pytest.mark.parametrize("loss_mask", [False, True])
def test_the_size_is_known_before_the_part_closes(make, positions, loss_mask):
    maker = make(positions=positions)
    maker.claim()
    (maker.layout.shard(0).directory).mkdir()
    writer = PartWriter(maker.layout.shard(0).part(0, "00000001"), maker.schema)
    for row in range(40):
        maker.write(writer, [row], loss_mask=loss_mask)
    size_bytes = writer.size_bytes
    info = writer.close()
    assert size_bytes == info.bytes == writer.path.stat().st_size


def test_rows_may_come_in_any_order(maker):
    info = maker.part([7, 3, 4, 9, 5])
    assert info.rows == ((3, 5), (7, 7), (9, 9))


@given(
    plan=st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=12),
    refuses_ftruncate=st.booleans(),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_dropped_samples_leave_no_trace_whether_or_not_the_file_system_has_ftruncate(
    tmp_path_factory, session_maker, plan, refuses_ftruncate
):
    """Any sequence of kept and dropped samples is the part with the kept ones only."""
    folder = tmp_path_factory.mktemp("parts")
    maker, schema = session_maker, session_maker.schema
    kept = [i for i, (keep, _) in enumerate(plan) if keep]

    def refuse(fd, length):
        raise OSError(errno.EPERM, "ftruncate is not supported")

    with pytest.MonkeyPatch.context() as patch:
        if refuses_ftruncate:
            patch.setattr(os, "ftruncate", refuse)
        writer = PartWriter(folder / "part-00000-00000001.safetensors", schema)
        for i, (keep, repeats) in enumerate(plan):
            if keep:
                maker.write(writer, [i])
                continue
            for _ in range(repeats):
                writer.append(as_bytes(np.full((9, 3, 8), 77, np.float32)))
            writer.drop_sample()
        info = writer.close()
    assert (info is None) == (not kept)
    if info is not None:
        check_file(writer.path, info)
        part = PartFile(writer.path, schema)
        assert part.samples().rows.tolist() == kept
        assert np.array_equal(part.hidden_states, np.concatenate([maker.row(i).states for i in kept]))
        tensors = load_file(writer.path)
        if not refuses_ftruncate:
            assert "padding" not in tensors
        assert not tensors.get("padding", np.zeros(1)).any()


def test_states_that_do_not_fit_the_end_of_their_sample_are_refused(maker, writer):
    row = maker.row(1)
    writer.append(as_bytes(row.states[:-1]))
    with pytest.raises(ValueError, match="row 1"):
        writer.end_sample(row.end)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.arange(99)}, "99 tokens need"),
        ({"positions": np.zeros(1, np.int32)}, "positions"),
        ({"loss_mask": np.zeros(1, np.uint8)}, "loss mask of 1"),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(maker, writer, change, message):
    row = maker.row(1)
    writer.append(as_bytes(row.states))
    with pytest.raises(ValueError, match=message):
        writer.end_sample(replace(row.end, **change))


def test_a_part_has_loss_masks_for_all_samples_or_for_none(maker, writer):
    maker.write(writer, [1], loss_mask=True)
    with pytest.raises(ValueError, match="all samples of a part have a loss mask"):
        maker.write(writer, [2])


def test_a_long_list_of_layers_fits_the_header_block(make):
    maker = make(layers=tuple(range(500)), hidden_size=1)
    maker.part([0, 1])
    assert maker.schema.header_block_bytes > 4096
    assert PartFile(maker.layout.shard(0).part(0, "00000001"), maker.schema).num_states


def test_a_full_volume_is_a_typed_error_and_the_finished_samples_can_still_be_saved(maker, writer, monkeypatch):
    maker.write(writer, range(3))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:10], offset) and _full())
    with pytest.raises(drillcore.OutputVolumeFullError):
        writer.append(as_bytes(maker.row(3).states))
    monkeypatch.undo()
    writer.drop_sample()
    info = writer.close()
    check_file(writer.path, info)
    assert info.num_rows == 3


def test_a_failed_fsync_loses_the_part_for_good(maker, writer, monkeypatch):
    """A second fsync would succeed although the first lost the pages."""
    maker.write(writer, range(3))
    monkeypatch.setattr(os, "fsync", lambda fd: _full())
    with pytest.raises(drillcore.OutputVolumeFullError):
        writer.close()
    monkeypatch.undo()
    with pytest.raises(drillcore.WriteError):
        writer.close()
    writer.abandon()
    assert list(writer.path.parent.iterdir()) == []


def test_short_writes_of_the_kernel_are_continued(maker, writer, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:100], offset))
    maker.write(writer, range(5))
    info = writer.close()
    monkeypatch.undo()
    check_file(writer.path, info)


def test_two_writers_never_share_a_file(maker, writer):
    with pytest.raises(drillcore.WriteError, match="exists"):
        PartWriter(writer.path, maker.schema)
    assert temporary(writer.path).exists()


def _full():
    raise OSError(errno.ENOSPC, "No space left on device")
