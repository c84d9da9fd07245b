"""The connector's worker side: from the states of a step to samples on their way to the sink.

    save ──► absorb ──► finish ──► poll ──► released
    (slots of the   (results are on the   (the request   (see `shipping`)   (its blocks may
     step's states)  host, and checked)    has ended)                        be used again)

States are shipped once the host has seen their step's results: what is copied is computed and checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from drillcore.records import QuarantineReason
from drillcore_server.connector.base import SampleSink
from drillcore_server.connector.copies import StateCopier
from drillcore_server.connector.errors import StepNotBound, StepNotSaved
from drillcore_server.connector.metadata import SampleText, StateSlice, StepMetadata
from drillcore_server.connector.sample import Sample
from drillcore_server.connector.shipping import Shipper
from drillcore_server.connector.stats import fetch_stats, reduce_stats


@dataclass(frozen=True, slots=True)
class StateColumns:
    """What the connector knows of the hidden cache's C columns."""

    names: tuple[str, ...]
    """For messages, such as `layer 16`."""
    never_zero: tuple[bool, ...]
    """Whether a state of zeros is a fault."""


@dataclass(frozen=True, slots=True, eq=False)
class SavedStep:
    """States of a step that the device has been told to compute."""

    metadata: StepMetadata
    slots: NDArray[np.int64]
    """Slots [P] of the states, slice by slice."""
    stats: torch.Tensor
    """Statistics [P, C, 2] in host memory; valid when the step is done."""


@dataclass(slots=True, eq=False)
class BoundStep:
    """A step between `bind` and `clear`."""

    metadata: StepMetadata
    saved: SavedStep | None = None


class ConnectorWorker:
    """Every sample of the engine, over one sink. Lives in the engine's thread."""

    def __init__(self, sink: SampleSink, copier: StateCopier, stats: torch.Tensor, columns: StateColumns) -> None:
        """`stats` is [num_blocks, block_size, C, 2], on the device of the copier's cache."""
        self.shipper = Shipper(sink, copier)
        self._stats = stats
        self._columns = columns
        self._never_zero = np.array(columns.never_zero)
        self._bound: BoundStep | None = None
        self._samples: dict[int, Sample] = {}

    @contextmanager
    def bound(self, metadata: StepMetadata) -> Iterator[BoundStep]:
        """Binds a step's metadata for its forward pass, sampling and drafter; clears it once, whatever happens.

        Raises:
            StepNotSaved: the block ended without error, and the drafter had not saved the step's states.
        """
        step = self.bind(metadata)
        try:
            yield step
            if step.saved is None:
                raise StepNotSaved("the step's states were not saved: the drafter must run in every step")
        finally:
            self.clear()

    def bind(self, metadata: StepMetadata) -> BoundStep:
        """Makes `metadata` the current step's until `clear`."""
        self._bound = BoundStep(metadata)
        return self._bound

    def clear(self) -> None:
        """Ends the current step."""
        self._bound = None

    def save(self, slots: NDArray[np.int64], device_slots: torch.Tensor) -> None:
        """Takes over the bound step's states: the device has been told to store them at `slots` [P].

        Raises:
            StepNotBound: no step is bound, or it was cleared already.
        """
        if self._bound is None:
            raise StepNotBound("states can be saved only between bind and clear of their step")
        metadata = self._bound.metadata
        for part in metadata.slices:
            if part.starts:
                self._samples[part.header.row] = Sample(part.header, len(self._columns.names))
        self._bound.saved = SavedStep(metadata, slots, fetch_stats(self._stats, device_slots))

    def absorb(self, saved: SavedStep) -> list[int]:
        """Takes in the results of a step that is done; gives rows that turned out to be unusable.

        States of a sample that is over, or of an earlier request of the same row, are passed over.
        """
        parts = [part for part in saved.metadata.slices if len(part.positions)]
        if not parts:
            return []
        counts = np.array([len(part.positions) for part in parts])
        reduced = reduce_stats(saved.stats.numpy(), counts, self._never_zero)
        faulty = []
        for index, (part, end) in enumerate(zip(parts, np.cumsum(counts).tolist(), strict=True)):
            sample = self._samples.get(part.header.row)
            if sample is None or sample.header is not part.header or sample.is_over:
                continue
            slots = saved.slots[end - len(part.positions) : end]
            sample.add_states(slots, part.positions, reduced.norm_sums[index], reduced.max_abs[index])
            if index in reduced.faults:
                self._reject(sample, part, *reduced.faults[index])
                faulty.append(sample.row)
            elif sample.streams:
                self.shipper.offer(sample)
        return faulty

    def finish(self, row: int, text: SampleText) -> bool:
        """Tells that a request has ended and that all its states are absorbed.

        Gives whether it has states; without any it is quarantined.
        """
        sample = self._samples[row]
        sample.text = text
        if sample.num_computed == 0:
            message = f"positions {sample.header.positions.value} select none of {len(text.token_ids)} tokens"
            sample.reject(QuarantineReason.NOTHING_SELECTED, message)
        self.shipper.complete(sample)
        return not sample.is_over

    def abort(self, row: int) -> bool:
        """Drops a sample in whatever state it is; gives whether copies from its blocks hold it until a later `poll`."""
        sample = self._samples.get(row)
        if sample is None:
            return False
        sample.aborted = True
        held = self.shipper.drop(sample)
        if not held:
            del self._samples[row]
        return held

    def poll(self) -> list[int]:
        """Ships what can be shipped; gives the rows whose blocks nothing reads any more."""
        rows = [sample.row for sample in self.shipper.poll()]
        for row in rows:
            del self._samples[row]
        return rows

    def reset(self) -> None:
        """Forgets every sample; waits for copies in flight, and seals nothing."""
        self.shipper.reset()
        self._samples.clear()

    def _reject(self, sample: Sample, part: StateSlice, reason: QuarantineReason, column: int) -> None:
        name = self._columns.names[column]
        first, last = int(part.positions[0]), int(part.positions[-1])
        expected = "finite" if reason is QuarantineReason.NON_FINITE_STATE else "other than all zero"
        message = f"states must be {expected}; {name} is not, at or between tokens {first} and {last}"
        sample.reject(reason, message)
        self.shipper.complete(sample)
