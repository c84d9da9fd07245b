"""`drillcore verify` and `clean`: look over the files of an output."""

from __future__ import annotations

import argparse
import json
import sys

import drillcore
from drillcore_server.cli.display import human_bytes
from drillcore_server.cli.inspect_picture import rows_in_words


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
    sys.stdout.write(
        f"{verdict}: {shards}, {rows_in_words(report.counts)}, {human_bytes(report.bytes_checked)} checked\n"
    )
    return 0 if report.ok else 1


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


def _print_json(value: object) -> None:
    json.dump(value, sys.stdout)
    sys.stdout.write("\n")
