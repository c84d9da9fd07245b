"""The criterion of equal states fails for each of the faults that it is there to find."""

from __future__ import annotations

import pytest
import torch

TOKENS = list(range(5, 65))


@pytest.fixture
def states(tiny_model_folder, reference_states):
    return reference_states(tiny_model_folder("llama"), TOKENS)


@pytest.mark.parametrize("i", range(4))
def test_it_passes_for_equal_states_with_rounding(states, row_criterion, i):
    row_criterion(states.residual[i], states.residual[i])
    row_criterion(states.residual[i] * (1 + 1e-5), states.residual[i])
    row_criterion(states.residual[i].bfloat16(), states.residual[i], 5e-3)


@pytest.mark.parametrize("tolerance", [2e-5, 5e-3])
@pytest.mark.parametrize(("got", "wanted"), [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)])
def test_it_fails_for_the_neighbouring_layer(states, row_criterion, got, wanted, tolerance):
    with pytest.raises(AssertionError, match="60 of 60 rows differ"):
        row_criterion(states.residual[got], states.residual[wanted], tolerance)


@pytest.mark.parametrize("tolerance", [2e-5, 5e-3])
@pytest.mark.parametrize("i", range(4))
def test_it_fails_for_rows_shifted_by_one(states, row_criterion, i, tolerance):
    with pytest.raises(AssertionError, match="rows differ"):
        row_criterion(states.residual[i].roll(1, dims=0), states.residual[i], tolerance)


@pytest.mark.parametrize("tolerance", [2e-5, 5e-3])
def test_it_tells_the_final_norm_from_the_last_residual(states, row_criterion, tolerance):
    for got, wanted in ((states.final_norm, states.residual[3]), (states.residual[3], states.final_norm)):
        with pytest.raises(AssertionError, match="60 of 60 rows differ"):
            row_criterion(got, wanted, tolerance)


def test_a_huge_first_token_does_not_hide_a_wrong_row(states, row_criterion):
    """SmolLM2's first token has a state 3,000 times larger than the rest."""
    wanted = states.residual[2].clone()
    wanted[0] *= 3000
    got = wanted.clone()
    got[40] = states.residual[1][40]
    with pytest.raises(AssertionError, match=r"1 of 60 rows differ, the first is \[40\]"):
        row_criterion(got, wanted)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_it_fails_for_values_that_are_not_finite(states, row_criterion, bad):
    got = states.residual[1].clone()
    got[7, 3] = bad
    with pytest.raises(AssertionError, match=r"\[7\]"):
        row_criterion(got, states.residual[1])


def test_it_fails_for_missing_rows(states, row_criterion):
    with pytest.raises(AssertionError):
        row_criterion(states.residual[1][:-1], states.residual[1])
