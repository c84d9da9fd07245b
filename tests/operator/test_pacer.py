"""What somebody else undoes again and again is done less and less often."""

from __future__ import annotations

import pytest

from drillcore_operator.keys import JobKey
from drillcore_operator.pacer import CALM_S, FREE, MAX_WAIT_S, Pacer

KEY = JobKey("default", "job")


class Clock:
    """A clock that a test moves."""

    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_first_few_cost_no_wait(clock: Clock) -> None:
    pacer = Pacer(clock)
    for _ in range(FREE):
        assert pacer.wait_s(KEY) == 0
        pacer.did(KEY)
    assert pacer.wait_s(KEY) > 0


def test_a_fight_of_an_hour_costs_few_actions_and_never_ends_for_good(clock: Clock) -> None:
    pacer, count = Pacer(clock), 0
    while clock.now_s < 50 + 3600:
        if (wait_s := pacer.wait_s(KEY)) > 0:
            assert wait_s <= MAX_WAIT_S
            clock.now_s += wait_s
            continue
        pacer.did(KEY)
        count += 1
    assert 10 < count < 30


def test_other_jobs_and_later_days_are_free(clock: Clock) -> None:
    pacer = Pacer(clock)
    for _ in range(FREE + 2):
        pacer.did(KEY)
    assert pacer.wait_s(JobKey("default", "other")) == 0
    clock.now_s += CALM_S + 1
    assert pacer.wait_s(KEY) == 0
    pacer.did(KEY)
    assert pacer.wait_s(KEY) == 0


def test_a_job_that_is_gone_is_forgotten(clock: Clock) -> None:
    pacer = Pacer(clock)
    for _ in range(FREE):
        pacer.did(KEY)
    pacer.forget(KEY)
    assert pacer.wait_s(KEY) == 0
