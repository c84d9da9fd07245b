"""Runs each Triton kernel beside its reference: in the interpreter on a CPU, compiled on a GPU.

These files are not collected by a plain `pytest`: the interpreter must be chosen before Triton is first
imported, so `test_triton_kernels.py` runs them in a process of their own.
"""

from contextlib import contextmanager

import pytest
import torch
from triton.runtime import interpreter

ON_GPU = torch.cuda.is_available()
# The interpreter rounds bfloat16 wrongly (https://github.com/triton-lang/triton/issues/11584).
DTYPES = [torch.bfloat16, torch.float16] if ON_GPU else [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1.5e-3, torch.bfloat16: 1.2e-2}
collect_ignore = [] if ON_GPU else ["check_large_offsets.py"]


def read_scalars_by_item():
    """Let loop bounds be one-element arrays: Triton 3.6 calls int() on them, which NumPy 2.4 refuses."""
    patch = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def pytest_configure(config):
    """Let the interpreter's NumPy compute the NaN and the infinities that some checks ask for."""
    read_scalars_by_item()
    config.addinivalue_line("filterwarnings", "ignore::RuntimeWarning:triton.runtime.interpreter")


@pytest.fixture
def device():
    return torch.device("cuda" if ON_GPU else "cpu")


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


@pytest.fixture
def main_dtype():
    """The type for checks that need not run in every one."""
    return DTYPES[0]


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
        torch.set_deterministic_debug_mode("error")
        try:
            assert torch.empty(3).isnan().all()
            yield
        finally:
            torch.set_deterministic_debug_mode("default")

    return poison
