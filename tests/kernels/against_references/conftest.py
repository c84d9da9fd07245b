"""Runs each Triton kernel beside its reference: in the interpreter on a CPU, compiled on a GPU.

These files are not collected by a plain `pytest`: the interpreter must be chosen before Triton is first
imported, so `test_triton_kernels.py` runs them in a process of their own.
"""

from contextlib import contextmanager

import pytest
import torch

ON_GPU = torch.cuda.is_available()
# The interpreter rounds bfloat16 wrongly (https://github.com/triton-lang/triton/issues/11584).
DTYPES = [torch.bfloat16, torch.float16] if ON_GPU else [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1.5e-3, torch.bfloat16: 1.2e-2}
collect_ignore = [] if ON_GPU else ["check_large_offsets.py"]


@pytest.fixture
def device():
    return torch.device("cuda" if ON_GPU else "cpu")


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


@pytest.fixture
def ops():
    from drillcore_kernels.triton_ops import TRITON_OPS

    return TRITON_OPS


@pytest.fixture
def reference():
    from drillcore_kernels import select_ops

    return select_ops("cpu", torch.float32)


@pytest.fixture
def assert_close():
    """Compare rows by the norm of their difference; a NaN never passes."""

    def check(out, expected, dtype):
        error = (out.float() - expected.float().to(out.device)).norm(dim=-1)
        size = expected.float().norm(dim=-1).to(out.device) + 1e-6
        worst = (error / size).max().item() if error.numel() else 0.0
        assert worst <= TOLERANCE[dtype], f"a row is {worst:.2e} off; at most {TOLERANCE[dtype]:.1e} expected"
        assert out.isfinite().all()

    return check


@pytest.fixture
def fresh_memory_is_nan():
    """Within this, `torch.empty` gives NaN, so that an element that a kernel leaves out is seen."""

    @contextmanager
    def poison():
        torch.use_deterministic_algorithms(True)
        try:
            assert torch.empty(3).isnan().all()
            yield
        finally:
            torch.use_deterministic_algorithms(False)

    return poison
