"""The four faults that drafters which capture hidden states are prone to, each with a mutation that shows it.

Every case is one function that asserts the right behaviour of an engine class. It passes for our engine, and goes
red for an engine into which the fault was put.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from drillcore_server.connector.errors import StepNotBound, StepNotSaved
from drillcore_server.engine import AsyncEngine, Engine, EngineConfig, Request, SampleQuarantined
from drillcore_server.engine.input_batch import InputBatch
from drillcore_server.engine.model_runner import ModelRunner

MAX_MODEL_LEN = 192


class FitsGuard(ModelRunner):
    """Skips the drafter when a draft token would not fit into max_model_len."""

    def _draft(self, output, inputs, sampled):
        if any(scheduled.end_token + 1 > MAX_MODEL_LEN for scheduled in output.requests):
            return sampled
        return super()._draft(output, inputs, sampled)


class ClearsBeforeTheDrafter(ModelRunner):
    """Finalises the connector when the forward pass is over."""

    def _forward(self, inputs):
        normed = super()._forward(inputs)
        self._connector.clear()
        return normed


class NoneAsNoBlocks(InputBatch):
    """Takes a step without new blocks as one whose block table is empty."""

    def _set_table(self, request_id, block_ids):
        super()._set_table(request_id, block_ids or ())


class SlicesByOffset(InputBatch):
    """Finds a request's slots by its offset in the batch, as if all blocks were one request's."""

    def _slots(self, tables, lens, positions):
        return super()._slots([np.concatenate(tables)], np.array([len(positions)]), np.arange(len(positions)))


def with_runner(runner_class: type[ModelRunner]) -> type[Engine]:
    """An engine with another model runner."""

    class Mutated(Engine):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.runner.__class__ = runner_class

    return Mutated


def with_input_batch(batch_class: type[InputBatch]) -> type[Engine]:
    """An engine with another input batch."""

    class Mutated(Engine):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.runner._input_batch.__class__ = batch_class

    return Mutated


@pytest.fixture
def check_max_model_len(make_engine, random_requests, assert_equal_states):
    """A request of max_model_len, prefilled or decoded to it, and its neighbours are captured whole."""

    def check(engine_class: type[Engine], max_tokens: int) -> None:
        lengths = (40, MAX_MODEL_LEN - max(max_tokens, 1) + 1, 7)
        requests = random_requests(lengths, max_tokens=max_tokens)
        under_test = make_engine(engine_class=engine_class, max_tokens=max_tokens, max_num_batched_tokens=500)
        under_test.engine.run(requests)
        samples = under_test.samples()
        assert len(samples[1].end.token_ids) == MAX_MODEL_LEN
        for request in requests:
            assert_equal_states(samples[request.request_id], request)

    return check


@pytest.fixture
def check_metadata_is_bound(make_engine, random_requests, assert_equal_states):
    """Metadata is bound before the forward pass, there when the drafter runs, and cleared once, after it."""

    def check(engine_class: type[Engine]) -> None:
        under_test = make_engine(engine_class=engine_class, max_tokens=2, max_num_batched_tokens=30)
        calls = record_calls(under_test.engine)
        requests = [*random_requests((50, 3)), *random_requests([20], max_tokens=2)]
        requests = [Request(row, r.prompt_token_ids, max_tokens=r.max_tokens) for row, r in enumerate(requests)]
        under_test.engine.run(requests)
        assert calls == ["bind", "forward", "save", "clear"] * under_test.engine.scheduler_counters.steps
        for request in requests:
            assert_equal_states(under_test.samples()[request.request_id], request)

    return check


@pytest.fixture
def check_steps_without_new_blocks(make_engine, random_requests, assert_equal_states):
    """Requests that get no new block in a step, while others start, end, abort and come back in it."""

    def check(engine_class: type[Engine]) -> None:
        under_test = make_engine(
            engine_class=engine_class, max_tokens=9, max_num_batched_tokens=20, block_size=8, num_blocks=30
        )
        engine = under_test.engine
        first, aborted, *rest = random_requests((21, 45, 13, 9), max_tokens=9)
        engine.add_request(first)
        engine.add_request(aborted)
        while engine.scheduler_counters.without_new_blocks < 2:
            engine.step()
        assert engine.abort(aborted.request_id)
        engine.run([*rest, aborted_again(aborted)])
        assert engine.scheduler_counters.without_new_blocks > 10
        samples = under_test.samples()
        assert sorted(samples) == [0, 1, 2, 3]
        for request in (first, aborted, *rest):
            assert_equal_states(samples[request.request_id], request)

    return check


@pytest.fixture
def check_concurrent_requests(tiny_decoder, plan_of, random_requests, assert_equal_states):
    """Many concurrent asynchronous requests: ids and shapes are each request's own."""

    def check(engine_class: type[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("drillcore_server.engine.async_engine.Engine", engine_class)
        config = EngineConfig(max_model_len=64, num_blocks=200, block_size=8, max_num_batched_tokens=90)
        requests = random_requests(np.random.default_rng(0).integers(1, 40, 60))

        async def submit_all():
            async with AsyncEngine(tiny_decoder, plan_of(tiny_decoder), config) as engine:
                return await asyncio.gather(*map(engine.submit, requests))

        for request, sample in zip(requests, asyncio.run(submit_all()), strict=True):
            assert_equal_states(sample, request)

    return check


def record_calls(engine: Engine) -> list[str]:
    """The order in which a step's stations are passed, from now on."""
    calls: list[str] = []

    def watch(owner, method, name):
        original = getattr(owner, method)

        def called(*args, **kwargs):
            calls.append(name)
            return original(*args, **kwargs)

        setattr(owner, method, called)

    watch(engine.connector, "bind", "bind")
    watch(engine.connector, "save", "save")
    watch(engine.connector, "clear", "clear")
    watch(engine.drafter, "begin", "forward")
    return calls


def aborted_again(request: Request) -> Request:
    """The same row, queued anew."""
    return Request(request.request_id, request.prompt_token_ids, max_tokens=request.max_tokens)


@pytest.mark.parametrize("max_tokens", [0, 1, 3])
def test_a_request_of_max_model_len_and_its_neighbours_are_captured(check_max_model_len, max_tokens):
    check_max_model_len(Engine, max_tokens)


@pytest.mark.parametrize("max_tokens", [0, 1, 3])
def test_a_guard_that_skips_the_drafter_is_noticed(check_max_model_len, max_tokens):
    with pytest.raises(StepNotSaved):
        check_max_model_len(with_runner(FitsGuard), max_tokens)


def test_metadata_stays_bound_until_the_drafter_has_run(check_metadata_is_bound):
    check_metadata_is_bound(Engine)


def test_metadata_cleared_before_the_drafter_is_noticed(check_metadata_is_bound):
    with pytest.raises(StepNotBound):
        check_metadata_is_bound(with_runner(ClearsBeforeTheDrafter))


@pytest.mark.parametrize("station", ["_forward", "_sample", "_draft"])
def test_metadata_is_cleared_once_when_a_step_fails(make_engine, random_requests, monkeypatch, station):
    engine = make_engine().engine
    calls = record_calls(engine)
    engine.add_request(random_requests([5])[0])

    def fail(*_):
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(engine.runner, station, fail)
    with pytest.raises(RuntimeError, match="the device is lost"):
        engine.step()

    assert calls[0] == "bind"
    assert calls.count("clear") == 1


def test_steps_without_new_blocks_keep_the_block_table(check_steps_without_new_blocks):
    check_steps_without_new_blocks(Engine)


def test_no_new_blocks_taken_as_no_blocks_is_noticed(check_steps_without_new_blocks):
    with pytest.raises(IndexError):
        check_steps_without_new_blocks(with_input_batch(NoneAsNoBlocks))


def test_concurrent_requests_get_their_own_states(check_concurrent_requests, monkeypatch):
    check_concurrent_requests(Engine, monkeypatch)


def test_slicing_by_offset_instead_of_by_request_is_noticed(check_concurrent_requests, monkeypatch):
    with pytest.raises((AssertionError, SampleQuarantined)):
        check_concurrent_requests(with_input_batch(SlicesByOffset), monkeypatch)
