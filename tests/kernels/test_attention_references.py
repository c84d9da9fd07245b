"""The attention references against softmax over an explicit mask in float64."""

import pytest
import torch

from drillcore_kernels import select_ops

OPS = select_ops("cpu", torch.float32)
LENGTHS = [1, 63, 0, 64, 65, 130, 520]
OPTIONS = {
    "plain": {},
    "window": {"window": 17},
    "window longer than any sequence": {"window": 4096},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": torch.linspace(-2.0, 3.0, 14)},
    "all": {"window": 70, "softcap": 2.0, "sinks": torch.linspace(-2.0, 3.0, 14)},
}


def explicit(q, k, v, scale, window=None, softcap=None, sinks=None):
    """Give [S, Hq, Dh] for the last S of L tokens, one head at a time in float64."""
    num_queries, num_heads, _ = q.shape
    length = k.shape[0]
    positions = torch.arange(length - num_queries, length)[:, None]
    keys = torch.arange(length)[None, :]
    visible = keys <= positions
    if window is not None:
        visible &= keys > positions - window
    out = torch.empty(q.shape, dtype=torch.float64)
    for head in range(num_heads):
        kv_head = head // (num_heads // k.shape[1])
        scores = q[:, head].double() @ k[:, kv_head].double().T * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        weights = scores.exp() * visible
        total = weights.sum(-1, keepdim=True) + (0.0 if sinks is None else sinks[head].double().exp())
        out[:, head] = weights / total @ v[:, kv_head].double()
    return out


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_prefill_equals_explicit_softmax(packed, offsets, options):
    q, k, v = packed(LENGTHS, 14, 2, 80)
    out = torch.full((sum(LENGTHS), 14, 80), torch.nan)
    OPS.varlen_prefill(q, k, v, offsets(LENGTHS), max_seqlen=520, scale=0.2, out=out, **options)
    parts = zip(q.split(LENGTHS), k.split(LENGTHS), v.split(LENGTHS), strict=True)
    expected = torch.cat([explicit(*part, 0.2, **options) for part in parts])
    torch.testing.assert_close(out.double(), expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_extend_equals_explicit_softmax_over_the_pages(packed, offsets, paged, options):
    lengths, queries = [1, 64, 65, 200, 130], [1, 64, 3, 1, 70]
    all_q, k, v = packed(lengths, 14, 2, 80)
    q = [rows[-count:] for rows, count in zip(all_q.split(lengths), queries, strict=True)]
    k_cache, table = paged(k, lengths)
    v_cache, _ = paged(v, lengths)
    out = OPS.paged_extend(
        torch.cat(q),
        k_cache,
        v_cache,
        table,
        offsets(queries),
        torch.tensor(lengths, dtype=torch.int32),
        max_seqlen_q=70,
        max_seqlen=200,
        scale=0.2,
        **options,
    )
    parts = zip(q, k.split(lengths), v.split(lengths), strict=True)
    expected = torch.cat([explicit(*part, 0.2, **options) for part in parts])
    torch.testing.assert_close(out.double(), expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_decode_equals_the_last_row_of_a_prefill(packed, offsets, paged, options):
    lengths = [1, 64, 65, 200]
    q, k, v = packed(lengths, 14, 2, 80)
    whole = OPS.varlen_prefill(q, k, v, offsets(lengths), max_seqlen=200, scale=0.2, **options)
    k_cache, table = paged(k, lengths)
    v_cache, _ = paged(v, lengths)
    last = offsets(lengths)[1:].long() - 1
    seq_lens = torch.tensor(lengths, dtype=torch.int32)
    out = OPS.paged_decode(q[last], k_cache, v_cache, table, seq_lens, scale=0.2, **options)
    torch.testing.assert_close(out, whole[last], atol=1e-5, rtol=1e-5)


def test_an_empty_batch_gives_an_empty_result(packed, offsets):
    q, k, v = packed([0], 14, 2, 80)
    assert OPS.varlen_prefill(q, k, v, offsets([]), max_seqlen=0, scale=1.0).shape == (0, 14, 80)
    cache, table = torch.zeros(1, 64, 2, 80), torch.zeros(0, 0, dtype=torch.int32)
    none = torch.zeros(0, dtype=torch.int32)
    assert OPS.paged_decode(q, cache, cache, table, none, scale=1.0).shape == (0, 14, 80)


def test_a_nan_in_one_sequence_stays_in_it(packed, offsets):
    q, k, v = packed([5, 7], 14, 2, 80)
    v[3] = torch.nan
    out = OPS.varlen_prefill(q, k, v, offsets([5, 7]), max_seqlen=7, scale=1.0)
    assert out[3].isnan().all()
    assert out[5:].isfinite().all()
