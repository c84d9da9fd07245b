"""Each kind of positions is a plain numpy selection of positions All, however the tokens were computed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from drillcore.records import QuarantineReason
from drillcore_server.engine import Request, RequestRefused
from drillcore_spec.enums import PositionsKind

LENGTHS = (1, 30, 7, 64, 40, 40)
RANGES = {PositionsKind.WINDOW: range(3, 21), PositionsKind.STRIDE: range(2, sys.maxsize, 5)}
SHARED = 24


def requests_for(kind: PositionsKind, **fields) -> list[Request]:
    """The last two prompts share their first 24 tokens."""
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, 256, length) for length in LENGTHS]
    prompts[-1][:SHARED] = prompts[-2][:SHARED]
    return [
        Request(
            row,
            ids,
            positions=kind,
            position_range=RANGES.get(kind),
            loss_mask=(np.arange(len(ids)) % 3 == 0).astype(np.uint8),
            **fields,
        )
        for row, ids in enumerate(prompts)
    ]


def selected(kind: PositionsKind, end) -> list[int]:
    """Positions by the definition of the kind."""
    tokens = range(len(end.token_ids))
    match kind:
        case PositionsKind.LAST:
            return [tokens[-1]]
        case PositionsKind.LOSS_MASK:
            return [p for p in tokens if end.loss_mask[p]]
        case PositionsKind.WINDOW | PositionsKind.STRIDE:
            return [p for p in tokens if p in RANGES[kind]]
        case _:
            return list(tokens)


@pytest.fixture(scope="module")
def whole(plan_of, tiny_decoder):
    """Positions All of the prompts, computed one by one."""
    from drillcore_server.engine import extract

    prompts = [request.prompt_token_ids for request in requests_for(PositionsKind.ALL)]
    return [extract(tiny_decoder, plan_of(tiny_decoder), [prompt])[0].hidden_states.numpy() for prompt in prompts]


def assert_is_selection(sample, kind, states, row_criterion):
    end, got = sample.end, sample.hidden_states.numpy()
    positions = selected(kind, end)
    if kind is PositionsKind.MEAN:
        assert end.positions is None
        row_criterion(got, states.mean(axis=0, keepdims=True))
    else:
        assert end.positions.tolist() == positions
        row_criterion(got, states[positions])
    assert end.num_states == len(got)
    assert np.allclose(end.norm_sums, np.linalg.norm(got.astype(np.float64), axis=-1).sum(axis=0), rtol=1e-5)
    assert np.allclose(end.max_abs, np.abs(got).max(axis=(0, 2)), rtol=1e-6)


@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("budget", [7, 50, 1000])
@pytest.mark.parametrize("kind", [kind for kind in PositionsKind if kind is not PositionsKind.ALL])
def test_positions_select_from_all(make_engine, whole, row_criterion, kind, budget, prefix_caching):
    under_test = make_engine(max_num_batched_tokens=budget, block_size=8, num_blocks=40, prefix_caching=prefix_caching)

    under_test.engine.run(requests_for(kind))

    samples = under_test.samples()
    none = {0} if kind in RANGES else set()
    assert {entry.row: entry.reason for entry in under_test.sink.quarantined} == dict.fromkeys(
        none, QuarantineReason.NOTHING_SELECTED
    )
    assert samples.keys() == set(range(len(LENGTHS))) - none
    for row, sample in samples.items():
        assert_is_selection(sample, kind, whole[row], row_criterion)
    assert (under_test.engine.prefix_counters.hits > 0) is prefix_caching


@pytest.mark.parametrize("limits", [{"prefix_caching": False}, {"only_last": True}])
def test_tokens_that_nobody_asked_for_leave_the_last_block_early(make_engine, whole, row_criterion, limits):
    under_test = make_engine(max_num_batched_tokens=50, block_size=8, num_blocks=40, **limits)
    last_column = under_test.engine.drafter.cache.states[1:, :, -2]

    under_test.engine.run(requests_for(PositionsKind.LAST))

    for row, sample in under_test.samples().items():
        assert_is_selection(sample, PositionsKind.LAST, whole[row], row_criterion)
    num_steps = under_test.engine.scheduler_counters.steps
    assert last_column.isfinite().all(dim=-1).sum() <= num_steps + len(LENGTHS)


def test_every_token_goes_through_the_last_block_when_prefixes_are_shared(make_engine):
    under_test = make_engine(block_size=8, num_blocks=40, prefix_caching=True)
    last_column = under_test.engine.drafter.cache.states[1:, :, -2]

    under_test.engine.run(requests_for(PositionsKind.LAST))

    assert last_column.isfinite().all(dim=-1).sum() == sum(LENGTHS) - SHARED


def test_an_engine_for_last_states_refuses_other_positions(make_engine):
    engine = make_engine(only_last=True).engine

    with pytest.raises(RequestRefused, match="request 0: positions must be Last in this engine; got All"):
        engine.add_request(Request(0, np.arange(10)))


@pytest.mark.parametrize("kind", [PositionsKind.LAST, PositionsKind.STRIDE, PositionsKind.LOSS_MASK])
def test_generation_goes_on_when_unwanted_tokens_leave_early(make_engine, row_criterion, reference, kind):
    fields = {"max_tokens": 6, "max_num_batched_tokens": 9, "block_size": 8, "num_blocks": 60}
    whole_batches, under_test = make_engine(**fields), make_engine(**fields, prefix_caching=False)

    for each in (whole_batches, under_test):
        each.engine.run(requests_for(kind, max_tokens=6))

    expected = whole_batches.samples()
    for row, sample in under_test.samples().items():
        assert sample.end.token_ids.tolist() == expected[row].end.token_ids.tolist()
        assert sample.end.last_token == expected[row].end.last_token
        assert_is_selection(sample, kind, reference(sample.end.token_ids).numpy(), row_criterion)


@pytest.mark.parametrize("kind", list(PositionsKind))
@pytest.mark.parametrize("seed", range(3))
def test_positions_survive_late_copies_and_a_sink_without_room(late_engine, whole, row_criterion, kind, seed):
    engine, sink = late_engine(np.random.default_rng(seed), capacity_states=9, num_blocks=12, block_size=16)

    engine.run(requests_for(kind))

    sink.drain()
    engine.check_integrity()
    for row, (end, states) in sink.samples.items():
        expected = whole[row]
        if kind is PositionsKind.MEAN:
            row_criterion(states, expected.mean(axis=0, keepdims=True))
        else:
            row_criterion(states, expected[selected(kind, end)])
    assert len(sink.samples) + len(sink.quarantined) == len(LENGTHS)


@pytest.mark.parametrize("kind", [PositionsKind.MEAN, PositionsKind.WINDOW, PositionsKind.STRIDE])
def test_generated_tokens_are_selected_like_others(make_engine, row_criterion, reference, kind):
    under_test = make_engine(max_tokens=6, max_num_batched_tokens=9, block_size=8, num_blocks=60)

    under_test.engine.run(requests_for(kind, max_tokens=6))

    for sample in under_test.samples().values():
        assert_is_selection(sample, kind, reference(sample.end.token_ids).numpy(), row_criterion)


def test_a_row_with_a_broken_token_has_no_mean(make_engine):
    under_test = make_engine(max_num_batched_tokens=8, block_size=8)
    requests = requests_for(PositionsKind.MEAN)
    engine, absorb = under_test.engine, under_test.engine.connector.absorb

    def absorb_broken(saved):
        for index, part in enumerate(saved.metadata.slices):
            if part.header.row == 1 and 17 in part.positions:
                first = sum(len(p.positions) for p in saved.metadata.slices[:index])
                saved.stats.numpy()[first + part.positions.tolist().index(17), 2, 1] = np.nan
        return absorb(saved)

    engine.connector.absorb = absorb_broken

    engine.run(requests)

    assert under_test.samples().keys() == {0, 2, 3, 4, 5}
    assert [(e.row, e.reason) for e in under_test.sink.quarantined] == [(1, QuarantineReason.NON_FINITE_STATE)]


@pytest.mark.parametrize(
    ("kind", "selected_range", "expected"),
    [
        (PositionsKind.ALL, None, 12),
        (PositionsKind.LAST, None, 1),
        (PositionsKind.MEAN, None, 1),
        (PositionsKind.WINDOW, range(4, 9), 5),
        (PositionsKind.WINDOW, range(12, 20), 0),
        (PositionsKind.STRIDE, range(1, sys.maxsize, 4), 3),
    ],
)
def test_a_request_knows_how_many_states_it_can_give(kind, selected_range, expected):
    request = Request(0, np.arange(10), positions=kind, position_range=selected_range, max_tokens=3)

    assert request.max_states == expected


@pytest.mark.parametrize("kind", [PositionsKind.ALL, PositionsKind.WINDOW])
def test_a_range_is_given_exactly_with_the_kinds_that_need_one(kind):
    selected_range = None if kind is PositionsKind.WINDOW else range(3)

    with pytest.raises(ValueError, match="request 0: position_range must be given"):
        Request(0, np.arange(10), positions=kind, position_range=selected_range)


@pytest.mark.parametrize("wrong", [range(5, 0, -1), range(-1, 4)])
def test_a_range_that_does_not_ascend_from_0_is_an_error(wrong):
    with pytest.raises(ValueError, match="must start at 0 or later and ascend"):
        Request(0, np.arange(10), positions=PositionsKind.WINDOW, position_range=wrong)
