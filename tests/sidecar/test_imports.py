from __future__ import annotations

import subprocess
import sys

import pytest


def modules_after(statement: str) -> set[str]:
    """Names of the top-level modules that a fresh interpreter has loaded."""
    program = f"{statement}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    )


@pytest.mark.parametrize("module", ["session", "progress_poster"])
def test_the_sidecar_loads_neither_torch_nor_what_needs_it(module: str) -> None:
    loaded = modules_after(f"import drillcore_server.sidecar.{module}")
    assert "numpy" in loaded or module == "progress_poster"
    assert not loaded & {"torch", "transformers", "triton", "tokenizers", "pyarrow", "drillcore_kernels", "kopf"}


def test_nothing_heavy_is_loaded_before_the_doorbell_is_bound() -> None:
    loaded = modules_after("import drillcore_server.sidecar.__main__")
    assert not loaded & {"numpy", "pydantic", "safetensors", "xxhash", "httpx", "yaml"}


def test_a_sidecar_that_posts_no_progress_loads_no_http_client_and_no_models() -> None:
    assert not modules_after("import drillcore_server.sidecar.session") & {"httpx", "pydantic"}
