"""The engine as its users meet it: lazy sources, one call for a list of prompts, clear ends."""

from __future__ import annotations

import numpy as np
import pytest

from drillcore.records import QuarantineEntry, QuarantineReason
from drillcore_server.engine import CapturePlan, EngineConfig, EngineStalled, Request, RequestRefused, extract
from drillcore_server.errors import ShardError
from drillcore_spec.enums import PositionsKind
from drillcore_spec.reasons import Reason


def test_one_call_gives_the_states_of_a_list_of_prompts(tiny_decoder, plan_of, reference, row_criterion):
    prompts = [[5, 6, 7], list(range(90)), [1]]

    samples = extract(tiny_decoder, plan_of(tiny_decoder), prompts)

    for prompt, sample in zip(prompts, samples, strict=True):
        assert sample.end.token_ids.tolist() == prompt
        row_criterion(sample.hidden_states, reference(prompt))


def test_no_prompts_give_no_samples(tiny_decoder, plan_of):
    assert extract(tiny_decoder, plan_of(tiny_decoder), []) == []


def test_a_lazy_source_is_taken_a_bounded_way_ahead(make_engine):
    rng = np.random.default_rng(0)
    under_test = make_engine(look_ahead=5, max_num_batched_tokens=40, num_blocks=20, max_num_seqs=4)
    largest_lead = 0

    def source():
        nonlocal largest_lead
        for row in range(200):
            largest_lead = max(largest_lead, row - len(under_test.sink.samples))
            yield Request(row, rng.integers(0, 256, 20))

    under_test.engine.run(source())

    assert len(under_test.samples()) == 200
    assert largest_lead <= 5 + 4 + 20


def test_long_prompts_are_taken_less_far_ahead(make_engine):
    under_test = make_engine(look_ahead=10_000, max_num_batched_tokens=10, max_model_len=100, num_blocks=10)
    taken = 0

    def source():
        nonlocal taken
        for row in range(1000):
            taken += 1
            yield Request(row, np.zeros(100, dtype=np.int64))

    stop_after_one_step = under_test.engine.step

    def step():
        stop_after_one_step()
        raise KeyboardInterrupt

    under_test.engine.step = step
    with pytest.raises(KeyboardInterrupt):
        under_test.engine.run(source())
    assert taken == 4


def test_the_first_step_does_not_wait_until_the_look_ahead_is_full(make_engine, monkeypatch):
    under_test = make_engine(max_num_batched_tokens=100, max_model_len=100, num_blocks=200)
    taken_at_step = []

    def source():
        for row in range(100):
            taken.append(row)
            yield Request(row, np.full(20, row))

    taken: list[int] = []
    execute = under_test.engine.runner.execute

    def count(*args):
        taken_at_step.append(len(taken))
        return execute(*args)

    monkeypatch.setattr(under_test.engine.runner, "execute", count)
    under_test.engine.run(source())

    assert taken_at_step[:3] == [20, 40, 60]
    assert len(under_test.samples()) == 100


@pytest.mark.parametrize("bad", [320, -1, 2**62])
def test_a_token_id_that_the_model_does_not_have_is_refused(make_engine, bad):
    with pytest.raises(RequestRefused, match=f"request 4: token ids must be 0 to 319; got {bad}"):
        make_engine().engine.add_request(Request(4, np.array([1, bad, 2])))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt_token_ids": np.zeros(3, np.int32)}, r"must be int64 \[S\]; got int32 \[3\]"),
        ({"prompt_token_ids": np.zeros((1, 3), np.int64)}, r"must be int64 \[S\]; got int64 \[1, 3\]"),
        ({"loss_mask": np.zeros(4, np.uint8)}, r"loss_mask must have 3 values; got \[4\]"),
        ({"positions": PositionsKind.LOSS_MASK}, "positions LossMask need a loss_mask"),
    ],
)
def test_fields_that_do_not_fit_each_other_are_refused(fields, message):
    with pytest.raises(ValueError, match=f"request 4: .*{message}"):
        Request(**({"request_id": 4, "prompt_token_ids": np.zeros(3, np.int64)} | fields))


def test_quarantine_entries_of_the_source_are_passed_on(make_engine, random_requests):
    entry = QuarantineEntry(1, "a.jsonl", 2, None, QuarantineReason.EMPTY, "no text")
    first, _, last = random_requests((3, 3, 3))
    under_test = make_engine()

    under_test.engine.run([first, entry, last])

    assert sorted(under_test.samples()) == [0, 2]
    assert under_test.sink.quarantined == [entry]


def test_an_empty_source_ends_at_once(make_engine):
    under_test = make_engine()

    under_test.engine.run([])

    assert under_test.samples() == {}


def test_a_source_that_repeats_a_row_is_a_fault(make_engine, random_requests):
    (request,) = random_requests([3])

    with pytest.raises(RequestRefused, match="its id must not be in use"):
        make_engine().engine.run([request, request])


def test_what_the_source_raises_reaches_the_caller(make_engine, random_requests):
    def source():
        yield from random_requests([3])
        raise OSError("the volume is gone")

    with pytest.raises(OSError, match="the volume is gone"):
        make_engine().engine.run(source())


def test_samples_carry_what_the_request_said(make_engine):
    request = Request(
        41,
        np.array([7, 7, 7]),
        id="row-41",
        original_tokens=5000,
        loss_mask=np.array([0, 1, 1], dtype=np.uint8),
    )
    under_test = make_engine()

    under_test.engine.run([request])

    end = under_test.samples()[41].end
    assert (end.row, end.id, end.original_tokens, end.num_prompt_tokens) == (41, "row-41", 5000, 3)
    assert end.last_token is None
    assert end.loss_mask.tolist() == [0, 1, 1]


def test_an_unknown_id_is_not_aborted(make_engine):
    assert not make_engine().engine.abort(5)


def test_a_stall_is_an_error_and_not_an_endless_loop(make_engine, random_requests, monkeypatch):
    engine = make_engine().engine
    monkeypatch.setattr(engine.scheduler, "schedule", lambda: None)

    with pytest.raises(EngineStalled, match=r"1 requests are left \(1 waiting\), 63 of 63 blocks are free"):
        engine.run(random_requests([3]))


def test_a_max_model_len_beyond_the_models_positions_is_refused(make_engine):
    with pytest.raises(ShardError, match="maxModelLen must be at most 512") as refusal:
        make_engine(max_model_len=513)
    assert refusal.value.reason is Reason.BAD_SPEC


def test_a_decoder_with_too_few_blocks_is_refused(make_engine, load_tiny, plan_of):
    with pytest.raises(ValueError, match="needs 3 blocks of the model; 2 are loaded"):
        make_engine(load_tiny(num_layers=2))


def test_a_decoder_without_lm_head_cannot_generate(make_engine, load_tiny, tiny_decoder):
    import dataclasses

    bare = dataclasses.replace(tiny_decoder, weights=dataclasses.replace(tiny_decoder.weights, lm_head=None))

    with pytest.raises(ValueError, match="lm_head"):
        make_engine(bare, max_tokens=1)


@pytest.mark.parametrize("columns", [(0,), (3, 1)])
def test_an_in_process_sink_has_the_shape_of_the_plan(tiny_decoder, columns):
    plan = CapturePlan(columns, False, 3, 64)

    (sample,) = extract(tiny_decoder, plan, [[1, 2, 3]], config=EngineConfig(max_model_len=8, num_blocks=3))

    assert sample.hidden_states.shape == (3, len(columns), 64)
