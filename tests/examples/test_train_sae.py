"""A sparse autoencoder, trained as the example does, learns what states have in common and not how to copy."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "examples/train_sae.py"
MIN_EXPLAINED = 0.8
MAX_EXPLAINED_OF_NOISE = 0.62


@pytest.fixture(scope="module")
def train_sae():
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("train_sae", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_sae"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["train_sae"]


def test_explained_variance_is_one_for_a_copy_and_zero_for_the_mean(train_sae):
    states = torch.randn(100, 8) + 3

    assert train_sae.explained_variance(lambda x: x, states) == 1
    assert train_sae.explained_variance(lambda x: x.mean(dim=0).expand_as(x), states) == pytest.approx(0)


def test_noise_has_the_mean_and_variance_of_each_element(train_sae):
    states = torch.randn(20_000, 4) * torch.tensor([1.0, 2, 3, 4]) + torch.tensor([4.0, 3, 2, 1])

    noise = train_sae.noise_like(states)

    torch.testing.assert_close(noise.mean(dim=0), states.mean(dim=0), atol=0.1, rtol=0)
    torch.testing.assert_close(noise.std(dim=0), states.std(dim=0), atol=0, rtol=0.05)


@pytest.mark.demo
@pytest.mark.timeout(1800)
def test_held_out_states_are_explained_and_noise_is_not(run_example, train_sae):
    trained_on, held_out = run_example("sae").path, run_example("sae-held-out").path

    explained = train_sae.train_and_explain(trained_on, held_out)

    assert explained.held_out >= MIN_EXPLAINED
    assert explained.noise <= MAX_EXPLAINED_OF_NOISE
