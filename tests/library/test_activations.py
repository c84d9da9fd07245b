import threading

import numpy as np
import pytest

import drillcore
from drillcore.dtypes import StoreDType


def expected(maker, rows, column, special=(0, 1)):
    """Every state of the layer whose token is not special, in the order of rows and tokens."""
    states = []
    for number in rows:
        row = maker.row(number)
        positions = row.positions
        if maker.manifest.positions == "Mean":
            keep = np.ones(len(row.states), bool)
        else:
            tokens = row.token_ids if positions is None else row.token_ids[positions]
            keep = ~np.isin(tokens, special)
        states.append(row.states[keep, column])
    return np.concatenate(states)


def as_rows(states):
    return sorted(line.tobytes() for line in states)


@pytest.fixture(params=["All", "Last", "LossMask", "Mean", "PerSample"])
def output(make, request):
    kind = {"layout": "PerSample"} if request.param == "PerSample" else {"positions": request.param}
    maker = make(**kind, store_dtype=StoreDType.BF16, shard_count=2, special_token_ids=(0, 1, 7, 30))
    maker.shard([range(0, 30, 2), range(1, 30, 2), [30]])
    maker.shard([range(31, 50)], shard=1)
    return maker, drillcore.open(maker.root)


@pytest.mark.parametrize("batch_size", [1, 7, 64, 10_000])
def test_in_order_every_wanted_state_comes_in_the_order_of_rows_and_tokens(output, batch_size):
    maker, opened = output
    batches = list(opened.activations(0, batch_size))
    wanted = expected(maker, range(50), 1, special=(0, 1, 7, 30))
    assert np.concatenate(batches).tobytes() == wanted.tobytes()
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert batches[0].dtype == opened[0].hidden_states.dtype


@pytest.mark.parametrize("shuffle_buffer", [1, 16, 1000])
def test_shuffled_every_wanted_state_comes_exactly_once_an_epoch(output, shuffle_buffer):
    maker, opened = output
    activations = opened.activations("finalNorm", 7, shuffle_buffer, seed=3)
    states = np.concatenate(list(activations))
    wanted = expected(maker, range(50), 2, special=(0, 1, 7, 30))
    assert as_rows(states) == as_rows(wanted)
    assert states.tobytes() != wanted.tobytes()
    assert np.concatenate(list(activations)).tobytes() == states.tobytes()
    other = np.concatenate(list(opened.activations("finalNorm", 7, shuffle_buffer, seed=4)))
    assert other.tobytes() != states.tobytes()


@pytest.mark.parametrize("batch_size", [7, 64])
def test_long_runs_of_a_single_layer_come_in_order_too(make, monkeypatch, batch_size):
    """Runs that are read instead of copied from the map: here all of at least two states."""
    monkeypatch.setattr("drillcore.state_windows._MIN_READ_BYTES", 2 * 8 * 4)
    maker = make(layers=(2,), final_norm=False)
    maker.shard([range(0, 30, 2), range(1, 30, 2)])
    states = np.concatenate(list(drillcore.open(maker.root).activations(2, batch_size)))
    assert states.tobytes() == expected(maker, range(30), 0).tobytes()


def test_special_tokens_are_kept_on_request(output):
    maker, opened = output
    states = np.concatenate(list(opened.activations(2, 16, skip_special=False)))
    assert states.tobytes() == expected(maker, range(50), 0, special=()).tobytes()


def test_the_mean_norm_is_that_of_the_stored_states(maker):
    maker.shard([range(20)])
    activations = drillcore.open(maker.root).activations(2, 16)
    norms = [np.linalg.norm(maker.row(row).states[:, 0], axis=-1) for row in range(20)]
    assert activations.mean_norm == pytest.approx(np.concatenate(norms).mean())


def test_a_batch_is_the_callers_own(maker):
    maker.shard([range(4)])
    output = drillcore.open(maker.root)
    first = next(iter(output.activations(2, 4)))
    first[:] = 0
    assert np.any(next(iter(output.activations(2, 4))))


def test_half_an_epoch_leaves_no_thread(maker):
    maker.shard([range(40)])
    batches = iter(drillcore.open(maker.root).activations(2, 4))
    next(batches)
    assert any(thread.name.startswith("activations") for thread in threading.enumerate())
    batches.close()
    assert not any(thread.name.startswith("activations") for thread in threading.enumerate())


def test_a_fault_in_a_part_reaches_the_caller(maker):
    maker.shard([range(4), range(4, 8)])
    output = drillcore.open(maker.root)
    part = maker.layout.shard(0).named(output.shards[0].parts[1].name)
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(drillcore.FormatError, match=part.name):
        list(output.activations(2, 4))


def test_rows_of_an_unfinished_output_come_as_far_as_they_are(make):
    maker = make(shard_count=2)
    maker.shard([range(6)])
    maker.shard([range(10, 14)], shard=1, commit=False)
    activations = drillcore.open(maker.root, allow_incomplete=True).activations(2, 5)
    wanted = expected(maker, [*range(6), *range(10, 14)], 0)
    assert np.concatenate(list(activations)).tobytes() == wanted.tobytes()


def test_what_is_kept_of_a_batch_is_never_overwritten(maker):
    """Memory is used again for later batches, but not while a batch, or a slice of one, is alive."""
    maker.shard([range(40)])
    activations = drillcore.open(maker.root).activations(2, 3)
    kept = [batch[1:] if number % 2 else batch for number, batch in enumerate(activations)]
    again = list(activations)
    assert all((a[-len(k) :] == k).all() for a, k in zip(again, kept, strict=True))
    addresses = [batch.ctypes.data for batch in activations]
    assert len(set(addresses)) < len(addresses)


def test_an_output_without_states_gives_no_batch(maker):
    maker.claim()
    activations = drillcore.open(maker.root, allow_incomplete=True).activations(2, 4, 10)
    assert list(activations) == []
    assert np.isnan(activations.mean_norm)


def test_wrong_arguments_are_named(maker):
    maker.shard([range(4)])
    output = drillcore.open(maker.root)
    with pytest.raises(ValueError, match="layer 9 was not extracted"):
        output.activations(9, 4)
    for arguments in ((0,), (4, -1)):
        with pytest.raises(ValueError, match="batch_size must be at least 1 and shuffle_buffer at least 0"):
            output.activations(2, *arguments)
