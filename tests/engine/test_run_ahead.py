"""Steps in flight, copies that land late, a full sink, aborts at any moment: nothing is lost, mixed up or leaked."""

from __future__ import annotations

import numpy as np
import pytest

from drillcore_server.connector.list_sink import ExtractedSample
from drillcore_server.connector.shipping import Shipper
from drillcore_server.engine import Request
from drillcore_spec.enums import PositionsKind

KINDS = (PositionsKind.ALL, PositionsKind.ALL, PositionsKind.LAST, PositionsKind.LOSS_MASK)


@pytest.fixture
def mixed_requests():
    """`mixed_requests(rng, n)`: every kind of positions, some with generated tokens, many with a common prefix."""

    def make(rng: np.random.Generator, count: int, max_tokens: int) -> list[Request]:
        prefixes = [rng.integers(0, 256, length) for length in (0, 9, 24)]
        requests = []
        for row in range(count):
            prompt = np.concatenate((prefixes[row % 3], rng.integers(0, 256, int(rng.integers(1, 60)))))
            requests.append(
                Request(
                    row,
                    prompt,
                    positions=KINDS[int(rng.integers(0, 4))],
                    loss_mask=rng.integers(0, 2, len(prompt)).astype(np.uint8),
                    max_tokens=int(rng.integers(0, max_tokens + 1)),
                )
            )
        return requests

    return make


def limits_of(rng: np.random.Generator) -> dict[str, int | bool]:
    """Random limits under which every request fits."""
    return {
        "block_size": 8,
        "num_blocks": int(rng.integers(14, 60)),
        "max_num_batched_tokens": int(rng.choice([5, 30, 200, 1000])),
        "max_num_seqs": int(rng.integers(1, 20)),
        "prefix_caching": bool(rng.integers(0, 2)),
        "look_ahead": int(rng.integers(1, 20)),
        "max_tokens": 3,
    }


@pytest.mark.parametrize("seed", range(12))
def test_every_sample_is_whole_whatever_lands_late_and_whenever_the_sink_is_full(
    late_engine, mixed_requests, assert_equal_states, seed
):
    rng = np.random.default_rng(seed)
    engine, sink = late_engine(rng, capacity_states=int(rng.choice([1, 20, 300])), **limits_of(rng))
    requests = mixed_requests(rng, 40, max_tokens=3)

    engine.run(requests)
    sink.drain()

    engine.check_integrity()
    assert engine.kv.pool.num_available == engine.config.num_blocks - 1
    assert sorted(sink.samples) == [r.request_id for r in requests if selects_something(r)]
    assert {entry.row for entry in sink.quarantined} == set(range(40)) - set(sink.samples)
    for row, sample in sink.samples.items():
        assert_equal_states(ExtractedSample(*sample), requests[row])


def selects_something(request) -> bool:
    """Whether a request asks for the state of any of its tokens; generated ones count as supervised."""
    generates_state = request.max_tokens > 1
    return request.positions is not PositionsKind.LOSS_MASK or bool(request.loss_mask.any()) or generates_state


@pytest.mark.parametrize("seed", range(12))
def test_an_abort_in_any_state_is_harmless(late_engine, mixed_requests, assert_equal_states, seed):
    rng = np.random.default_rng(100 + seed)
    engine, sink = late_engine(rng, capacity_states=40, **limits_of(rng))
    requests = mixed_requests(rng, 60, max_tokens=3)
    waiting, aborted = list(requests), set()

    while waiting or engine.has_unfinished:
        if waiting and rng.random() < 0.5:
            engine.add_request(waiting.pop())
        elif rng.random() < 0.2:
            victim = int(rng.integers(0, 70))
            aborted |= {victim} if engine.abort(victim) else set()
            assert not engine.abort(victim), "an aborted request was aborted again"
        elif not engine.step() and engine.has_unfinished:
            engine.wait()
        engine.check_integrity()
    sink.drain()

    assert len(aborted) > 3
    assert engine.kv.pool.num_available == engine.config.num_blocks - 1
    assert set(sink.samples) >= set(range(60)) - aborted
    for row, sample in sink.samples.items():
        assert_equal_states(ExtractedSample(*sample), requests[row])


def test_an_aborted_request_can_come_back_under_its_id(late_engine, mixed_requests, assert_equal_states):
    rng = np.random.default_rng(5)
    engine, sink = late_engine(rng, capacity_states=300, **limits_of(rng))
    requests = mixed_requests(rng, 20, max_tokens=0)
    for request in requests:
        engine.add_request(request)
    for _ in range(3):
        engine.step()
    aborted = [r for r in requests[:15] if engine.abort(r.request_id)]
    while engine.has_unfinished:
        if not engine.step() and engine.has_unfinished:
            engine.wait()

    engine.run([r for r in aborted if r.request_id not in sink.samples])
    sink.drain()

    for request in requests:
        assert_equal_states(ExtractedSample(*sink.samples[request.request_id]), request)


def test_blocks_freed_before_their_copies_have_landed_are_noticed(late_engine, assert_equal_states, monkeypatch):
    """The mutation of the rule that a block is reused only after the landing of its last copy."""

    def release_at_once(shipper: Shipper, sample) -> None:
        if sample.closed and not sample.aborted:
            shipper._released.append(sample)
            sample.aborted = True

    monkeypatch.setattr(Shipper, "_release_if_done", release_at_once)
    rng = np.random.default_rng(0)
    engine, sink = late_engine(rng, capacity_states=300, max_model_len=64, num_blocks=9, block_size=8)
    rows = [Request(row, rng.integers(0, 256, 50)) for row in range(30)]

    engine.run(rows)
    sink.drain()

    with pytest.raises(AssertionError, match="rows differ"):  # noqa: PT012 - any of the samples may be wrong
        for request in rows:
            assert_equal_states(ExtractedSample(*sink.samples[request.request_id]), request)


def test_a_full_sink_stops_admission(late_engine, random_requests, monkeypatch):
    rng = np.random.default_rng(0)
    engine, sink = late_engine(rng, capacity_states=30, max_num_batched_tokens=40)
    monkeypatch.setattr(sink, "_consume", lambda _: None)
    for request in random_requests([20] * 50):
        engine.add_request(request)

    for _ in range(100):
        engine.step()

    assert not sink.has_room()
    assert engine.scheduler.num_waiting > 0
    steps = engine.scheduler_counters.steps
    engine.step()
    assert engine.scheduler_counters.steps == steps


def test_reset_forgets_every_request_and_frees_every_block(late_engine, mixed_requests):
    rng = np.random.default_rng(0)
    engine, _ = late_engine(rng, **limits_of(rng))
    requests = mixed_requests(rng, 40, max_tokens=3)
    for request in requests:
        engine.add_request(request)
    for _ in range(5):
        engine.step()

    engine.reset()

    assert not engine.has_unfinished
    engine.check_integrity()
    assert engine.kv.pool.num_available == engine.config.num_blocks - 1
    engine.add_request(requests[0])


@pytest.mark.parametrize("failing", ["poll", "reserve", "seal", "end_sample"])
def test_after_a_sink_failed_and_a_reset_every_request_can_be_served_anew(
    make_engine, mixed_requests, assert_equal_states, monkeypatch, failing
):
    rng = np.random.default_rng(1)
    under_test = make_engine(**limits_of(rng))
    engine, sink = under_test.engine, under_test.sink
    requests = mixed_requests(rng, 40, max_tokens=3)
    calls = 0

    def fail_at_the_tenth_call(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 10:
            raise ConnectionError("the consumer is gone")
        return original(*args, **kwargs)

    original = getattr(sink, failing)
    monkeypatch.setattr(sink, failing, fail_at_the_tenth_call)
    with pytest.raises(ConnectionError):
        engine.run(requests)

    engine.reset()
    sink.__init__(sink._shape)
    engine.run(requests)

    assert len(under_test.samples()) == 40
    for request in requests:
        assert_equal_states(under_test.samples()[request.request_id], request)
