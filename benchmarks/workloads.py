"""The workloads W1 to W6 end to end, each beside its yardsticks in the same run on the same card.

    python benchmarks/workloads.py --out benchmarks/results/workloads.json
    python benchmarks/workloads.py --smoke                 # a tiny model, on the CPU too

Systems: `drillcore` (requests in, committed files out), `drillcore-forward` (the same steps, nothing kept),
`composed-forward` (the bare kernels), `transformers`, and `vllm` where it can be imported. A workload whose states
are not right gets no row, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import functools
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from conditions import Row
from end_to_end import Places
from parity_check import Parity
from workload_list import WORKLOADS, Workload, smoke
from workload_session import Session

_LIMIT_FACTOR = 2.5
"""A stage is ended when it takes so much longer than expected."""


@dataclass(frozen=True)
class Stage:
    """One measurement that can fail or be left out without the others."""

    name: str
    expected_s: float
    """It is left out when less of the budget is left."""
    run: Callable[[], Iterable[Row]]


class Bench:
    """Runs stages within a budget of time, and writes the rows after each."""

    def __init__(self, out: Path | None, budget_s: float) -> None:
        self._out = out
        self._deadline = time.monotonic() + budget_s
        self._rows: list[Row] = []
        self._refused: list[Row] = []
        self.failed: list[str] = []

    def run(self, stage: Stage) -> None:
        """Runs one stage; its failure is printed, remembered, and does not end the others."""
        left_s = self._deadline - time.monotonic()
        if stage.expected_s > left_s:
            print(f"{stage.name}: left out, {left_s:.0f} s are left", flush=True)
            self.failed.append(stage.name)
            return
        began = time.monotonic()
        signal.alarm(max(1, int(min(left_s, _LIMIT_FACTOR * stage.expected_s))))
        try:
            for row in stage.run():
                self._add(row)
        except Exception:  # noqa: BLE001 - it is printed, counted, and ends only this stage
            traceback.print_exc()
            self.failed.append(stage.name)
        finally:
            signal.alarm(0)
        print(f"{stage.name}: {time.monotonic() - began:.1f} s, {left_s:.0f} s were left", flush=True)

    def _add(self, row: Row) -> None:
        """Keeps a row; one of a workload whose states are wrong goes to another file, for whoever looks into it."""
        right = Parity(**row["parity"]).ok  # type: ignore[arg-type]
        (self._rows if right else self._refused).append(row)
        shown = {key: row[key] for key in ("workload", "system", "tokens_per_s", "seconds") if key in row}
        print(json.dumps(shown), flush=True)
        if self._out:
            self._out.write_text(json.dumps(self._rows, indent=1) + "\n")
            if self._refused:
                self._out.with_suffix(".refused.json").write_text(json.dumps(self._refused, indent=1) + "\n")


def stages(workloads: Iterable[Workload], places: Places, num_peer_tokens: int) -> Iterator[Stage]:
    """Every stage in the order of the workloads; models are made before the first workload that needs them."""
    sessions: dict[str, Session] = {}
    workloads = tuple(workloads)
    for workload in workloads:
        if workload.model not in sessions:
            sessions[workload.model] = session = Session(workload.model, places, num_peer_tokens)
            yield Stage(f"model {workload.model}", 30, session.make)
            of_model = [w for w in workloads if w.model == workload.model]
            for other in of_model:
                yield Stage(f"parity of {other.name}", 20, functools.partial(session.check, other))
        session = sessions[workload.model]
        for system in workload.yardsticks:
            yield Stage(f"{workload.name} {system}", 15, functools.partial(session.yardstick, workload, system))
        yield Stage(workload.name, workload.expected_s, functools.partial(session.end_to_end, workload))
    for workload in workloads:
        session = sessions[workload.model]
        if workload.runs_as_job:
            yield Stage(f"{workload.name} as a job", 45, functools.partial(session.job, workload))
            yield Stage(f"{workload.name} disturbed", 20, functools.partial(session.disturbed, workload))
        if workload.has_peer:
            yield Stage(f"{workload.name} transformers", 10, functools.partial(session.peer_rate, workload))


def main() -> int:
    """Measures what was asked for; 1 if a stage failed or was left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--only", action="append", choices=names, help="may be repeated; default: all")
    parser.add_argument("--out", type=Path, help="write the rows here, as a JSON list")
    parser.add_argument("--budget-s", type=float, default=3600.0, help="leave out what does not fit")
    parser.add_argument("--output-root", type=Path, default=Path("/dev/shm"), help="where the states are written")
    parser.add_argument("--peer-tokens", type=int, default=60_000, help="tokens of the prompts that the peer runs")
    parser.add_argument("--writers", type=int, default=8, help="writer threads of the sidecar")
    parser.add_argument("--smoke", action="store_true", help="a tiny model; shows that everything runs")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_slow)
    chosen = [workload for workload in WORKLOADS if workload.name in (options.only or names)]
    if options.smoke:
        chosen = [smoke(workload) for workload in chosen]
    places = Places(options.output_root, options.output_root, options.writers)
    bench = Bench(options.out, options.budget_s)
    for stage in stages(chosen, places, options.peer_tokens):
        bench.run(stage)
    if bench.failed:
        print(f"failed or left out: {', '.join(bench.failed)}", file=sys.stderr)
    return 1 if bench.failed else 0


def _too_slow(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError("the stage took longer than its limit")


if __name__ == "__main__":
    sys.exit(main())
