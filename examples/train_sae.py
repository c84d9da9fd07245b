"""Train a small sparse autoencoder on one layer's states, and see how much it explains of texts that it has not seen.

    drillcore run examples/jobs/sae.yaml && drillcore run examples/jobs/sae-held-out.yaml
    python examples/train_sae.py volumes/outputs/sae volumes/outputs/sae-held-out

A top-k sparse autoencoder: of all latents only the k largest may speak for a state (Gao et al. 2024, "Scaling and
evaluating sparse autoencoders", section 2.3). For comparison it is shown noise with the mean and variance of each
element of the held-out states: what it explains of that, it would explain of anything.

B batch, D hidden size of the model, F latents.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import drillcore

NUM_LATENTS = 1024
NUM_ACTIVE = 112
NUM_EPOCHS = 7
BATCH_SIZE = 256
LEARNING_RATE = 2e-3


@dataclass(frozen=True)
class Explained:
    """Share of the variance that is explained, at most 1."""

    held_out: float
    noise: float


class TopKAutoencoder(torch.nn.Module):
    """F directions of which the k that fit a state best make it up."""

    def __init__(self, hidden_size: int, num_latents: int, num_active: int) -> None:
        super().__init__()
        directions = torch.nn.functional.normalize(torch.randn(num_latents, hidden_size), dim=1)
        self.encoder = torch.nn.Parameter(directions.clone())
        self.decoder = torch.nn.Parameter(directions)
        self.latent_bias = torch.nn.Parameter(torch.zeros(num_latents))
        self.center = torch.nn.Parameter(torch.zeros(hidden_size))
        self.num_active = num_active

    def forward(self, states: Tensor) -> Tensor:
        """The states [B, D], made of `num_active` latents each."""
        latents = torch.relu((states - self.center) @ self.encoder.T + self.latent_bias)
        strongest = latents.topk(self.num_active, dim=1)
        latents = torch.zeros_like(latents).scatter(1, strongest.indices, strongest.values)
        return latents @ self.decoder + self.center


def train(output: drillcore.Output, layer: int, mean_norm: float) -> TopKAutoencoder:
    """An autoencoder of the layer's states, each divided by `mean_norm`."""
    torch.manual_seed(0)
    autoencoder = TopKAutoencoder(output.manifest.hidden_size, NUM_LATENTS, NUM_ACTIVE)
    optimizer = torch.optim.Adam(autoencoder.parameters(), LEARNING_RATE)
    num_steps = NUM_EPOCHS * -(-output.counts.states // BATCH_SIZE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=num_steps, pct_start=0.1)
    for epoch in range(NUM_EPOCHS):
        for states in batches(output, layer, mean_norm, seed=epoch):
            if schedule.last_epoch == 0:
                autoencoder.center.data = states.mean(dim=0)
            loss = (autoencoder(states) - states).square().sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            autoencoder.decoder.data = torch.nn.functional.normalize(autoencoder.decoder.data, dim=1)
    return autoencoder


def batches(output: drillcore.Output, layer: int, mean_norm: float, seed: int) -> Iterator[Tensor]:
    """One epoch of states [B, D] in random order, each divided by `mean_norm`."""
    for states in output.activations(layer, BATCH_SIZE, shuffle_buffer=1 << 16, seed=seed):
        yield torch.from_numpy(states.astype(np.float32)) / mean_norm


def explained_variance(autoencoder: TopKAutoencoder, states: Tensor) -> float:
    """1 - |x - reconstruction|^2 / |x - mean|^2, both summed over all states [B, D]."""
    with torch.no_grad():
        missed = (autoencoder(states) - states).square().sum()
    return 1 - float(missed / (states - states.mean(dim=0)).square().sum())


def noise_like(states: Tensor) -> Tensor:
    """Normal noise with the mean and variance of each element of the states."""
    noise = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    return states.mean(dim=0) + states.std(dim=0) * noise


def train_and_explain(trained_on: str, held_out: str) -> Explained:
    """What an autoencoder of one output explains of another: outputs of one layer, not necessarily finished."""
    output = drillcore.open(trained_on, allow_incomplete=True)
    layer = output.manifest.layers[0]
    mean_norm = output.activations(layer, BATCH_SIZE).mean_norm
    autoencoder = train(output, layer, mean_norm)
    states = torch.cat(list(batches(drillcore.open(held_out), layer, mean_norm, seed=0)))
    return Explained(explained_variance(autoencoder, states), explained_variance(autoencoder, noise_like(states)))


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trained_on", help="output folder to learn from")
    parser.add_argument("held_out", help="output folder of other texts")
    arguments = parser.parse_args()
    start_s = time.monotonic()
    explained = train_and_explain(arguments.trained_on, arguments.held_out)
    print(f"explained variance of held-out states  {explained.held_out:.3f}")
    print(f"explained variance of noise            {explained.noise:.3f}")
    print(f"seconds                                {time.monotonic() - start_s:.1f}")


if __name__ == "__main__":
    main()
