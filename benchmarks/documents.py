"""The documents of the workloads: how long they are, and how they fill steps."""

from __future__ import annotations

import numpy as np

NUM_DOCUMENTS = 512


def document_lengths(seed: int, count: int = NUM_DOCUMENTS) -> list[int]:
    """Give the lengths of W1's documents in tokens: lognormal, median 900, sigma 0.8, within 32..4096."""
    drawn = np.random.default_rng(seed).lognormal(np.log(900.0), 0.8, count)
    return [int(length) for length in drawn.clip(32, 4096)]


def pack(lengths: list[int], budget: int) -> list[list[int]]:
    """Give the documents of each step, first fit decreasing, so that steps are nearly full."""
    steps: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        step = next((step for step in steps if sum(step) + length <= budget), None)
        if step is None:
            steps.append([length])
        else:
            step.append(length)
    return steps
