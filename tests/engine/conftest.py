"""Engines over a tiny model with poisoned caches, and the states that they must give."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from drillcore_server.connector.list_sink import ExtractedSample, ListSink
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
