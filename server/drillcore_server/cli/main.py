"""Parse, call, print: the entry point of `drillcore` and its exit codes.

A user's mistake ends with one clear message on stderr (with `--json`: one JSON object on stdout) and an exit code
of the table in `drillcore_spec.reasons`; `verify` and `check` end with 1 when what they looked at is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version

from drillcore.errors import DrillcoreError, WriteError
from drillcore_server.cli.arguments import build_parser
from drillcore_server.errors import ShardError
from drillcore_spec import SpecError
from drillcore_spec.reasons import Reason

Command = Callable[[argparse.Namespace], int]

_COMMANDS = {
    "run": "drillcore_server.cli.run",
    "estimate": "drillcore_server.cli.estimate",
    "check": "drillcore_server.cli.check",
    "serve": "drillcore_server.cli.serve",
    "verify": "drillcore_server.cli.outputs:verify",
    "inspect": "drillcore_server.cli.inspect",
    "clean": "drillcore_server.cli.outputs:clean",
}
"""Module and function (default `command`) of each command; imported only when it is used."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    arguments = build_parser(version("drillcore")).parse_args(argv)
    try:
        return _command(arguments.command)(arguments)
    except SpecError as error:
        return _refuse(arguments, Reason.BAD_SPEC, Reason.BAD_SPEC.exit_code, str(error))
    except ShardError as error:
        return _refuse(arguments, error.reason, error.exit_code, error.message)
    except WriteError as error:
        return _refuse(arguments, error.reason, error.reason.exit_code, str(error))
    except DrillcoreError as error:
        return _refuse(arguments, type(error).__name__, 1, str(error))
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _command(name: str) -> Command:
    module, _, function = _COMMANDS[name].partition(":")
    command: Command = getattr(import_module(module), function or "command")
    return command


def _refuse(arguments: argparse.Namespace, reason: str, code: int, message: str) -> int:
    """Says what was wrong, once, in the form that was asked for."""
    if arguments.json:
        json.dump({"error": {"reason": reason, "code": code, "message": message}}, sys.stdout)
        sys.stdout.write("\n")
    else:
        sys.stderr.write(f"drillcore {arguments.command}: {reason}: {message}\n")
    return code
