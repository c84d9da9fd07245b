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
    """Give device, versions, commit and command; `clocks` is a `ClockReading` under load."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor(),
        "clocks": clocks,
        "versions": _versions(),
        "commit": os.environ.get("BENCHMARK_COMMIT") or _commit(),
        "command": " ".join(["python", *sys.argv]),
    }


class ClockReading:
    """Reads the GPU's clock and power in a process of its own: start it under load, take the result later."""

    def __init__(self, device: torch.device) -> None:
        query = "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu"
        command = ["nvidia-smi", "-i", str(device.index or 0), query, "--format=csv,noheader"]
        on_gpu = device.type == "cuda"
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True) if on_gpu else None

    def result(self) -> str:
        """Give the reading, or the number of CPU threads where there is no GPU."""
        if self._process is None:
            return f"{torch.get_num_threads()} CPU threads"
        output, _ = self._process.communicate()
        return output.strip() or "unknown"


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
