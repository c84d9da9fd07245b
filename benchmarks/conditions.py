"""Under which conditions a number was measured; every row of benchmarks/results/*.json carries them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

import torch

Row = dict[str, object]
_PACKAGES = ("torch", "triton", "transformers", "vllm")


def conditions(device: torch.device, clocks: str) -> Row:
    """Give device, versions, commit and command; `clocks` is what `read_clocks` gave under load."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor(),
        "clocks": clocks,
        "versions": _versions(),
        "commit": os.environ.get("BENCHMARK_COMMIT") or _commit(),
        "command": " ".join(["python", *sys.argv]),
    }


def read_clocks(device: torch.device) -> str:
    """Give the GPU's clock and power at this moment, which means something only under load."""
    if device.type != "cuda":
        return f"{torch.get_num_threads()} threads"
    query = "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu"
    command = ["nvidia-smi", "-i", str(device.index or 0), query, "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"unknown: {error}"


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "cuda": torch.version.cuda or "none"}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "none"
    return versions


def _commit() -> str:
    result = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"
