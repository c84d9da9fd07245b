import json
import os
import pickle
import resource
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import drillcore
from drillcore.dtypes import StoreDType


def assert_is_row(sample, row):
    assert sample.row == row.row
    assert sample.id == row.id
    assert np.array_equal(sample.token_ids, row.token_ids)
    assert sample.hidden_states.dtype == row.states.dtype
    assert np.array_equal(sample.hidden_states.view(np.uint8), row.states.view(np.uint8))
    assert sample.num_prompt_tokens == row.end.num_prompt_tokens
    assert sample.original_tokens == row.end.original_tokens
    assert sample.last_token == row.end.last_token
    if row.loss_mask is None:
        assert sample.loss_mask is None
    else:
        assert np.array_equal(sample.loss_mask, row.loss_mask)


@pytest.mark.parametrize("positions", ["All", "Last", "LossMask", "Mean"])
@pytest.mark.parametrize("dtype", list(StoreDType))
def test_every_sample_comes_back_by_position_and_by_row(make, positions, dtype):
    maker = make(positions=positions, store_dtype=dtype)
    maker.shard([[5, 1, 3], [0, 9], [7]], loss_mask=True)
    output = drillcore.open(maker.root)
    assert len(output) == 6
    assert output.rows.tolist() == [0, 1, 3, 5, 7, 9]
    for position, number in enumerate(output.rows.tolist()):
        row = maker.row(number, loss_mask=True)
        for sample in (output[position], output[position - 6], output[np.int64(position)], output.by_row(number)):
            assert_is_row(sample, row)
            if positions == "Mean":
                assert sample.positions is None
            else:
                expected = np.arange(len(row.token_ids)) if positions == "All" else row.positions
                assert np.array_equal(sample.positions, expected)
    assert [sample.row for sample in output] == output.rows.tolist()


def test_shards_follow_each_other(make):
    maker = make(shard_count=3)
    maker.shard([range(4)])
    maker.shard([], shard=1)
    maker.shard([[4, 6], [5]], shard=2, quarantined=[7])
    output = drillcore.open(maker.root)
    assert [sample.row for sample in output] == list(range(7))
    assert_is_row(output[-1], maker.row(6))
    assert output.complete
    assert output.counts.rows_in == 8
    assert [entry.row for entry in output.quarantined()] == [7]


def test_positions_and_rows_that_are_not_there_are_refused(maker):
    maker.shard([[0, 1, 3]], quarantined=[2])
    output = drillcore.open(maker.root)
    for position in (3, -4):
        with pytest.raises(IndexError):
            output[position]
    for row in (2, 4, -1, 2**70):
        with pytest.raises(drillcore.RowNotFoundError, match=str(row)):
            output.by_row(row)


def test_a_layer_is_a_view_named_by_its_id(maker):
    maker.shard([[0, 1]])
    sample = drillcore.open(maker.root)[1]
    for column, name in enumerate((2, 0, "finalNorm")):
        layer = sample.layer(name)
        assert np.array_equal(layer, maker.row(1).states[:, column])
        assert np.shares_memory(layer, sample.hidden_states)
    with pytest.raises(ValueError, match="layer 1 was not extracted; this output has 2, 0, finalNorm"):
        sample.layer(1)


def test_a_sample_shows_its_shape_not_its_numbers(make):
    maker = make(store_dtype=StoreDType.BF16)
    maker.shard([[1]])
    shape = list(maker.row(1).states.shape)
    assert repr(drillcore.open(maker.root)[0]) == (
        f"Sample(row=1, id='id-1-é', tokens={shape[0]}, hidden_states=bfloat16 {shape})"
    )
    assert drillcore.open(maker.root)[0].hidden_states.dtype == ml_dtypes.bfloat16


def test_stored_states_cannot_be_overwritten(maker):
    maker.shard([[0]])
    sample = drillcore.open(maker.root)[0]
    with pytest.raises(ValueError, match="read-only"):
        sample.hidden_states[0] = 0


def test_shuffled_gives_every_sample_once_in_an_order_of_its_seed(make):
    maker = make(shard_count=2)
    maker.shard([range(0, 10), range(10, 14), range(14, 20)])
    maker.shard([range(20, 30)], shard=1)
    output = drillcore.open(maker.root)
    orders = [[sample.row for sample in output.shuffled(seed, mix_parts=2)] for seed in (1, 1, 2)]
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != list(range(30))


def test_shuffling_touches_few_parts_at_a_time(maker):
    maker.shard([range(10 * part, 10 * part + 10) for part in range(6)])
    order = [sample.row // 10 for sample in drillcore.open(maker.root).shuffled(0, mix_parts=2)]
    for first in range(0, 60, 20):
        assert len(set(order[first : first + 20])) == 2


def test_an_unfinished_output_is_refused_and_read_on_request(make):
    maker = make(shard_count=3)
    maker.shard([range(4)])
    maker.shard([[4, 6], [5]], shard=1, quarantined=[7], commit=False)
    with pytest.raises(drillcore.OutputIncompleteError, match="1 of 3 shards are committed"):
        drillcore.open(maker.root)
    output = drillcore.open(maker.root, allow_incomplete=True)
    assert not output.complete
    assert [sample.row for sample in output] == list(range(7))
    for sample in output:
        assert_is_row(sample, maker.row(sample.row))
    assert (output.counts.rows_in, output.counts.rows_quarantined) == (8, 1)
    assert [entry.row for entry in output.quarantined()] == [7]
    assert set(output.layer_stats) == {"2", "0", "finalNorm"}


def test_an_output_just_claimed_is_empty(maker):
    maker.claim()
    output = drillcore.open(maker.root, allow_incomplete=True)
    assert (len(output), output.complete, list(output), output.layer_stats) == (0, False, [], {})


def test_a_part_that_does_not_hold_is_left_out_of_an_unfinished_output(maker):
    maker.shard([[0, 1], [2]], commit=False)
    path = maker.layout.shard(0).part(1, "00000001")
    path.write_bytes(path.read_bytes()[:-1])
    assert drillcore.open(maker.root, allow_incomplete=True).rows.tolist() == [0, 1]


@pytest.mark.parametrize("content", [None, "file", "empty"])
def test_a_path_without_an_output_says_what_was_expected(tmp_path, content):
    path = tmp_path / "out"
    if content == "file":
        path.write_text("")
    if content == "empty":
        path.mkdir()
    with pytest.raises(drillcore.OutputNotFoundError, match=r"expected a folder with manifest\.json"):
        drillcore.open(path)


def test_an_open_output_survives_a_longer_run_and_its_files_being_removed(maker):
    maker.shard([range(4)])
    output = drillcore.open(maker.root)
    sample = output[1]
    for path in maker.root.rglob("*.safetensors"):
        path.unlink()
    assert_is_row(sample, maker.row(1))
    assert_is_row(output[2], maker.row(2))


def test_an_output_can_be_sent_to_another_process(maker):
    maker.shard([range(4)], commit=False)
    output = pickle.loads(pickle.dumps(drillcore.open(maker.root, allow_incomplete=True)))
    assert_is_row(output[3], maker.row(3))


def test_more_parts_than_file_descriptors_can_be_read_through(maker):
    maker.shard([[row] for row in range(200)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 150, hard))
    try:
        assert [sample.row for sample in drillcore.open(maker.root)] == list(range(200))
        with pytest.raises(drillcore.ReadError, match="Too many open files"):
            list(drillcore.open(maker.root))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_two_shards_with_the_same_row_are_refused(make):
    maker = make(shard_count=2)
    maker.shard([range(4)])
    maker.shard([range(3, 5)], shard=1)
    with pytest.raises(drillcore.FormatError, match="holds row 3 of an earlier shard"):
        drillcore.open(maker.root)


def test_an_index_that_was_changed_is_refused(maker):
    maker.shard([range(4)])
    path = maker.layout.shard(0).sample_index("00000001")
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    with pytest.raises(drillcore.ChecksumError, match="bytes changed"):
        drillcore.open(maker.root)


def test_a_commit_of_another_job_is_refused(maker):
    maker.shard([range(4)])
    commit = json.loads(maker.layout.shard(0).commit.read_text())
    commit["identity"] = "0" * 64
    maker.layout.shard(0).commit.write_text(json.dumps(commit))
    with pytest.raises(drillcore.FormatError, match="another job"):
        drillcore.open(maker.root)


def test_reading_loads_neither_the_job_spec_nor_a_framework(maker):
    maker.shard([range(4)])
    program = (
        "import sys, drillcore; output = drillcore.open(sys.argv[1]); list(output); drillcore.inspect(sys.argv[1]); "
        "drillcore.verify(sys.argv[1]); next(iter(output.activations(2, 4)));"
        "print(sorted({'torch', 'pydantic', 'yaml', 'pyarrow', 'transformers', 'drillcore_spec'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", program, str(maker.root)], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
