"""The norm, rotary and activation kernels, and the readers of the hidden cache, beside their references."""

import pytest
import torch

from drillcore_kernels import Activation, Capture, NormKind

BLOCK_SIZE = 64
SLOTS = [70, 255, 129, 64, 1]


def capture(hidden, dtype, device, column=1):
    cache = torch.full((4, BLOCK_SIZE, 3, hidden), torch.nan, dtype=dtype, device=device)
    stats = torch.full((4, BLOCK_SIZE, 3, 2), torch.nan, device=device)
    return Capture(cache, stats, column, torch.tensor(SLOTS, device=device))


def same(left, right):
    """Whether two tensors hold the same values, NaN at the same places."""
    return torch.equal(left.cpu().nan_to_num(nan=7e4), right.cpu().nan_to_num(nan=7e4))


@pytest.mark.parametrize("hidden", [64, 99, 576])
@pytest.mark.parametrize("kind", NormKind)
def test_add_rms_norm(ops, reference, assert_close, fresh_memory_is_nan, device, dtype, kind, hidden):
    torch.manual_seed(0)
    packed, residual = torch.randn(5, hidden + 8).to(dtype), torch.randn(5, hidden).to(dtype)
    x, weight = packed[:, :hidden], torch.randn(hidden).to(dtype)
    targets = [capture(hidden, dtype, where) for where in ("cpu", device)]
    expected, r = reference.add_rms_norm(x, residual.clone(), weight, 1e-3, kind, capture=targets[0])
    x, residual, weight = packed.to(device)[:, :hidden], residual.to(device), weight.to(device)
    with fresh_memory_is_nan():
        normed, out = ops.add_rms_norm(x, residual, weight, 1e-3, kind, capture=targets[1])
    assert out is residual
    assert same(out, r)
    assert same(targets[1].cache, targets[0].cache)
    torch.testing.assert_close(targets[1].stats.cpu(), targets[0].stats, equal_nan=True)
    assert_close(normed, expected, dtype)


def test_norm_without_residual_captures_both_sides_in_their_columns(ops, reference, device, dtype):
    torch.manual_seed(0)
    x, weight = torch.randn(5, 99).to(dtype), torch.randn(99).to(dtype)
    before, after = capture(99, torch.float32, device, 0), capture(99, torch.float32, device, 2)
    normed, out = ops.add_rms_norm(x.to(device), None, weight.to(device), 1e-5, capture=before, capture_normed=after)
    rows = torch.tensor(SLOTS)
    assert same(out, x)
    assert same(before.cache.view(-1, 3, 99)[rows, 0], x.float())
    assert same(after.cache.view(-1, 3, 99)[rows, 2], normed.float())
    expected = normed.float().norm(dim=-1).cpu()
    torch.testing.assert_close(after.stats.view(-1, 3, 2)[rows, 2, 0].cpu(), expected)
    assert before.cache.isfinite().sum().item() == 5 * 99


def test_add_and_capture_without_a_norm(ops, device, dtype):
    x, residual = torch.randn(5, 64).to(dtype).to(device), torch.randn(5, 64).to(dtype).to(device)
    expected = x + residual
    target = capture(64, dtype, device)
    normed, out = ops.add_rms_norm(x, residual, None, 1e-5, capture=target)
    assert normed is None
    assert same(out, expected)
    assert same(target.cache.view(-1, 3, 64)[torch.tensor(SLOTS), 1], expected)


def test_statistics_show_what_cannot_be_stored(ops, device):
    x = torch.tensor([[1.0, 1e5], [torch.nan, 1.0], [0.0, 0.0], [1.5, -2.0], [torch.nan, torch.inf]])
    target = capture(2, torch.float16, device)
    ops.add_rms_norm(x.to(device), None, None, 0.0, capture=target)
    norms, largest = target.stats.view(-1, 3, 2)[torch.tensor(SLOTS), 1].cpu().unbind(-1)
    torch.testing.assert_close(norms, torch.tensor([torch.inf, torch.nan, 0.0, 2.5, torch.nan]), equal_nan=True)
    expected = torch.tensor([torch.inf, torch.nan, 0.0, 2.0, torch.nan])
    torch.testing.assert_close(largest, expected, equal_nan=True)


@pytest.mark.parametrize("rotary_dim", [80, 32, 0])
@pytest.mark.parametrize("kind", [None, *NormKind])
def test_rope_kv_write(ops, reference, packed, assert_close, device, dtype, rotary_dim, kind):
    num_tokens, shape = 5, (7, 3, 80)
    angle = torch.arange(8.0)[:, None] * torch.rand(max(rotary_dim // 2, 1))
    positions, slots = torch.tensor([0, 3, 1, 7, 7]), torch.tensor(SLOTS)
    weights = [None, None] if kind is None else [torch.randn(80).to(dtype) for _ in range(2)]

    def run(implementation, where):
        q, k, v = packed([num_tokens], *shape, dtype=dtype, device=where)
        caches = [torch.full((4, BLOCK_SIZE, 3, 80), torch.nan, dtype=dtype, device=where) for _ in range(2)]
        q_norm, k_norm = (None if weight is None else weight.to(where) for weight in weights)
        implementation.rope_kv_write(
            q,
            k,
            v,
            angle.cos().to(where) if rotary_dim else None,
            angle.sin().to(where) if rotary_dim else None,
            positions.to(where),
            q_norm=q_norm,
            k_norm=k_norm,
            eps=1e-6,
            norm_kind=kind or NormKind.LLAMA,
            k_cache=caches[0],
            v_cache=caches[1],
            slot_mapping=slots.to(where),
        )
        return q, k, v, *caches

    q, k, v, k_cache, v_cache = run(ops, device)
    expected_q, expected_k, expected_v, _, expected_v_cache = run(reference, "cpu")
    assert_close(q, expected_q, dtype)
    assert_close(k, expected_k, dtype)
    assert same(v, expected_v)
    assert same(k_cache.view(-1, 3, 80)[slots], k)
    assert k_cache.isfinite().sum().item() == num_tokens * 3 * 80
    assert same(v_cache, expected_v_cache)


def test_rope_without_caches_rotates_only(ops, reference, packed, assert_close, device, dtype):
    angle, positions = torch.rand(4, 32), torch.tensor([3, 0, 1])
    q, k, v = packed([3], 2, 1, 64, dtype=dtype, device=device)
    expected = [x.cpu().clone() for x in (q, k, v)]
    reference.rope_kv_write(*expected, angle.cos(), angle.sin(), positions)
    ops.rope_kv_write(q, k, v, angle.cos().to(device), angle.sin().to(device), positions.to(device))
    for out, wanted in zip((q, k, v), expected, strict=True):
        assert_close(out, wanted, dtype)


def test_rope_refuses_heads_that_lie_apart(ops, device, dtype):
    q = torch.zeros(3, 2, 128, dtype=dtype, device=device)[..., :64]
    with pytest.raises(ValueError, match=r"strides \(any, 64, 1\); got"):
        ops.rope_kv_write(q, q, q, None, None, torch.zeros(3, dtype=torch.int64, device=device))


@pytest.mark.parametrize("features", [7, 2048, 2500])
@pytest.mark.parametrize("activation", Activation)
def test_silu_mul(ops, reference, assert_close, fresh_memory_is_nan, device, dtype, activation, features):
    gate_up = torch.randn(3, 2 * features).to(dtype)
    with fresh_memory_is_nan():
        out = ops.silu_mul(gate_up.to(device), activation)
    assert_close(out, reference.silu_mul(gate_up, activation), dtype)


def test_gather_and_mean(ops, reference, assert_close, fresh_memory_is_nan, device, dtype):
    torch.manual_seed(0)
    slots = torch.tensor(SLOTS + list(range(140, 160)))
    cache = torch.full((4, BLOCK_SIZE, 2, 300), torch.nan, dtype=dtype)
    cache.view(-1, 600)[slots] = torch.randn(len(slots), 600).to(dtype)
    cu_rows = torch.tensor([0, 3, 3, 4, 25], dtype=torch.int32)
    with fresh_memory_is_nan():
        gathered = ops.gather_rows(cache.to(device), slots.to(device))
        means = ops.mean_rows(cache.to(device), slots.to(device), cu_rows.to(device))
    assert same(gathered, reference.gather_rows(cache, slots))
    expected = reference.mean_rows(cache, slots, cu_rows)
    filled = torch.tensor([0, 2, 3])
    assert_close(means[filled.to(device)], expected[filled], dtype)
    assert means[1].isnan().all()


def test_nothing_to_do_launches_nothing(ops, device, dtype):
    none = torch.zeros(0, dtype=torch.int64, device=device)
    x, cache = torch.zeros(0, 64, dtype=dtype, device=device), torch.zeros(1, 64, 2, 8, device=device)
    normed, _ = ops.add_rms_norm(x, x, x.new_ones(64), 1e-5)
    assert normed.shape == (0, 64)
    assert ops.silu_mul(x).shape == (0, 32)
    assert ops.gather_rows(cache, none).shape == (0, 2, 8)
    assert ops.mean_rows(cache, none, torch.zeros(1, dtype=torch.int32, device=device)).shape == (0, 2, 8)
    heads = x.view(0, 1, 64)
    ops.rope_kv_write(heads, heads, heads, None, None, none)
