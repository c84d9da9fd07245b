"""`drillcore verify`, `inspect` and `clean`: look at an output."""

from __future__ import annotations

import argparse
import json
import sys

import drillcore
from drillcore import Counts, InspectReport
from drillcore_server.cli.display import human_bytes

_BAR_CHARACTERS = 40


def verify(arguments: argparse.Namespace) -> int:
    """Reads everything; 0 if the output is complete and whole, 1 if not."""
    report = drillcore.verify(arguments.output)
    if arguments.json:
        _print_json(report.to_json())
        return 0 if report.ok else 1
    for problem in report.problems:
        sys.stdout.write(f"  {problem}\n")
    shards = f"{report.shards_committed} of {report.shards} shards committed"
    verdict = "whole" if report.ok else "NOT whole"
    sys.stdout.write(f"{verdict}: {shards}, {_rows(report.counts)}, {human_bytes(report.bytes_checked)} checked\n")
    return 0 if report.ok else 1


def inspect(arguments: argparse.Namespace) -> int:
    """Prints what an output holds; 0."""
    report = drillcore.inspect(arguments.output)
    if arguments.json:
        _print_json(report.to_json())
    else:
        sys.stdout.write("\n".join(_inspect_lines(report)) + "\n")
    return 0


def clean(arguments: argparse.Namespace) -> int:
    """Lists the files that nothing needs and, with `--delete`, deletes them; 0."""
    report = drillcore.clean(arguments.output, remove=arguments.delete)
    if arguments.json:
        _print_json(report.to_json())
        return 0
    for file in report.files:
        sys.stdout.write(f"  {file}\n")
    done = "deleted" if report.removed else "could be deleted with --delete"
    sys.stdout.write(f"{len(report.files)} files, {human_bytes(report.bytes)}, {done}\n")
    return 0


def _inspect_lines(report: InspectReport) -> list[str]:
    manifest = report.manifest
    committed = sum(shard.committed for shard in report.shards)
    lines = [
        f"  output      {report.path} ({'complete' if report.complete else 'not complete'})",
        f"  model       {manifest.model.uri}" + (f" at {manifest.model.revision}" if manifest.model.revision else ""),
        f"  dataset     {manifest.dataset['uri']}",
        f"  columns     {', '.join(map(str, manifest.columns))} of {manifest.hidden_size} {manifest.store_dtype.value}",
        f"  positions   {manifest.positions}",
        f"  shards      {committed} of {manifest.shard_count} committed",
        f"  rows        {_rows(report.counts)}",
        f"  tokens      {report.counts.tokens:,}; {report.counts.states:,} states, {human_bytes(report.counts.bytes)}",
    ]
    lines += [f"  quarantine  {count} {reason}" for reason, count in report.quarantine.items()]
    if report.tokens_per_row.rows:
        lines += ["", "  tokens per row", *_histogram(report)]
    if report.layer_stats:
        lines += ["", "  column       mean norm     max abs"]
        lines += [f"  {name:<10} {s.mean_norm:11.3f} {s.max_abs:11.3f}" for name, s in report.layer_stats.items()]
    return lines


def _histogram(report: InspectReport) -> list[str]:
    histogram = report.tokens_per_row
    most = max(histogram.rows)
    lines = []
    for low, high, rows in zip(histogram.edges, histogram.edges[1:], histogram.rows, strict=False):
        bar = "#" * round(rows / most * _BAR_CHARACTERS)
        lines.append(f"  {low:>7,} to {high - 1:<7,} {rows:>8,} {bar}".rstrip())
    return lines


def _rows(counts: Counts) -> str:
    return f"{counts.rows_in:,} rows in, {counts.rows_out:,} out, {counts.rows_quarantined:,} quarantined"


def _print_json(value: object) -> None:
    json.dump(value, sys.stdout)
    sys.stdout.write("\n")
