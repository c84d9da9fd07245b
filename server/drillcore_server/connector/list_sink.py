"""Sinks in this process: each sample as a tensor, for tests and in-process users."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from drillcore.records import QuarantineEntry, SampleEnd
from drillcore_server.connector.base import Chunk
from drillcore_server.connector.host_memory import empty_host


@dataclass(frozen=True, slots=True, eq=False)
class ExtractedSample:
    """One sample, complete."""

    end: SampleEnd
    """Everything but the states."""
    hidden_states: torch.Tensor
    """States [P, C, D] in host memory, in the store dtype; the receiver's own."""


@dataclass(frozen=True, slots=True)
class StateShape:
    """One token's states, and where they come from."""

    num_columns: int
    """C."""
    hidden_size: int
    """D."""
    dtype: torch.dtype
    """Store dtype."""
    device: torch.device
    """Of the hidden cache: chunks are pinned if it is a GPU."""


@dataclass(slots=True, eq=False)
class HostChunk:
    """A chunk in a tensor of its own."""

    states: torch.Tensor
    """States [n, C, D]."""
    sealed: bool = False

    @property
    def num_states(self) -> int:
        """States of the chunk."""
        return len(self.states)

    @property
    def buffer(self) -> memoryview:
        """The bytes of `states`."""
        return self.states.view(torch.uint8).numpy().reshape(-1).data


@dataclass(frozen=True, slots=True)
class _Aborted:
    """Record: the sample of the chunks before it is dropped."""


_Record = HostChunk | SampleEnd | QuarantineEntry | _Aborted


class InProcessSink:
    """Hands a sample over when everything up to its end is sealed, in the order of the ends. Always has room."""

    def __init__(
        self,
        shape: StateShape,
        on_sample: Callable[[ExtractedSample], None],
        on_quarantine: Callable[[QuarantineEntry], None],
    ) -> None:
        """The callbacks run in the engine's thread."""
        self._shape = shape
        self._on_sample = on_sample
        self._on_quarantine = on_quarantine
        self._records: deque[_Record] = deque()
        self._unsealed: deque[HostChunk] = deque()
        self._sealed: list[torch.Tensor] = []

    def has_room(self) -> bool:
        """Always."""
        return True

    def reserve(self, max_states: int) -> HostChunk:
        """A chunk for all of them."""
        shape = self._shape
        states = empty_host((max_states, shape.num_columns, shape.hidden_size), shape.dtype, shape.device)
        chunk = HostChunk(states)
        self._records.append(chunk)
        self._unsealed.append(chunk)
        return chunk

    def seal(self, chunk: Chunk, *, row: int, first_state: int) -> None:
        """See `SampleSink`.

        Raises:
            ValueError: the chunk is not the oldest open one.
        """
        if not self._unsealed or self._unsealed[0] is not chunk:
            raise ValueError(f"row {row}, state {first_state}: chunks must be sealed in the order of reserve")
        self._unsealed.popleft().sealed = True
        self._hand_over()

    def end_sample(self, end: SampleEnd) -> bool:
        """See `SampleSink`."""
        return self._append(end)

    def abort_sample(self, row: int) -> bool:
        """See `SampleSink`."""
        return self._append(_Aborted())

    def quarantine(self, entry: QuarantineEntry) -> bool:
        """See `SampleSink`."""
        return self._append(entry)

    def poll(self) -> None:
        """Nothing to do: whoever receives a sample has it."""

    def wait(self, timeout_s: float) -> None:
        """Returns at once: there is always room."""

    def _append(self, record: _Record) -> bool:
        self._records.append(record)
        self._hand_over()
        return True

    def _hand_over(self) -> None:
        while self._records:
            record = self._records[0]
            if isinstance(record, HostChunk) and not record.sealed:
                return
            self._records.popleft()
            match record:
                case HostChunk():
                    self._sealed.append(record.states)
                case SampleEnd():
                    self._on_sample(ExtractedSample(record, self._take_states()))
                case QuarantineEntry():
                    self._on_quarantine(record)
                case _Aborted():
                    self._drop(self._sealed)
                    self._sealed = []

    def _drop(self, parts: list[torch.Tensor]) -> None:
        """The states of an aborted sample; for a sink that counts what it holds."""

    def _take_states(self) -> torch.Tensor:
        parts, self._sealed = self._sealed, []
        if len(parts) == 1:
            return parts[0]
        shape = self._shape
        none = torch.empty(0, shape.num_columns, shape.hidden_size, dtype=shape.dtype)
        return torch.cat([none, *parts])


class ListSink(InProcessSink):
    """Keeps every sample and quarantine entry."""

    def __init__(self, shape: StateShape) -> None:
        self.samples: list[ExtractedSample] = []
        self.quarantined: list[QuarantineEntry] = []
        super().__init__(shape, self.samples.append, self.quarantined.append)

    def by_row(self) -> dict[int, ExtractedSample]:
        """The samples by row."""
        return {sample.end.row: sample for sample in self.samples}
