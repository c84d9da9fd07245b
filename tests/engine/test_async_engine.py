"""Asynchronous requests of this process: awaited, aborted, cancelled, refused, and all failed by a broken engine."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from drillcore_server.engine import (
    AsyncEngine,
    EngineConfig,
    EngineStopped,
    Request,
    RequestAborted,
    RequestRefused,
    RequestTooLarge,
)

NUM_REQUESTS = 10_000


@pytest.fixture
def async_engine(tiny_decoder, plan_of):
    """`async_engine(budget)`: not started."""

    def make(budget: int = 64, num_blocks: int = 300) -> AsyncEngine:
        config = EngineConfig(
            max_model_len=64,
            num_blocks=num_blocks,
            block_size=8,
            max_num_batched_tokens=budget,
            max_tokens=4,
        )
        return AsyncEngine(tiny_decoder, plan_of(tiny_decoder), config)

    return make


@pytest.fixture(scope="module")
def prompts() -> list[np.ndarray]:
    """300 prompts of 1 to 44 tokens, in groups with a common beginning."""
    rng = np.random.default_rng(0)
    beginnings = [rng.integers(0, 256, length) for length in (0, 8, 16, 30)]
    return [np.concatenate((beginnings[i % 4], rng.integers(0, 256, int(rng.integers(1, 15))))) for i in range(300)]


def test_ten_thousand_concurrent_requests_all_get_their_own_ids_and_states(async_engine, prompts, assert_equal_states):
    rng = np.random.default_rng(1)
    picks = rng.integers(0, len(prompts), NUM_REQUESTS)
    requests = [Request(i, prompts[p], max_tokens=int(p) % 5) for i, p in enumerate(picks)]
    victims = np.sort(rng.choice(NUM_REQUESTS, 600, replace=False)).tolist()

    async def serve() -> tuple[list, AsyncEngine]:
        async with async_engine(budget=512) as engine:
            futures = [engine.submit(request) for request in requests]
            for victim in victims:
                await asyncio.wait(futures[max(0, victim - 50) : victim + 1], return_when="FIRST_COMPLETED")
                engine.abort(victim)
            return await asyncio.gather(*futures, return_exceptions=True), engine

    outcomes, engine = asyncio.run(serve())

    aborted = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, RequestAborted)]
    assert set(aborted) <= set(victims)
    for request, outcome in zip(requests, outcomes, strict=True):
        if request.request_id not in set(aborted):
            assert_equal_states(outcome, request)
    scheduled, prefixes = engine.engine.scheduler_counters, engine.engine.prefix_counters
    assert scheduled.without_new_blocks >= 1000
    assert len(aborted) >= 100
    assert scheduled.chunks >= 50
    assert prefixes.hits >= 1000
    engine.engine.check_integrity()
    assert engine.engine.kv.pool.num_available == engine.engine.config.num_blocks - 1


def test_a_request_is_awaited(async_engine, prompts, assert_equal_states):
    request = Request(3, prompts[0], max_tokens=2)

    async def serve():
        async with async_engine() as engine:
            return await engine.submit(request)

    assert_equal_states(asyncio.run(serve()), request)


def test_a_cancelled_future_aborts_its_request_and_nobody_else(async_engine, prompts, assert_equal_states):
    requests = [Request(i, prompts[i], max_tokens=4) for i in range(20)]

    async def serve():
        async with async_engine(budget=10) as engine:
            futures = [engine.submit(request) for request in requests]
            for future in futures[::2]:
                future.cancel()
            samples = await asyncio.gather(*futures[1::2])
        return samples, engine

    samples, engine = asyncio.run(serve())

    assert engine.engine.counters.aborted > 0
    for request, sample in zip(requests[1::2], samples, strict=True):
        assert_equal_states(sample, request)


def test_an_id_can_be_used_again_once_its_request_has_ended(async_engine, prompts):
    async def serve():
        async with async_engine() as engine:
            first = await engine.submit(Request(0, prompts[0]))
            with pytest.raises(RequestRefused, match="request 1: its id must not be in use"):
                await asyncio.gather(engine.submit(Request(1, prompts[1])), engine.submit(Request(1, prompts[1])))
            return first, await engine.submit(Request(0, prompts[0]))

    first, second = asyncio.run(serve())

    assert first.hidden_states.equal(second.hidden_states)


def test_a_request_that_is_too_large_fails_alone(async_engine, prompts):
    async def serve():
        async with async_engine() as engine:
            large = engine.submit(Request(0, np.zeros(65, dtype=np.int64)))
            small = engine.submit(Request(1, prompts[0]))
            return await asyncio.gather(large, small, return_exceptions=True)

    large, small = asyncio.run(serve())

    assert isinstance(large, RequestTooLarge)
    assert small.end.row == 1


def test_an_abort_of_an_unknown_id_is_harmless(async_engine, prompts):
    async def serve():
        async with async_engine() as engine:
            engine.abort(77)
            return await engine.submit(Request(0, prompts[0]))

    assert asyncio.run(serve()).end.row == 0


def test_what_is_unfinished_fails_when_the_engine_is_stopped(async_engine, prompts):
    async def serve():
        async with async_engine(budget=1) as engine:
            futures = [engine.submit(Request(i, prompts[i])) for i in range(50)]
        return engine, await asyncio.gather(*futures, return_exceptions=True)

    engine, outcomes = asyncio.run(serve())

    assert any(isinstance(outcome, EngineStopped) for outcome in outcomes)
    with pytest.raises(EngineStopped, match="the engine is not running"):
        engine.submit(Request(99, prompts[0]))


def test_a_failure_of_the_engine_reaches_everybody_who_waits(async_engine, prompts, monkeypatch):
    async def serve():
        async with async_engine() as engine:

            def fail():
                raise RuntimeError("the device is lost")

            monkeypatch.setattr(engine.engine, "step", fail)
            futures = [engine.submit(Request(i, prompts[i])) for i in range(3)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            engine._thread.join()
            with pytest.raises(EngineStopped) as stopped:
                engine.submit(Request(9, prompts[0]))
            return outcomes, stopped.value.__cause__

    outcomes, cause = asyncio.run(serve())

    assert {str(outcome) for outcome in outcomes} == {"the device is lost"}
    assert str(cause) == "the device is lost"
