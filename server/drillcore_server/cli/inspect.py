"""`drillcore inspect`: what an output holds, finished or not."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import drillcore
from drillcore_server.cli.inspect_page import page_of
from drillcore_server.cli.inspect_picture import Picture
from drillcore_server.cli.inspect_text import text_of
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason


def command(arguments: argparse.Namespace) -> int:
    """Prints the picture, and with `--html` writes it as a page too; 0.

    Raises:
        ShardError: OUTPUT_UNWRITABLE when the page cannot be written.
    """
    report = drillcore.inspect(arguments.output)
    picture = Picture.of(report)
    if arguments.html is not None:
        _write_page(arguments.html, page_of(picture))
    if arguments.json:
        json.dump(report.to_json(), sys.stdout)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(text_of(picture))
    return 0


def _write_page(file: Path, page: str) -> None:
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ShardError(
            Reason.OUTPUT_UNWRITABLE, f"`--html` must name a file that can be written; {file}: {error.strerror}"
        ) from error
