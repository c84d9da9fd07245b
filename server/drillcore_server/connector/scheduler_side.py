"""The connector's scheduler side: whether to admit, and what a step's states are."""

from __future__ import annotations

from collections.abc import Iterable

from drillcore_server.connector.base import SampleSink
from drillcore_server.connector.metadata import StateSlice, StepMetadata, TokenRange
from drillcore_server.connector.positions import select_positions


class ConnectorScheduler:
    """Stateless: what a request still has to ship is the worker side's business."""

    def __init__(self, sink: SampleSink) -> None:
        self._sink = sink

    def can_admit(self) -> bool:
        """Whether another request may start: not while the sink is full."""
        return self._sink.has_room()

    def build_metadata(self, ranges: Iterable[TokenRange]) -> StepMetadata:
        """The states that a step makes available."""
        return StepMetadata(
            tuple(
                StateSlice(r.header, select_positions(r.header, r.first_token, r.end_token), r.starts) for r in ranges
            )
        )
