"""The elementwise references against formulas written out, and the switch."""

import pytest
import torch

from drillcore_kernels import Activation, Capture, NormKind, select_ops

OPS = select_ops("cpu", torch.float32)
BLOCK_SIZE = 64


def capture(slots, hidden, dtype=torch.float32, column=1):
    cache = torch.full((4, BLOCK_SIZE, 3, hidden), torch.nan, dtype=dtype)
    stats = torch.full((4, BLOCK_SIZE, 3, 2), torch.nan)
    return Capture(cache, stats, column, torch.tensor(slots))


def rows(cache):
    return cache.view(-1, *cache.shape[2:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", NormKind)
def test_norm_casts_where_its_model_family_does(kind, dtype):
    torch.manual_seed(0)
    x, residual, weight = (torch.randn(shape).to(dtype) for shape in ((5, 99), (5, 99), (99,)))
    r = x + residual
    unit = r.float() * torch.rsqrt(r.float().pow(2).mean(-1, keepdim=True) + 1e-3)
    expected = {
        NormKind.LLAMA: weight * unit.to(dtype),
        NormKind.GEMMA: (unit * (1.0 + weight.float())).to(dtype),
        NormKind.GPT_OSS: (weight.float() * unit).to(dtype),
    }[kind]
    normed, out = OPS.add_rms_norm(x, residual, weight, 1e-3, kind)
    assert torch.equal(out, r)
    torch.testing.assert_close(normed, expected)


def test_capture_stores_the_residual_and_its_statistics_in_its_column_only():
    x, residual = torch.randn(3, 64), torch.randn(3, 64)
    expected = x + residual
    target = capture([70, 255, 129], 64)
    normed, _ = OPS.add_rms_norm(x, residual, None, 1e-5, capture=target)
    assert normed is None
    assert torch.equal(rows(target.cache)[[70, 255, 129], 1], expected)
    assert target.cache.isfinite().sum() == 3 * 64
    stats = rows(target.stats)[[70, 255, 129], 1]
    torch.testing.assert_close(stats[:, 0], expected.norm(dim=-1))
    assert torch.equal(stats[:, 1], expected.abs().amax(-1))


def test_statistics_are_those_of_the_stored_value():
    x = torch.tensor([[1.0, 1e5], [float("nan"), 1.0], [0.0, 0.0], [1.0001, -2.0]])
    target = capture([1, 2, 3, 4], 2, torch.float16)
    OPS.add_rms_norm(x, None, None, 0.0, capture=target)
    stats = rows(target.stats)[1:5, 1]
    assert stats[0].tolist() == [torch.inf, torch.inf]
    assert stats[1].isnan().all()
    assert stats[2].tolist() == [0.0, 0.0]
    torch.testing.assert_close(stats[3], torch.tensor([5.0**0.5, 2.0]))


def test_capture_of_the_normed_value():
    x, weight = torch.randn(2, 64), torch.randn(64)
    target = capture([5, 66], 64, torch.bfloat16)
    normed, _ = OPS.add_rms_norm(x, None, weight, 1e-5, capture_normed=target)
    stored = rows(target.cache)[[5, 66], 1]
    assert torch.equal(stored, normed.bfloat16())
    torch.testing.assert_close(rows(target.stats)[[5, 66], 1, 0], stored.float().norm(dim=-1))


@pytest.mark.parametrize("rotary_dim", [80, 32])
@pytest.mark.parametrize("with_norm", [False, True])
def test_rope_rotates_pairs_by_the_positions_angle_and_fills_the_pages(rotary_dim, with_norm):
    torch.manual_seed(0)
    q, k, v = torch.randn(5, 9, 80).split([5, 2, 2], dim=1)
    positions = torch.tensor([0, 3, 1, 7, 7])
    angle = torch.arange(8.0)[:, None] * torch.rand(rotary_dim // 2)
    k_cache, v_cache = (torch.full((3, BLOCK_SIZE, 2, 80), torch.nan) for _ in range(2))
    slots = torch.tensor([64, 65, 191, 130, 2])
    q_weight, k_weight = (torch.randn(80), torch.randn(80)) if with_norm else (None, None)

    def expected(x, weight):
        if weight is not None:
            x = weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        half = rotary_dim // 2
        pairs = torch.complex(x[..., :half], x[..., half:rotary_dim])
        turned = pairs * torch.polar(torch.ones(5, 1, half), angle[positions][:, None])
        return torch.cat((turned.real, turned.imag, x[..., rotary_dim:]), dim=-1)

    expected_q, expected_k, expected_v = expected(q, q_weight), expected(k, k_weight), v.clone()
    OPS.rope_kv_write(
        q,
        k,
        v,
        angle.cos(),
        angle.sin(),
        positions,
        q_norm=q_weight,
        k_norm=k_weight,
        eps=1e-6,
        k_cache=k_cache,
        v_cache=v_cache,
        slot_mapping=slots,
    )
    torch.testing.assert_close(q, expected_q)
    torch.testing.assert_close(k, expected_k)
    assert torch.equal(rows(k_cache)[slots], k)
    assert torch.equal(rows(v_cache)[slots], expected_v)
    assert k_cache.isfinite().sum() == 5 * 2 * 80


@pytest.mark.parametrize("activation", Activation)
def test_gated_activation(activation):
    gate_up = torch.randn(3, 14)
    gate, up = gate_up[:, :7], gate_up[:, 7:]
    gelu = 0.5 * gate * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3)))
    expected = up * (gate * gate.sigmoid() if activation is Activation.SILU else gelu)
    torch.testing.assert_close(OPS.silu_mul(gate_up, activation), expected)


def test_gather_and_mean_read_the_wanted_rows_only():
    cache = torch.full((3, BLOCK_SIZE, 2, 8), torch.nan, dtype=torch.bfloat16)
    slots = torch.tensor([64, 130, 70, 191])
    values = torch.randn(4, 2, 8).bfloat16()
    rows(cache)[slots] = values
    assert torch.equal(OPS.gather_rows(cache, slots), values)
    means = OPS.mean_rows(cache, slots, torch.tensor([0, 3, 3, 4], dtype=torch.int32))
    assert torch.equal(means[0], values[:3].float().mean(0).bfloat16())
    assert means[1].isnan().all()
    assert torch.equal(means[2], values[3])


def test_what_no_implementation_runs_is_refused():
    with pytest.raises(ValueError, match=r"float32, float16 or bfloat16; got torch\.float64"):
        select_ops("cpu", torch.float64)
    with pytest.raises(ValueError, match="got device meta"):
        select_ops("meta", torch.float32)
