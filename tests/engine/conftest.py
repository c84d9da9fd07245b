"""Engines over a tiny model with poisoned caches, and the states that they must give."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from drillcore.records import QuarantineEntry, SampleEnd
from drillcore_kernels.reference_ops import REFERENCE_OPS
from drillcore_server.connector.copies import CpuCopier
from drillcore_server.connector.host_memory import Landing
from drillcore_server.connector.list_sink import ExtractedSample, HostChunk, ListSink, StateShape
from drillcore_server.engine import CapturePlan, Engine, EngineConfig, Request, state_shape
from drillcore_server.models.decoder import Decoder
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.spec import ModelSpec
from drillcore_spec.enums import LayerConvention, PositionsKind

MAX_MODEL_LEN = 192


class EngineUnderTest(NamedTuple):
    """An engine and what it gave."""

    engine: Engine
    sink: ListSink

    def samples(self) -> dict[int, ExtractedSample]:
        """By row; each row came once, and the caches are whole."""
        by_row = self.sink.by_row()
        assert len(by_row) == len(self.sink.samples), "a row came twice"
        self.engine.check_integrity()
        return by_row


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> Iterable[None]:
    """The tiny models are faster so, and the tests do not disturb each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def load_tiny(tiny_model_folder: Callable[..., Any]) -> Callable[..., Decoder]:
    """`load_tiny("llama", num_layers=2)`: that many blocks of the tiny model; all of them, with lm_head, by default."""

    def load(model_type: str = "llama", num_layers: int | None = None, **overrides: Any) -> Decoder:
        folder = tiny_model_folder(model_type, **overrides)
        spec = ModelSpec.from_folder(folder)
        whole = num_layers is None
        return load_decoder(
            folder,
            spec,
            device="cpu",
            dtype=torch.float32,
            num_layers=spec.num_layers if num_layers is None else num_layers,
            lm_head=whole,
            final_norm=whole,
        )

    return load


@pytest.fixture(scope="session")
def tiny_decoder(load_tiny: Callable[..., Decoder]) -> Decoder:
    """The whole tiny Llama."""
    return load_tiny()


@pytest.fixture(scope="session")
def plan_of() -> Callable[..., CapturePlan]:
    """`plan_of(decoder, ids, final_norm)`: every id and the final norm by default."""

    def plan(decoder: Decoder, ids: list[int] | None = None, final_norm: bool = True) -> CapturePlan:
        num_layers = decoder.spec.num_layers
        layers = list(range(num_layers + 1)) if ids is None else ids
        return CapturePlan.resolve(
            layers, LayerConvention.RESIDUAL_IN, final_norm, num_layers, decoder.spec.hidden_size
        )

    return plan


@pytest.fixture
def make_engine(tiny_decoder: Decoder, plan_of: Callable[..., CapturePlan]) -> Callable[..., EngineUnderTest]:
    """`make_engine(max_num_batched_tokens=7, ...)`: caches full of NaN but for the null block."""

    def make(
        decoder: Decoder = tiny_decoder,
        plan: CapturePlan | None = None,
        engine_class: type[Engine] = Engine,
        sink: Any = None,
        **limits: Any,
    ) -> EngineUnderTest:
        plan = plan or plan_of(decoder)
        config = EngineConfig(**({"max_model_len": MAX_MODEL_LEN, "num_blocks": 64} | limits))
        sink = sink or ListSink(state_shape(decoder, plan))
        engine = engine_class(decoder, plan, config, sink)
        poison(engine)
        return EngineUnderTest(engine, sink)

    return make


def poison(engine: Engine) -> None:
    """NaN wherever nothing was written yet: reading it anywhere would show in the states."""
    cache = engine.drafter.cache
    kv_caches = [tensor for pair in engine.runner.kv_cache or [] for tensor in pair]
    for tensor in (cache.states, cache.stats, *kv_caches):
        tensor[1:].fill_(torch.nan)


@pytest.fixture(scope="session")
def reference(
    tiny_model_folder: Callable[..., Any], reference_states: Callable[..., Any]
) -> Callable[..., torch.Tensor]:
    """`reference(token_ids)`: r_0 .. r_L and n_L [S, L + 2, D] of one sequence alone, by transformers."""
    known: dict[tuple[str, bytes], torch.Tensor] = {}

    def states(token_ids: Any, model_type: str = "llama") -> torch.Tensor:
        ids = np.asarray(token_ids, dtype=np.int64)
        key = (model_type, ids.tobytes())
        if key not in known:
            found = reference_states(tiny_model_folder(model_type), ids.tolist())
            known[key] = torch.stack([*found.residual, found.final_norm], dim=1)
        return known[key]

    return states


@pytest.fixture(scope="session")
def assert_equal_states(
    reference: Callable[..., torch.Tensor], row_criterion: Callable[..., None]
) -> Callable[[ExtractedSample, Request], None]:
    """`assert_equal_states(sample, request)`: ids, shapes and every state are those of the request alone."""

    def check(sample: ExtractedSample, request: Request, model_type: str = "llama") -> None:
        end, prompt = sample.end, request.prompt_token_ids
        assert end.row == request.request_id
        assert end.token_ids[: len(prompt)].tolist() == prompt.tolist()
        assert len(end.token_ids) <= request.num_slots
        states = reference(end.token_ids, model_type)
        assert end.num_states == len(sample.hidden_states)
        if request.positions is PositionsKind.ALL:
            assert end.positions is None
            row_criterion(sample.hidden_states, states)
        else:
            row_criterion(sample.hidden_states, states[end.positions])

    return check


@pytest.fixture(scope="session")
def random_requests() -> Callable[..., list[Request]]:
    """`random_requests(lengths, seed)`: prompts of these lengths."""

    def make(lengths: Iterable[int], seed: int = 0, **fields: Any) -> list[Request]:
        rng = np.random.default_rng(seed)
        return [Request(row, rng.integers(0, 256, length), **fields) for row, length in enumerate(lengths)]

    return make


class BoundedSink:
    """A sink with little room whose consumer is slow, and that checks the protocol of `SampleSink`.

    Room comes back only in `poll` and `wait`, as in the ring. Samples are kept once the consumer has seen them.
    """

    def __init__(self, shape: StateShape, capacity_states: int, rng: np.random.Generator) -> None:
        self.samples: dict[int, tuple[SampleEnd, torch.Tensor]] = {}
        self.quarantined: list[QuarantineEntry] = []
        self.aborted: list[int] = []
        self.refusals = 0
        self._shape = shape
        self._room = capacity_states
        self._rng = rng
        self._records: deque[Any] = deque()
        self._unsealed: deque[HostChunk] = deque()
        self._rows: dict[HostChunk, tuple[int, int]] = {}
        self._open_chunks = 0
        self._seen: list[tuple[int, int, torch.Tensor]] = []

    def has_room(self) -> bool:
        return self._room > 0

    def reserve(self, max_states: int) -> HostChunk | None:
        assert max_states >= 1
        num_states = min(max_states, self._room, int(self._rng.integers(1, 40)))
        if num_states == 0 or self._refuses():
            return None
        shape = (num_states, self._shape.num_columns, self._shape.hidden_size)
        chunk = HostChunk(torch.full(shape, torch.nan, dtype=self._shape.dtype))
        self._room -= num_states
        self._open_chunks += 1
        self._records.append(chunk)
        self._unsealed.append(chunk)
        return chunk

    def seal(self, chunk: HostChunk, *, row: int, first_state: int) -> None:
        assert self._unsealed.popleft() is chunk, "chunks are sealed in another order than reserved"
        chunk.sealed = True
        self._rows[chunk] = (row, first_state)

    def end_sample(self, end: SampleEnd) -> bool:
        return self._append(("end", end))

    def abort_sample(self, row: int) -> bool:
        assert self._open_chunks > 0, "a sample without chunks is aborted"
        return self._append(("abort", row))

    def quarantine(self, entry: QuarantineEntry) -> bool:
        assert self._open_chunks == 0, "a quarantine entry is inside an open sample"
        return self._append(("quarantine", entry))

    def poll(self) -> None:
        self._consume(int(self._rng.integers(0, 3)))

    def wait(self, timeout_s: float) -> None:
        self._consume(int(self._rng.integers(1, 5)))

    def drain(self) -> None:
        """The consumer reads everything."""
        self._consume(len(self._records))
        assert not self._records
        assert not self._seen, "a sample was never ended"

    def _append(self, record: Any) -> bool:
        if self._refuses():
            return False
        self._open_chunks = 0
        self._records.append(record)
        return True

    def _refuses(self) -> bool:
        refuses = bool(self._rng.random() < 0.2)
        self.refusals += refuses
        return refuses

    def _consume(self, num_records: int) -> None:
        for _ in range(num_records):
            if not self._records or (isinstance(self._records[0], HostChunk) and not self._records[0].sealed):
                return
            record = self._records.popleft()
            if isinstance(record, HostChunk):
                self._room += record.num_states
                self._seen.append((*self._rows.pop(record), record.states))
            else:
                self._close(*record)

    def _close(self, kind: str, value: Any) -> None:
        seen, self._seen = self._seen, []
        if kind == "quarantine":
            self.quarantined.append(value)
            return
        row = value.row if kind == "end" else value
        assert all(r == row for r, _, _ in seen), "chunks of two samples are interleaved"
        firsts = np.cumsum([0, *(len(states) for _, _, states in seen)])
        assert [first for _, first, _ in seen] == firsts[:-1].tolist(), "chunks are out of order"
        if kind == "abort":
            self.aborted.append(row)
            return
        assert row not in self.samples, "a row came twice"
        assert value.num_states == firsts[-1]
        shape = (0, self._shape.num_columns, self._shape.hidden_size)
        self.samples[row] = (value, torch.cat([torch.empty(shape), *(states for _, _, states in seen)]))


class LateLanding:
    """A landing that nobody sees before it was asked for a few times."""

    def __init__(self, arrive: Callable[[], None], delay: int) -> None:
        self._arrive = arrive
        self._delay = delay

    def query(self) -> bool:
        self._delay -= 1
        if self._delay == 0:
            self._arrive()
        return self._delay <= 0

    def synchronize(self) -> None:
        if self._delay > 0:
            self._delay = 1
            self.query()


class LateCopier(CpuCopier):
    """Reads the cache only when its copies land, as late as a GPU might: a block freed too early would show."""

    def __init__(self, cache: torch.Tensor, rng: np.random.Generator) -> None:
        super().__init__(cache, REFERENCE_OPS)
        self._rng = rng
        self._copies: list[Callable[[], None]] = []

    def copy_runs(self, slots: Any, buffer: memoryview) -> None:
        self._copies.append(lambda: CpuCopier.copy_runs(self, slots, buffer))

    def copy_gathered(self, slots: Any, buffers: Any) -> None:
        self._copies.append(lambda: CpuCopier.copy_gathered(self, slots, buffers))

    def means(self, slots: Any) -> torch.Tensor:
        late = torch.full((len(slots), *self._blocks.shape[2:]), torch.nan, dtype=self._blocks.dtype)
        self._copies.append(lambda: late.copy_(CpuCopier.means(self, slots)))
        return late

    def mark(self) -> Landing:
        copies, self._copies = self._copies, []
        return LateLanding(lambda: [copy() for copy in copies], int(self._rng.integers(1, 6)))


@pytest.fixture
def late_engine(make_engine: Callable[..., EngineUnderTest], tiny_decoder: Decoder, plan_of: Any) -> Any:
    """`late_engine(rng, capacity_states=50)`: a bounded sink, copies that land late, steps that end late."""

    def make(rng: np.random.Generator, capacity_states: int = 50, **limits: Any) -> tuple[Engine, BoundedSink]:
        sink = BoundedSink(state_shape(tiny_decoder, plan_of(tiny_decoder)), capacity_states, rng)
        engine = make_engine(sink=sink, **limits).engine
        engine.connector.shipper._copier = LateCopier(engine.drafter.cache.states, rng)
        engine._max_in_flight = 3
        execute = engine.runner.execute

        def execute_late(*args: Any) -> Any:
            late = LateLanding(lambda: None, int(rng.integers(1, 5)))
            return dataclasses.replace(execute(*args), done=late)

        engine.runner.execute = execute_late
        return engine, sink

    return make
