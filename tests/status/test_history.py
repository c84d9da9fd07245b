"""Throughput over time in bounded memory."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from drillcore_status.history import MAX_SAMPLES, ThroughputHistory
from drillcore_status.views import ThroughputSample


def _sample(time_s: float) -> ThroughputSample:
    return ThroughputSample(time_seconds=time_s, rows_done=int(time_s), tokens=int(time_s), bytes=0)


@given(st.lists(st.floats(0.01, 300), max_size=600))
def test_it_is_bounded_ordered_and_always_has_the_first_and_the_last_sample(steps):
    history = ThroughputHistory()
    time_s = 0.0
    for step in steps:
        time_s += step
        history.add(_sample(time_s))
    samples = history.samples()
    assert len(samples) <= MAX_SAMPLES
    assert list(samples) == sorted(samples, key=lambda sample: sample.time_seconds)
    if steps:
        assert samples[-1] == _sample(time_s)
        assert samples[0] == _sample(steps[0])


def test_a_long_job_is_covered_evenly():
    history = ThroughputHistory()
    for second in range(100_000):
        history.add(_sample(float(second)))
    times = [sample.time_seconds for sample in history.samples()]
    gaps = [later - earlier for earlier, later in pairwise(times[:-1])]
    assert len(times) > MAX_SAMPLES / 3
    assert max(gaps) <= 2 * min(gaps)
