"""`drillcore check`: is this engine right on this model?"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from drillcore_server.cli.run import volumes_of
from drillcore_server.models.sources import resolve_model
from drillcore_server.parity import TOLERANCE_FLOAT32, ParityReport, compare_with_transformers
from drillcore_spec.model_source import ModelSource


def command(arguments: argparse.Namespace) -> int:
    """Prints every id's distance from transformers; 0 if all agree, 1 if not."""
    uri = arguments.model if "://" in arguments.model else Path(arguments.model).absolute().as_uri()
    source = ModelSource(uri=uri, revision=arguments.revision)
    folder = resolve_model(source, volumes_of(arguments), cache_dir=None)
    report = compare_with_transformers(folder.path, arguments.text)
    if arguments.json:
        columns = [{**asdict(column), "ok": column.ok} for column in report.columns]
        json.dump({"ok": report.ok, "tokens": report.num_tokens, "columns": columns}, sys.stdout)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(_table(report))
    return 0 if report.ok else 1


def _table(report: ParityReport) -> str:
    lines = [
        f"{report.num_tokens} tokens, whole and in {report.num_chunks} chunks, in float32 on the CPU.",
        "Largest relative distance of a token from transformers, and from transformers' next id for comparison:",
        "",
        "  id           error    next id",
    ]
    for column in report.columns:
        verdict = "ok" if column.ok else "WRONG"
        lines.append(f"  {column.name:<10} {column.worst_error:8.1e}   {column.neighbour_error:8.1e}   {verdict}")
    lines += [
        "",
        f"All ids agree to {TOLERANCE_FLOAT32:g}." if report.ok else "Some ids disagree: do not use this model.",
    ]
    return "\n".join(lines) + "\n"
