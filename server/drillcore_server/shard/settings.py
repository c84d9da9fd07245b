"""What one server process is told: by its environment in a pod, by arguments from `drillcore run`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drillcore_server.errors import ShardError
from drillcore_server.volumes import Volumes
from drillcore_spec import ExtractionJobSpec, names, parse_spec
from drillcore_spec.features import refuse_unbuilt
from drillcore_spec.quantity import quantity_bytes
from drillcore_spec.reasons import Reason


@dataclass(frozen=True)
class ShardSettings:
    """One shard of one job, and where things lie."""

    spec: ExtractionJobSpec
    shard: int
    ring_dir: Path
    output: Path
    """The output's folder, read-only for this process in a pod."""
    volumes: Volumes
    ring_bytes: int
    local: bool
    """Run by `drillcore run`: `server.resources.gpus` is ignored and the device is whatever is there."""

    @classmethod
    def read(cls, arguments: argparse.Namespace, environ: Mapping[str, str]) -> ShardSettings:
        """The settings of this process.

        Raises:
            SpecError: the job in DRILLCORE_JOB is wrong, or asks for what is not built.
            ShardError: BadSpec; the job or the shard's index is missing or out of range.
        """
        if names.ENV_JOB not in environ:
            raise ShardError(Reason.BAD_SPEC, f"{names.ENV_JOB} must hold the job's spec as JSON; it is not set")
        spec = parse_spec(environ[names.ENV_JOB])
        refuse_unbuilt(spec)
        return cls(
            spec=spec,
            shard=_shard(arguments.shard, environ, spec.shards.count),
            ring_dir=arguments.ring_dir,
            output=arguments.output,
            volumes=Volumes(arguments.volumes, dict(arguments.mount)),
            ring_bytes=arguments.ring_size or quantity_bytes(spec.ring.size),
            local=arguments.local,
        )


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; every default is the path in a pod."""
    parser = argparse.ArgumentParser(prog="drillcore-shard", description="The server process of one shard.")
    parser.add_argument("--ring-dir", type=Path, default=Path(names.RING_DIR))
    parser.add_argument("--output", type=Path, default=Path(names.OUTPUT_DIR))
    parser.add_argument("--volumes", type=Path, default=Path(names.VOLUMES_DIR))
    parser.add_argument("--mount", type=_mount, action="append", default=[], metavar="CLAIM=FOLDER")
    parser.add_argument("--shard", type=int, help=f"default: {names.ENV_INDEX}")
    parser.add_argument("--ring-size", type=int, metavar="BYTES", help="default: the job's ring.size")
    parser.add_argument("--termination-log", type=Path, default=Path(names.TERMINATION_LOG))
    parser.add_argument("--local", action="store_true", help="take whatever device is there")
    return parser.parse_args(argv)


def _mount(text: str) -> tuple[str, Path]:
    claim, _, folder = text.partition("=")
    return claim, Path(folder)


def _shard(argument: int | None, environ: Mapping[str, str], count: int) -> int:
    index = environ.get(names.ENV_INDEX, "") if argument is None else str(argument)
    if not index.isdecimal() or int(index) >= count:
        raise ShardError(
            Reason.BAD_SPEC, f"{names.ENV_INDEX} must be 0 to {count - 1} (shards.count is {count}); got {index!r}"
        )
    return int(index)
