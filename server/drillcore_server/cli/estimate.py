"""`drillcore estimate`: what a job will write, before it runs."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from drillcore_server.cli.display import human_bytes
from drillcore_server.cli.run import volumes_of
from drillcore_server.estimate import estimate_job
from drillcore_spec import load_job
from drillcore_spec.features import refuse_unbuilt


def command(arguments: argparse.Namespace) -> int:
    """Prints the estimate; 0."""
    job = load_job(arguments.job)
    refuse_unbuilt(job.spec)
    estimate = estimate_job(job.spec, volumes_of(arguments))
    if arguments.json:
        json.dump(asdict(estimate), sys.stdout)
        sys.stdout.write("\n")
        return 0
    generates = job.spec.generation.max_tokens > 0
    sys.stdout.write(
        f"  rows    {estimate.rows_in:,} in, {estimate.rows_out:,} out, {estimate.rows_quarantined:,} quarantined\n"
        f"  tokens  {estimate.tokens:,}\n"
        f"  states  {estimate.states:,}\n"
        f"  bytes   {estimate.bytes:,} ({human_bytes(estimate.bytes)})\n"
        + (
            f"  {unsupervised:,} rows have no supervised token\n"
            if (unsupervised := estimate.rows_unsupervised)
            else ""
        )
        + (f"  {dropped:,} tokens fill no context\n" if (dropped := estimate.tokens_dropped) else "")
        + ("  upper bounds: generated rows may end earlier\n" if generates else "")
    )
    return 0
