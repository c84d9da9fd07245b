"""`python -m drillcore_server.sidecar`: binds the doorbell at once, then imports what the work needs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from drillcore_server.ring.connection import listen_at
from drillcore_spec.names import ENV_INDEX, OUTPUT_DIR, RING_DIR


def main() -> int:
    """Runs one attempt at one shard; the process's exit code."""
    arguments = _parse_arguments()
    listener = listen_at(arguments.ring_dir)
    from drillcore_server.sidecar.session import run_session

    return run_session(listener, arguments.ring_dir, arguments.output, arguments.shard)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m drillcore_server.sidecar", description=__doc__)
    parser.add_argument("--ring-dir", type=Path, default=Path(RING_DIR), help="folder shared with the server")
    parser.add_argument("--output", type=Path, default=Path(OUTPUT_DIR), help="the output's folder on the volume")
    parser.add_argument(
        "--shard", type=int, default=os.environ.get(ENV_INDEX), help="refuse a job file of another shard"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
