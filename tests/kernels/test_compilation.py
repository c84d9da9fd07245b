"""Compiles the kernels for chips that are not here: what the interpreter accepts, the compiler may not."""

import pytest

pytest.importorskip("triton")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from drillcore_kernels.add_rms_norm.kernel import _add_rms_norm_kernel
from drillcore_kernels.attention.kernel import attention_kernel
from drillcore_kernels.gather_rows.kernel import _gather_rows_kernel
from drillcore_kernels.mean_rows.kernel import _mean_rows_kernel
from drillcore_kernels.paged_decode.kernel import _combine_kernel, _split_kernel
from drillcore_kernels.rope_kv_write.kernel import _rope_kv_write_kernel
from drillcore_kernels.silu_mul.kernel import _silu_mul_kernel

HOPPER, AMPERE = 90, 80
BF16, F32, I32, I64, INT, FLOAT = "*bf16", "*fp32", "*i32", "*i64", "i32", "fp32"


@pytest.fixture
def ptx_of(monkeypatch, tmp_path):
    """Compile a kernel for a capability; names that are not in `types` are constants."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    def build(kernel, capability, types, constants, num_warps=4, num_stages=3):
        signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
        aligned = [name for name, kind in types.items() if kind.startswith("*") or name.endswith("_stride")]
        names = kernel.arg_names
        source = ASTSource(
            fn=kernel,
            signature=signature,
            constexprs={(names.index(name),): constants.get(name) for name in set(names) - set(types)},
            attrs={(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
        )
        options = {"num_warps": num_warps, "num_stages": num_stages}
        return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]

    return build


def descriptor(padded_dim):
    return f"tensordesc<bf16[1,64,{padded_dim}]>"


def attention_types(padded_dim, *, paged, sinks=False):
    types = {"q_ptr": BF16, "k_desc": descriptor(padded_dim), "v_desc": descriptor(padded_dim)}
    types |= {"out_ptr": BF16, "cu_seqlens_ptr": I32, "tiles_ptr": I32, "scale": FLOAT}
    types |= dict.fromkeys(("blocks_stride", "max_tiles", "q_stride", "q_head_stride"), INT)
    if sinks:
        types["sinks_ptr"] = BF16
    return types | ({"seq_lens_ptr": I32, "blocks_ptr": I32} if paged else {})


def attention_constants(head_dim, padded_dim, **options):
    shape = {"NUM_HEADS": 14, "GROUP": 7, "HEAD_DIM": head_dim, "BLOCK_D": padded_dim}
    return shape | {"BLOCK_M": 64, "BLOCK_N": 64} | options


@pytest.mark.parametrize(("head_dim", "padded", "warps", "stages"), [(80, 128, 4, 3), (256, 256, 8, 2)])
def test_prefill_on_hopper_feeds_the_matrix_units_from_the_copy_engine(ptx_of, head_dim, padded, warps, stages):
    types, constants = attention_types(padded, paged=False), attention_constants(head_dim, padded)
    ptx = ptx_of(attention_kernel, HOPPER, types, constants, warps, stages)
    assert "wgmma.mma_async" in ptx
    assert "cp.async.bulk.tensor.3d" in ptx


def test_extend_with_every_option_on_hopper(ptx_of):
    types = attention_types(128, paged=True, sinks=True)
    constants = attention_constants(128, 128, WINDOW=1024, SOFTCAP=50.0)
    assert "cp.async.bulk.tensor.3d" in ptx_of(attention_kernel, HOPPER, types, constants, 4, 5)


def test_prefill_on_ampere_needs_no_copy_engine(ptx_of):
    types, constants = attention_types(128, paged=False), attention_constants(128, 128)
    ptx = ptx_of(attention_kernel, AMPERE, types, constants, 4, 2)
    assert "cp.async.bulk" not in ptx


def test_decode(ptx_of):
    types = attention_types(128, paged=True, sinks=True)
    for name in ("out_ptr", "cu_seqlens_ptr", "tiles_ptr", "max_tiles"):
        del types[name]
    types |= {"partial_ptr": F32, "log_sum_ptr": F32}
    constants = attention_constants(128, 128, SPLITS=8, WINDOW=1024) | {"BLOCK_M": 16}
    assert "cp.async.bulk.tensor.3d" in ptx_of(_split_kernel, HOPPER, types, constants, 4, 5)
    types = {"partial_ptr": F32, "log_sum_ptr": F32, "out_ptr": BF16}
    assert ptx_of(_combine_kernel, HOPPER, types, {"HEAD_DIM": 128, "BLOCK_D": 128, "SPLITS": 8}, 1)


def test_add_rms_norm_reads_16_bytes_at_a_time(ptx_of):
    types = dict.fromkeys(("x_ptr", "residual_ptr", "weight_ptr", "normed_ptr", "cache_ptr"), BF16)
    types |= {"stats_ptr": F32, "slots_ptr": I64, "eps": FLOAT}
    types |= dict.fromkeys(("column", "normed_column", "num_columns", "x_stride"), INT)
    constants = {"HIDDEN": 4096, "BLOCK": 4096, "KIND": "llama"}
    assert "ld.global.v4" in ptx_of(_add_rms_norm_kernel, HOPPER, types, constants, 8)


def test_rope_kv_write(ptx_of):
    types = dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "q_norm_ptr", "k_norm_ptr"), BF16)
    types |= dict.fromkeys(("k_cache_ptr", "v_cache_ptr"), BF16) | {"cos_ptr": F32, "sin_ptr": F32}
    types |= {"positions_ptr": I64, "slots_ptr": I64, "eps": FLOAT}
    types |= dict.fromkeys(("q_stride", "k_stride", "v_stride"), INT)
    shape = {"NUM_HEADS": 7, "NUM_KV_HEADS": 1, "BLOCK_HEADS": 8, "BLOCK_KV_HEADS": 1, "HEAD_DIM": 80}
    sizes = {"BLOCK_DIM": 128, "HALF": 16, "BLOCK_HALF": 16, "BLOCK_REST": 64, "KIND": "llama"}
    assert ptx_of(_rope_kv_write_kernel, HOPPER, types, shape | sizes)


def test_silu_mul_gather_and_mean(ptx_of):
    types = {"gate_up_ptr": BF16, "out_ptr": BF16, "row_stride": INT}
    for gelu in (False, True):
        assert ptx_of(_silu_mul_kernel, HOPPER, types, {"FEATURES": 14336, "BLOCK": 2048, "GELU": gelu})
    types = {"cache_ptr": BF16, "slots_ptr": I64, "out_ptr": BF16}
    assert ptx_of(_gather_rows_kernel, HOPPER, types, {"ROW": 16384, "BLOCK": 4096})
    types |= {"cu_rows_ptr": I32}
    assert ptx_of(_mean_rows_kernel, HOPPER, types, {"ROW": 16384, "BLOCK": 512, "ROWS": 8})
