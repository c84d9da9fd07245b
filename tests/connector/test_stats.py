"""Sums of norms, largest values and faults of a step's states, request by request."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore.records import QuarantineReason
from drillcore_server.connector.stats import fetch_stats, reduce_stats

COLUMNS = 3
NEVER_ZERO = np.array([False, True, True])


def stats_of(states: np.ndarray) -> np.ndarray:
    """[P, C, 2] of states [P, C, D], as the kernels give them."""
    return np.stack((np.linalg.norm(states, axis=-1), np.abs(states).max(axis=-1)), axis=-1).astype(np.float32)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(0, 2**31))
def test_each_request_has_the_statistics_of_its_own_states(counts, seed):
    states = np.random.default_rng(seed).normal(size=(sum(counts), COLUMNS, 5))

    reduced = reduce_stats(stats_of(states), np.array(counts), NEVER_ZERO)

    start = 0
    for row, count in enumerate(counts):
        own = states[start : start + count]
        start += count
        assert np.allclose(reduced.norm_sums[row], np.linalg.norm(own, axis=-1).sum(axis=0), rtol=1e-6)
        assert np.allclose(reduced.max_abs[row], np.abs(own).max(axis=(0, 2)), rtol=1e-6)
    assert reduced.norm_sums.dtype == reduced.max_abs.dtype == np.float64
    assert reduced.faults == {}


def test_sums_do_not_lose_small_norms_beside_large_ones():
    stats = np.ones((100_001, 1, 2), dtype=np.float32)
    stats[0] = 2.0**26

    reduced = reduce_stats(stats, np.array([100_001]), np.array([True]))

    assert reduced.norm_sums[0, 0] == 2**26 + 100_000


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("column", range(COLUMNS))
def test_one_value_that_is_not_finite_is_found(value, column):
    stats = np.ones((9, COLUMNS, 2), dtype=np.float32)
    stats[5, column] = value

    reduced = reduce_stats(stats, np.array([2, 3, 4]), NEVER_ZERO)

    assert reduced.faults == {2: (QuarantineReason.NON_FINITE_STATE, column)}


def test_a_state_of_zeros_is_a_fault_where_it_cannot_be_one():
    for column, faults in ((0, {}), (2, {1: (QuarantineReason.ZERO_STATE, 2)})):
        stats = np.ones((6, COLUMNS, 2), dtype=np.float32)
        stats[4, column] = 0

        assert reduce_stats(stats, np.array([3, 3]), NEVER_ZERO).faults == faults


def test_a_state_whose_norm_overflows_but_whose_values_do_not_is_fine():
    stats = np.ones((1, COLUMNS, 2), dtype=np.float32)
    stats[0, 1] = (np.inf, 1e30)

    assert reduce_stats(stats, np.array([1]), NEVER_ZERO).faults == {}


def test_the_statistics_of_the_named_slots_are_fetched():
    stats = torch.arange(4 * 2 * COLUMNS * 2, dtype=torch.float32).view(4, 2, COLUMNS, 2)

    fetched = fetch_stats(stats, torch.tensor([7, 2]))

    assert fetched.equal(torch.stack((stats[3, 1], stats[1, 0])))
