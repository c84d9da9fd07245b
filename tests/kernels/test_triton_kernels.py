"""Starts the checks of `against_references/` where Triton is told from the start how to run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHECKS = Path(__file__).parent / "against_references"


def run_checks(**environment):
    command = [sys.executable, "-m", "pytest", "-q", "-o", "python_files=check_*.py", str(CHECKS)]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_kernels_agree_with_their_references_in_the_interpreter():
    result = run_checks(TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_kernels_agree_with_their_references_on_the_card():
    result = run_checks(TRITON_INTERPRET="0")
    assert result.returncode == 0, result.stdout + result.stderr
