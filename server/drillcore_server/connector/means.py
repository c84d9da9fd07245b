"""Means over whole samples: reduced on the device, checked on the host, then shipped like any other state.

    finished ──► pending ──► kernel and copy under way ──► mean and its statistics on the host: ready to ship

A mean is a single state, so its way over host memory costs nothing, and its norm is known before the sample ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from drillcore.records import QuarantineReason
from drillcore_server.connector.copies import StateCopier
from drillcore_server.connector.host_memory import Landing
from drillcore_server.connector.sample import Sample


@dataclass(frozen=True, slots=True, eq=False)
class ReductionUnderWay:
    """Means that were started in one poll."""

    samples: tuple[Sample, ...]
    means: torch.Tensor
    """[B, C, D] in host memory, in the store dtype; valid when landed."""
    landing: Landing


class MeanReducer:
    """Samples between their last token and their mean. Holds their blocks' content until `poll` gives them back."""

    def __init__(self, copier: StateCopier) -> None:
        self._copier = copier
        self._pending: list[Sample] = []
        self._under_way: list[ReductionUnderWay] = []

    @property
    def is_reducing(self) -> bool:
        """Whether means are under way."""
        return bool(self._under_way)

    def __contains__(self, sample: Sample) -> bool:
        return any(sample in samples for samples in (self._pending, *(r.samples for r in self._under_way)))

    def add(self, sample: Sample) -> None:
        """A sample whose tokens' states are all computed; the next `poll` starts its mean.

        Raises:
            StatesMissing: a token has no state.
        """
        if sample.text is not None:
            sample.require_every_token(sample.text)
        self._pending.append(sample)

    def poll(self) -> list[Sample]:
        """Starts what is pending; gives the samples whose means, and their statistics, have arrived."""
        if self._pending:
            samples, self._pending = tuple(self._pending), []
            means = self._copier.means([sample.ready_slots() for sample in samples])
            self._under_way.append(ReductionUnderWay(samples, means, self._copier.mark()))
        arrived: list[Sample] = []
        while self._under_way and self._under_way[0].landing.query():
            arrived += _finished(self._under_way.pop(0))
        return arrived

    def wait(self) -> None:
        """Blocks until the oldest means have arrived; there must be some."""
        self._under_way[0].landing.synchronize()

    def clear(self) -> None:
        """Forgets every sample; its copies must have landed."""
        self._pending.clear()
        self._under_way.clear()


def _finished(reduction: ReductionUnderWay) -> tuple[Sample, ...]:
    values = reduction.means.double()
    norms = torch.linalg.vector_norm(values, dim=-1).numpy()
    largest = values.abs().amax(dim=-1).numpy()
    for index, sample in enumerate(reduction.samples):
        sample.take_mean(reduction.means[index : index + 1], norms[index], largest[index])
        if not np.isfinite(largest[index]).all():
            sample.reject(QuarantineReason.NON_FINITE_STATE, "the mean of the states must be finite; their sum is not")
    return reduction.samples
