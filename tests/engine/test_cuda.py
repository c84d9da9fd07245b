"""The engine on a GPU: the same states as on a CPU, without a wait for the device, whatever is reused how soon."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from drillcore_server.connector.list_sink import ListSink
from drillcore_server.connector.positions import RANGED_POSITIONS
from drillcore_server.engine import Engine, EngineConfig, Request, Sampling, extract, state_shape
from drillcore_server.engine.random_stream import gumbel_noise
from drillcore_server.models.loader import load_decoder
from drillcore_server.models.spec import ModelSpec
from drillcore_spec.enums import PositionsKind

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEMO_MODEL = Path(__file__).parents[2] / "volumes/models/smollm2-135m-instruct"
TEXT = "A drill core is the cylinder of rock that shows every layer at the place where the drill went down. " * 20
HEAD_DIM = 64
LENGTHS = (1, 63, 64, 65, 200, 7, 128, 3, 90, 31)


@pytest.fixture(scope="module")
def cuda_engine(tiny_model_folder, plan_of):
    """`cuda_engine(dtype, **limits)`: engine and sink over the tiny Llama, its caches full of NaN."""
    folder = tiny_model_folder("llama", head_dim=HEAD_DIM)
    spec = ModelSpec.from_folder(folder)

    def make(dtype=torch.bfloat16, **limits):
        decoder = load_decoder(
            folder, spec, device="cuda", dtype=dtype, num_layers=spec.num_layers, lm_head=True, final_norm=True
        )
        plan = plan_of(decoder)
        config = EngineConfig(**({"max_model_len": 256, "num_blocks": 100} | limits))
        sink = ListSink(state_shape(decoder, plan))
        engine = Engine(decoder, plan, config, sink)
        cache = engine.drafter.cache
        for tensor in (cache.states, cache.stats, *(t for pair in engine.runner.kv_cache or [] for t in pair)):
            tensor[1:].fill_(torch.nan)
        return engine, sink

    return make


@pytest.fixture(scope="module")
def expected(tiny_model_folder, reference_states):
    """`expected(prompt)`: r_0 .. r_L and n_L [S, L + 2, D] by transformers in float32."""
    folder = tiny_model_folder("llama", head_dim=HEAD_DIM)

    def states(prompt):
        found = reference_states(folder, prompt.tolist())
        return torch.stack([*found.residual, found.final_norm], dim=1)

    return states


def smallest_cosine(got: torch.Tensor, reference: torch.Tensor) -> float:
    got, reference = got.double(), reference.double()
    return float(torch.cosine_similarity(got, reference, dim=-1).min())


@pytest.mark.parametrize("budget", [7, 64, 8192])
@pytest.mark.parametrize("prefix_caching", [False, True])
def test_float32_states_equal_those_of_a_cpu(
    cuda_engine, expected, random_requests, row_criterion, budget, prefix_caching
):
    engine, sink = cuda_engine(
        torch.float32, max_num_batched_tokens=budget, prefix_caching=prefix_caching, max_tokens=3
    )
    requests = random_requests(LENGTHS)

    engine.run(requests)

    engine.check_integrity()
    for request in requests:
        sample = sink.by_row()[request.request_id]
        row_criterion(sample.hidden_states, expected(request.prompt_token_ids), 1e-4)


@pytest.mark.parametrize("limits", [{"max_num_batched_tokens": 50}, {"prefix_caching": False}, {"num_blocks": 5}])
def test_bfloat16_states_differ_only_by_rounding(cuda_engine, expected, random_requests, limits):
    requests = random_requests(LENGTHS)
    alone = {}
    for request in requests:
        engine, sink = cuda_engine()
        engine.run([request])
        alone |= sink.by_row()
    engine, sink = cuda_engine(**limits)

    engine.run(requests)

    for row, sample in sink.by_row().items():
        assert smallest_cosine(sample.hidden_states, alone[row].hidden_states) >= 0.9999
        # Weights of the tiny model are large, so rounding shows more than in a real one.
        assert smallest_cosine(sample.hidden_states, expected(requests[row].prompt_token_ids)) >= 0.995


def test_blocks_are_reused_at_once_and_nothing_is_mixed_up(cuda_engine):
    rng = np.random.default_rng(0)
    kinds = (PositionsKind.ALL, PositionsKind.LAST, PositionsKind.LOSS_MASK)
    requests = []
    for row in range(400):
        prompt = rng.integers(0, 256, int(rng.integers(1, 256)))
        mask = rng.integers(0, 2, len(prompt)).astype(np.uint8)
        mask[-1] = 1
        requests.append(Request(row, prompt, positions=kinds[row % 3], loss_mask=mask))
    roomy, roomy_sink = cuda_engine(num_blocks=3000, prefix_caching=False, max_num_batched_tokens=100_000)
    tight, tight_sink = cuda_engine(num_blocks=12, max_num_batched_tokens=300)

    roomy.run(requests)
    tight.run(requests)

    tight.check_integrity()
    assert tight.kv.pool.num_available == 11
    for row, sample in tight_sink.by_row().items():
        other = roomy_sink.by_row()[row]
        assert sample.hidden_states.shape == other.hidden_states.shape
        assert smallest_cosine(sample.hidden_states, other.hidden_states) >= 0.9999
    assert len(tight_sink.samples) == len(requests) == len(roomy_sink.samples)


def test_no_step_waits_for_the_device(cuda_engine, random_requests, monkeypatch):
    engine, sink = cuda_engine(max_tokens=2, max_num_batched_tokens=100)
    engine.run(random_requests((20, 100), max_tokens=2))  # compiles the kernels
    execute, ship = engine.runner.execute, engine.connector.poll

    def without_waiting(call):
        def called(*args):
            torch.cuda.set_sync_debug_mode("error")
            try:
                return call(*args)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        return called

    monkeypatch.setattr(engine.runner, "execute", without_waiting(execute))
    monkeypatch.setattr(engine.connector, "poll", without_waiting(ship))
    requests = [
        Request(
            100 + r.request_id,
            r.prompt_token_ids,
            positions=kind,
            position_range=range(0, 300, 3) if kind in RANGED_POSITIONS else None,
            loss_mask=np.ones(r.num_prompt_tokens, np.uint8),
            max_tokens=2,
        )
        for r, kind in zip(random_requests(LENGTHS), [*PositionsKind] * 5, strict=False)
    ]

    engine.run(requests)

    assert len(sink.samples) == 2 + len(requests)


def test_steps_run_ahead_of_the_host(cuda_engine, random_requests):
    engine, _ = cuda_engine(max_num_batched_tokens=60, max_steps_in_flight=3)
    engine.run([Request(9, np.arange(130))])  # compiles the kernels, whose launch would take longer than the sleep
    for request in random_requests([200] * 3):
        engine.add_request(request)
    torch.cuda._sleep(1_000_000_000)

    engine.step()
    engine.step()
    assert len(engine._in_flight) == 2
    while engine.has_unfinished:
        if not engine.step() and engine.has_unfinished:
            engine.wait()


def test_device_memory_stays_flat(cuda_engine, random_requests):
    engine, _ = cuda_engine(num_blocks=40)
    engine.run(random_requests(LENGTHS * 5))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()

    for repeat in range(1, 6):
        rows = [Request(1000 * repeat + r.request_id, r.prompt_token_ids) for r in random_requests(LENGTHS * 5)]
        engine.run(rows)

    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + 2**20


def test_noise_is_that_of_a_cpu():
    keys = torch.randint(-(2**31), 2**31 - 1, (64, 2), dtype=torch.int32)

    torch.testing.assert_close(gumbel_noise(keys.cuda(), 4000).cpu(), gumbel_noise(keys, 4000), rtol=1e-5, atol=1e-6)


def test_sampled_tokens_depend_on_seed_and_row_only(cuda_engine):
    rng = np.random.default_rng(2)
    prompts = [rng.integers(0, 256, length) for length in LENGTHS]
    runs = []
    for rows, limits in ((range(10), {}), (reversed(range(10)), {"max_num_seqs": 3, "max_num_batched_tokens": 50})):
        engine, sink = cuda_engine(torch.float32, max_tokens=8, **limits)
        sampling = Sampling(temperature=0.8, top_p=0.9, seed=1)
        engine.run(Request(row, prompts[row], max_tokens=8, sampling=sampling) for row in rows)
        runs.append({row: [*s.end.token_ids.tolist(), s.end.last_token] for row, s in sink.by_row().items()})

    assert runs[0] == runs[1]


def test_means_and_strides_are_those_of_all_states(cuda_engine):
    rng = np.random.default_rng(3)
    prompts = [rng.integers(0, 256, length) for length in LENGTHS]
    found = {}
    for kind, stride in (
        (PositionsKind.ALL, None),
        (PositionsKind.MEAN, None),
        (PositionsKind.STRIDE, range(0, 999, 7)),
    ):
        engine, sink = cuda_engine(torch.float32, max_num_batched_tokens=70)
        engine.run(Request(row, ids, positions=kind, position_range=stride) for row, ids in enumerate(prompts))
        found[kind] = {row: s.hidden_states.clone() for row, s in sink.by_row().items()}
        norms = [s.hidden_states.double().norm(dim=-1).sum(dim=0).numpy() for s in sink.samples]
        assert all(np.allclose(s.end.norm_sums, n, rtol=1e-4) for s, n in zip(sink.samples, norms, strict=True))

    for row, states in found[PositionsKind.ALL].items():
        torch.testing.assert_close(found[PositionsKind.MEAN][row], states.mean(dim=0, keepdim=True))
        torch.testing.assert_close(found[PositionsKind.STRIDE][row], states[::7])


@pytest.mark.skipif(not DEMO_MODEL.exists(), reason="needs the demo model: `make demo-model`")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.1)])
def test_states_of_the_demo_model_equal_transformers(plan_of, reference_states, row_criterion, dtype, tolerance):
    from transformers import AutoTokenizer

    token_ids = AutoTokenizer.from_pretrained(DEMO_MODEL)(TEXT)["input_ids"]
    spec = ModelSpec.from_folder(DEMO_MODEL)
    decoder = load_decoder(
        DEMO_MODEL, spec, device="cuda", dtype=dtype, num_layers=spec.num_layers, lm_head=False, final_norm=True
    )

    states = extract(decoder, plan_of(decoder), [token_ids])[0].hidden_states.float()

    found = reference_states(DEMO_MODEL, token_ids)
    expected = torch.stack([*found.residual, found.final_norm], dim=1)
    # The first token's state is thousands of times larger than the others: in bfloat16 it is rounded as coarsely.
    first = 0 if dtype is torch.float32 else 1
    row_criterion(states[first:], expected[first:], tolerance)
    layers = torch.cosine_similarity(_by_layer(states[1:]), _by_layer(expected[1:]), dim=1)
    assert layers.min() >= 0.999
    assert smallest_cosine(states[1:, :-2], expected[1:, 1:-1]) < 0.999


def _by_layer(states: torch.Tensor) -> torch.Tensor:
    """[C, S * D] of states [S, C, D]."""
    return states.double().transpose(0, 1).flatten(1)
