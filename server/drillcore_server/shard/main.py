"""Main of the server process: exit code and termination message, whatever happens."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from drillcore_server.errors import ShardError
from drillcore_server.shard.settings import ShardSettings, parse_arguments
from drillcore_spec import SpecError
from drillcore_spec.messages import Counts, TerminationMessage
from drillcore_spec.reasons import Reason

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the shard; returns the exit code of the table in `drillcore_spec.reasons`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    arguments = parse_arguments(argv)
    signal.signal(signal.SIGTERM, _terminate)
    reason, message, counts = _run(arguments, os.environ)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logger.info("%s: %s", reason, message)
    said = TerminationMessage(code=reason.exit_code, reason=reason, message=message, counts=counts)
    _write(arguments.termination_log, said.to_line())
    return reason.exit_code


def _run(arguments: object, environ: object) -> tuple[Reason, str, Counts]:
    """How the shard ended. An error that nobody foresaw is Internal, its traceback goes to the log."""
    try:
        settings = ShardSettings.read(arguments, environ)  # type: ignore[arg-type]
        from drillcore_server.shard.run import run_shard

        counts = run_shard(settings)
    except ShardError as error:
        return error.reason, error.message, Counts()
    except SpecError as error:
        return Reason.BAD_SPEC, str(error), Counts()
    except MemoryError as error:
        return Reason.OUT_OF_MEMORY, _out_of_memory(error), Counts()
    except Exception as error:  # noqa: BLE001 - the last resort: it becomes the shard's reason
        traceback.print_exc()
        if type(error).__name__ == "OutOfMemoryError":
            return Reason.OUT_OF_MEMORY, _out_of_memory(error), Counts()
        return Reason.INTERNAL, f"{type(error).__name__}: {error}", Counts()
    return Reason.COMMITTED, f"{counts.rows_out} rows committed", counts


def _out_of_memory(error: BaseException) -> str:
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"{said}; lower engine.maxNumBatchedTokens or engine.maxModelLen, or give the server more memory"


def _terminate(signum: int, frame: FrameType | None) -> None:
    """SIGTERM ends the shard wherever it is; what is sealed is still written by the sidecar."""
    raise ShardError(
        Reason.TERMINATED, "SIGTERM before the commit; committed rows are kept, the next attempt computes the rest"
    )


def _write(path: Path, line: str) -> None:
    """Writes the termination message; where it cannot be written, it is in the log."""
    try:
        path.write_text(line + "\n")
    except OSError as error:
        logger.warning("the termination message cannot be written to %s: %s", path, error)
