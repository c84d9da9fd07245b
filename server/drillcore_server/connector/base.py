"""The KV connector's interfaces: which side does what, and where a sample's bytes go.

The connector has the two sides of vLLM's KV connector API (`KVConnectorBase_V1`), in one process and thread:

| method | side | called by | when |
|---|---|---|---|
| `can_admit` | scheduler | scheduler | before a request is admitted |
| `build_metadata` | scheduler | engine | once a step, after scheduling |
| `bind` | worker | model runner | before the forward pass |
| `save` | worker | hidden-state drafter | after forward pass and sampling: the states are on their way to the cache |
| `clear` | worker | model runner | after the drafter, once a step, also when the step failed |
| `absorb` | worker | engine | when the step's results are on the host |
| `finish`, `abort` | worker | engine | the request will get no more states |
| `poll` | worker | engine | every turn: ships chunks, tells which requests' blocks are free again |

Block ids never reach the connector. A step hands it the slots of the states that became available, request
by request, so a step without new blocks, a prefix hit and a resumed request are the same case.

A `SampleSink` is where shipped states go: the shared-memory ring, a list in this process, or a file a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from drillcore.records import QuarantineEntry, SampleEnd


class Chunk(Protocol):
    """Room for consecutive states of one sample, from `SampleSink.reserve` until it is sealed."""

    @property
    def buffer(self) -> memoryview:
        """Writable bytes, C-contiguous, `num_states * row_bytes` long; the producer's until `seal`."""
        ...

    @property
    def num_states(self) -> int:
        """States that fit: at least 1, at most what was asked for."""
        ...


class SampleSink(Protocol):
    """Where the states of one sample after another go.

    Records of a sample come in this order: any number of `reserve`, then `end_sample` or `abort_sample`, once.
    Samples never interleave: the next sample's first `reserve` comes after that. `seal` is apart from this:
    chunks are filled by asynchronous copies and sealed in the order in which they were reserved, over all samples,
    also after their sample ended and after later chunks were reserved. Nothing is visible to a consumer before
    every chunk reserved earlier is sealed, so that the consumer sees the records in order.

    Nothing blocks but `wait`. A method that says "no room" (`None`, `False`) has done nothing and is called again
    at a later poll. All calls come from the engine's thread.
    """

    def has_room(self) -> bool:
        """Whether a `reserve` can be expected to succeed: while it cannot, no request is admitted."""
        ...

    def reserve(self, max_states: int) -> Chunk | None:
        """Takes room for up to `max_states` (>= 1) states; several chunks may be open. `None`: no room now."""
        ...

    def seal(self, chunk: Chunk, *, row: int, first_state: int) -> None:
        """Publishes a chunk whose buffer is filled; `first_state` counts the sample's states from 0.

        Comes in the order of `reserve`, possibly after the sample's `end_sample` or `abort_sample`.
        """
        ...

    def end_sample(self, end: SampleEnd) -> bool:
        """Completes the sample; its chunks may still be unsealed, none is reserved later. `False`: no room now."""
        ...

    def abort_sample(self, row: int) -> bool:
        """Drops the open sample, which has at least one chunk; they may still be unsealed. `False`: no room now."""
        ...

    def quarantine(self, entry: QuarantineEntry) -> bool:
        """Records a row that cannot be extracted; never called inside an open sample. `False`: no room now."""
        ...

    def poll(self) -> None:
        """Reads what the consumer has released. Raises the sink's own errors (consumer gone, storage full)."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Blocks until the consumer has moved, at most `timeout_s`. Called when only the consumer can help."""
        ...
