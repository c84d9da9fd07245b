"""The attention kernels beside float32 references on the same 16-bit values."""

import pytest
import torch

OPTIONS = {
    "plain": {},
    "window": {"window": 17},
    "window over tiles": {"window": 100},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": True},
    "all": {"window": 70, "softcap": 2.0, "sinks": True},
}
SHAPES = [(7, 1, 80), (4, 2, 96), (2, 2, 64), (2, 1, 128), (1, 1, 256), (2, 1, 16)]
LENGTHS = [1, 64, 0, 65, 150]


def with_sinks(options, num_heads, device):
    values = {"sinks": torch.linspace(-2.0, 3.0, num_heads, device=device)} if "sinks" in options else {}
    return options | values


def on_cpu(options):
    return {name: value.cpu() if torch.is_tensor(value) else value for name, value in options.items()}


def cases(function):
    """Each head size plainly, and each option at the oddest head size."""
    plain = [(shape, "plain") for shape in SHAPES]
    optional = [(SHAPES[0], name) for name in OPTIONS if name != "plain"]
    return pytest.mark.parametrize(("shape", "option"), plain + optional)(function)


def prefill_expected(reference, offsets, q, k, v, options):
    inputs = (x.float().cpu() for x in (q, k, v))
    return reference.varlen_prefill(*inputs, offsets(LENGTHS), max_seqlen=150, scale=0.1, **on_cpu(options))


@cases
def test_prefill(ops, reference, packed, offsets, assert_close, device, main_dtype, shape, option):
    options = with_sinks(OPTIONS[option], shape[0], device)
    q, k, v = packed(LENGTHS, *shape, dtype=main_dtype, device=device)
    out = torch.full(q.shape, torch.nan, dtype=main_dtype, device=device)
    limits = {"max_seqlen": 150, "scale": 0.1, "tiles": ops.plan_tiles(LENGTHS, LENGTHS, device)}
    ops.varlen_prefill(q, k, v, offsets(LENGTHS, device), out=out, **limits, **options)
    assert_close(out, prefill_expected(reference, offsets, q, k, v, options), main_dtype)


def test_prefill_without_planned_tiles(ops, reference, packed, offsets, assert_close, device, dtype):
    q, k, v = packed(LENGTHS, 3, 1, 96, dtype=dtype, device=device)
    out = torch.full(q.shape, torch.nan, dtype=dtype, device=device)
    ops.varlen_prefill(q, k, v, offsets(LENGTHS, device), max_seqlen=150, scale=0.1, out=out)
    assert_close(out, prefill_expected(reference, offsets, q, k, v, {}), dtype)


@cases
def test_extend(ops, reference, packed, offsets, paged, assert_close, device, main_dtype, shape, option):
    lengths, counts = [1, 64, 65, 200, 130], [1, 64, 3, 1, 70]
    options = with_sinks(OPTIONS[option], shape[0], device)
    all_q, k, v = packed(lengths, *shape, dtype=main_dtype, device=device)
    q = torch.cat([rows[-count:] for rows, count in zip(all_q.split(lengths), counts, strict=True)])
    (k_cache, table), (v_cache, _) = paged(k, lengths), paged(v, lengths)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
    limits = {"max_seqlen_q": 70, "max_seqlen": 200, "scale": 0.1}
    expected = reference.paged_extend(
        *(x.float().cpu() for x in (q, k_cache, v_cache)),
        table.cpu(),
        offsets(counts),
        seq_lens.cpu(),
        **limits,
        **on_cpu(options),
    )
    out = torch.full(q.shape, torch.nan, dtype=main_dtype, device=device)
    tiles = ops.plan_tiles(counts, lengths, device)
    ops.paged_extend(
        q, k_cache, v_cache, table, offsets(counts, device), seq_lens, tiles=tiles, out=out, **limits, **options
    )
    assert_close(out, expected, main_dtype)


@cases
def test_decode(ops, reference, packed, paged, assert_close, device, main_dtype, shape, option):
    lengths = [1, 64, 65, 400]
    options = with_sinks(OPTIONS[option], shape[0], device)
    _, k, v = packed(lengths, *shape, dtype=main_dtype, device=device)
    q = packed([len(lengths)], *shape, dtype=main_dtype, device=device)[0]
    (k_cache, table), (v_cache, _) = paged(k, lengths), paged(v, lengths)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
    expected = reference.paged_decode(
        *(x.float().cpu() for x in (q, k_cache, v_cache)),
        table.cpu(),
        seq_lens.cpu(),
        scale=0.1,
        **on_cpu(options),
    )
    out = torch.full(q.shape, torch.nan, dtype=main_dtype, device=device)
    ops.paged_decode(q, k_cache, v_cache, table, seq_lens, scale=0.1, out=out, **options)
    assert_close(out, expected, main_dtype)


def test_an_empty_batch_launches_nothing(ops, packed, offsets, device, dtype):
    q, k, v = packed([0], 4, 2, 64, dtype=dtype, device=device)
    cache = torch.zeros(1, 64, 2, 64, dtype=dtype, device=device)
    table, none = (torch.zeros(shape, dtype=torch.int32, device=device) for shape in ((0, 0), (0,)))
    assert ops.varlen_prefill(q, k, v, offsets([], device), max_seqlen=0, scale=1.0).shape == (0, 4, 64)
    assert ops.paged_decode(q, cache, cache, table, none, scale=1.0).shape == (0, 4, 64)
    limits = {"max_seqlen_q": 0, "max_seqlen": 0, "scale": 1.0}
    out = ops.paged_extend(q, cache, cache, table, offsets([], device), none, **limits)
    assert out.shape == (0, 4, 64)


def test_a_nan_in_one_sequence_stays_in_it(ops, packed, offsets, device, dtype):
    q, k, v = packed([70, 70], 2, 1, 64, dtype=dtype, device=device)
    k[70:] = torch.nan
    v[70:] = torch.nan
    out = ops.varlen_prefill(q, k, v, offsets([70, 70], device), max_seqlen=70, scale=1.0)
    assert out[:70].isfinite().all()
    assert out[70:].isnan().all()


def test_the_longest_tiles_come_first(ops, device):
    tiles = ops.plan_tiles([65, 0, 10, 128], [65, 0, 500, 128], device).tolist()
    assert tiles == [[2, 0], [0, 1], [3, 1], [0, 0], [3, 0]]


def test_a_head_size_without_a_kernel_is_refused(ops, packed, offsets, device, dtype):
    q, k, v = packed([3], 2, 1, 20, dtype=dtype, device=device)
    with pytest.raises(ValueError, match="head_dim must be a multiple of 8 from 16 to 256; got 20"):
        ops.varlen_prefill(q, k, v, offsets([3], device), max_seqlen=3, scale=1.0)


def test_a_block_size_other_than_the_key_tile_is_refused(ops, packed, device, dtype):
    q, _, _ = packed([1], 2, 1, 64, dtype=dtype, device=device)
    cache = torch.zeros(2, 16, 1, 64, dtype=dtype, device=device)
    table = torch.ones(1, 1, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="block size must be 64; got 16"):
        ops.paged_decode(q, cache, cache, table, table[0], scale=1.0)


def test_a_scale_that_is_not_positive_is_refused(ops, packed, offsets, device, dtype):
    q, k, v = packed([3], 2, 1, 64, dtype=dtype, device=device)
    with pytest.raises(ValueError, match=r"must be positive; got -1\.0"):
        ops.varlen_prefill(q, k, v, offsets([3], device), max_seqlen=3, scale=-1.0)
