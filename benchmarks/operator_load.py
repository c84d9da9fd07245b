"""The operator under load: 1,000 jobs whose 4,000 shards report progress every 30 seconds.

etcd, API server, controller-manager and scheduler are real, on this machine; the pods are real objects whose
kubelet is played, and this process posts what their sidecars would, with tokens bound to the pods. Begins to
measure when every job runs.

    PYTHONPATH=tests/cluster python benchmarks/operator_load.py --out benchmarks/results/operator_load.json
    PYTHONPATH=tests/cluster python benchmarks/operator_load.py --smoke
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
from operator_cluster import Crowd, LoadedCluster, loaded_cluster
from operator_figures import Figures, Limits, figures
from operator_samples import Sample, Sampler
from operator_shards import Reporters

from drillcore_testcluster.binaries import KUBERNETES_VERSION


@dataclass(frozen=True)
class Load:
    """How much of it, and for how long."""

    crowd: Crowd
    duration_s: float
    warm_up_s: float
    """Reports before the measurement: the first one of each pod has its token reviewed, all within one interval."""
    report_interval_s: float
    status_interval_s: float
    settled_after_s: float
    """Memory may grow until then: caches fill."""


NUM_NAMESPACES = 10
FULL = Load(Crowd(NUM_NAMESPACES, jobs_per_namespace=100, shards_per_job=4), 900.0, 120.0, 30.0, 15.0, 300.0)
SMOKE = Load(Crowd(num_namespaces=2, jobs_per_namespace=2, shards_per_job=2), 20.0, 6.0, 3.0, 5.0, 10.0)


def measure(cluster: LoadedCluster, load: Load) -> tuple[Figures, list[Sample]]:
    """Reports for the whole duration, what came of it, and the operator over that time."""
    reporters = Reporters(cluster, load.report_interval_s)
    with ThreadPoolExecutor(1) as thread:
        reporting = thread.submit(asyncio.run, reporters.run(load.warm_up_s + load.duration_s))
        time.sleep(load.warm_up_s)
        before = cluster.conditions()
        reporters.forget()
        with Sampler(cluster.operator, cluster.api_port) as sampler:
            start_s = time.time()
            wait([reporting], timeout=load.duration_s)
            end_s = time.time()
        reporting.result()
    changed = sum(1 for job, told in cluster.conditions().items() if before[job] != told)
    span_s = (start_s, end_s)
    return figures(cluster, sampler.samples, reporters, span_s, load.settled_after_s, changed), sampler.samples


def result(load: Load, seen: Figures, setup_s: float) -> dict[str, object]:
    """The figures with the conditions under which they were measured."""
    return {
        "workload": asdict(load),
        "figures": asdict(seen),
        "setup_s": round(setup_s),
        "device": f"{os.cpu_count()} cores ({_cpu_model()}), {psutil.virtual_memory().total >> 30} GiB;"
        " API server, etcd, controllers, operator and load on the same machine",
        "load_average_at_end": [round(minutes) for minutes in os.getloadavg()],
        "versions": {
            "kubernetes": KUBERNETES_VERSION,
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
        "commit": _commit(),
        "command": " ".join(["python", *sys.argv]),
    }


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    """Prints the result; 1 if a figure is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few jobs for half a minute")
    parser.add_argument("--jobs", type=int, default=FULL.crowd.num_jobs, help=f"a multiple of {NUM_NAMESPACES}")
    parser.add_argument("--seconds", type=float, help=f"of measurement; default: {FULL.duration_s:g}")
    parser.add_argument("--out", type=Path, help="also write the result here")
    parser.add_argument("--samples", type=Path, help="write memory, processor time and queue length over time here")
    arguments = parser.parse_args()
    crowd = replace(FULL.crowd, jobs_per_namespace=arguments.jobs // NUM_NAMESPACES)
    load = SMOKE if arguments.smoke else replace(FULL, crowd=crowd, duration_s=arguments.seconds or FULL.duration_s)
    begun_s = time.monotonic()
    with loaded_cluster(load.crowd, load.status_interval_s) as cluster:
        setup_s = time.monotonic() - begun_s
        print(f"{load.crowd.num_jobs} jobs run after {setup_s:.0f} s", flush=True)
        seen, samples = measure(cluster, load)
    text = json.dumps(result(load, seen, setup_s), indent=1)
    print(text)
    if arguments.samples:
        arguments.samples.write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in samples))
    if arguments.out:
        arguments.out.write_text(text + "\n")
    broken = Limits(status_interval_s=load.status_interval_s).broken_by(seen)
    for line in broken:
        print(f"over its limit: {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
