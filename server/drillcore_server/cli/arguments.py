"""What can be typed after `drillcore`."""

from __future__ import annotations

import argparse
from pathlib import Path

from drillcore_server.cli.serve_arguments import add_serve_arguments
from drillcore_spec import SpecError
from drillcore_spec.quantity import quantity_bytes

_EPILOG = """\
Start here:
  drillcore estimate job.yaml        how many tokens and bytes a job will write, before it runs
  drillcore check MODEL_FOLDER       compare every layer with transformers on a few tokens
  drillcore run job.yaml             extract here, with the file that `kubectl apply` takes
  drillcore verify OUTPUT            read everything again and compare it with its checksums

Run the same command again after a crash or a full disk: committed rows are not computed again.
"""


def build_parser(version: str) -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="drillcore",
        description="Take hidden states of chosen layers of a language model, for every token of a dataset.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"drillcore {version}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands)
    _add_estimate(commands)
    _add_check(commands)
    _add_serve(commands)
    _add_outputs(commands)
    return parser


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout, for scripts")
    return parser


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "run", "run an ExtractionJob on this machine")
    _add_job(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="where to write; default: the folder of output.claimName, and output.subPath in it",
    )
    parser.add_argument("--shard", type=int, metavar="I", help="run one shard only; default: all in turn")
    parser.add_argument(
        "--ring",
        type=_quantity,
        metavar="SIZE",
        help="size of the ring in shared memory, such as 512Mi; default: ring.size, at most an eighth of the memory",
    )
    parser.add_argument(
        "--status-port",
        type=_port,
        metavar="PORT",
        help="serve the job's status as a page and an HTTP API on this port of localhost; 0: any free port",
    )


def _add_estimate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "estimate", "count the tokens and bytes that a job will write, without loading weights")
    _add_job(parser)


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "check", "compare every layer id with transformers on a few tokens of a model")
    parser.add_argument("model", help="a model folder, or an hf://, file:// or pvc:// URI")
    parser.add_argument("--revision", help="revision of an hf:// model")
    parser.add_argument(
        "--text",
        default="The drill went down through clay, chalk and sandstone; at each depth it brought up a core.",
        help="what the model reads",
    )
    _add_mounts(parser)


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add(commands, "serve", "serve an OpenAI-compatible API that answers each prompt with a file of states")
    add_serve_arguments(parser)
    _add_mounts(parser)


def _add_outputs(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, text in (
        ("verify", "read an output whole and compare it with its checksums and counts"),
        ("inspect", "show what an output holds, with the lengths of its rows and the norms of its layers"),
        ("clean", "list the files that no commit names: what crashed or overtaken attempts left"),
    ):
        parser = _add(commands, name, text)
        parser.add_argument("output", type=Path, help="the output folder")
        if name == "inspect":
            parser.add_argument("--html", type=Path, metavar="FILE", help="write the picture as a web page too")
        if name == "clean":
            parser.add_argument("--delete", action="store_true", help="delete these files, not only list them")


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=Path, help="an ExtractionJob as YAML or JSON: the file that `kubectl apply` takes")
    _add_mounts(parser)


def _add_mounts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mount",
        type=_mount,
        action="append",
        default=[],
        metavar="CLAIM=FOLDER",
        help="the folder that stands for a persistent volume claim; default: ./volumes/CLAIM",
    )


def _mount(text: str) -> tuple[str, Path]:
    claim, separator, folder = text.partition("=")
    if not (claim and separator and folder):
        raise argparse.ArgumentTypeError(f"expected CLAIM=FOLDER, got {text!r}")
    return claim, Path(folder)


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)


def _quantity(text: str) -> int:
    try:
        return quantity_bytes(text)
    except SpecError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
