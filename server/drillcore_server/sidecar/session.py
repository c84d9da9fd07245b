"""One process of the sidecar: one server, one attempt.

    Hello ─► claim the output, recover ─► Ready ─► drain ─► commit ─► Committed ─► the server hangs up
                       └───────────────────────────┴─────────┴──────► Failed

The exit code means nothing to Kubernetes, a local supervisor may read it: 0 committed, EXIT_SERVER_GONE the server
hung up first, 143 stopped by SIGTERM, else the code of the reason that the server was told.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from drillcore.errors import DrillcoreError, WriteError
from drillcore_server.errors import ShardError
from drillcore_server.ring.doorbell import Doorbell, DoorbellClosedError, Failed, Hello
from drillcore_server.ring.errors import RingError
from drillcore_server.ring.job_file import JobFile
from drillcore_server.sidecar.drain import DrainEnd
from drillcore_server.sidecar.progress import ShardProgress
from drillcore_server.sidecar.shard_run import ShardRun
from drillcore_spec.names import ENV_PROGRESS_URL
from drillcore_spec.reasons import Reason

logger = logging.getLogger(__name__)

EXIT_SERVER_GONE: Final = 1
_HELLO_TIMEOUT_S: Final = 10.0
_LAST_MESSAGE_TIMEOUT_S: Final = 5.0


def run_session(listener: socket.socket, ring_dir: Path, output: Path, shard: int | None) -> int:
    """Serves the first server that says hello.

    Args:
        listener: bound and listening; closed as soon as a server is there, so that the next server waits for the
            next sidecar.
        ring_dir: the folder shared with the server.
        output: the output's folder.
        shard: refuse a job file of another shard; `None`: whatever it says.

    Returns:
        The exit code.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s sidecar %(levelname)s %(message)s")
    # httpx says each request at this level.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Reason.TERMINATED.exit_code))
    doorbell, hello = _accept_server(listener)
    # The terminal's ^C goes to both processes: the server ends, and this one after it has saved what is sealed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        job = JobFile.load(ring_dir)
        _require_shard(job, shard)
        return _run_and_report(ShardRun(ring_dir, job, doorbell, hello), output, doorbell)
    except (ShardError, DrillcoreError, RingError, OSError) as error:
        failure = as_shard_error(error)
        logger.error("%s: %s", failure.reason, failure.message)
    except Exception as error:
        logger.exception("the sidecar failed")
        failure = ShardError(Reason.INTERNAL, f"the sidecar failed: {type(error).__name__}: {error}")
    doorbell.post(Failed(failure.reason, failure.message))
    doorbell.flush_within(_LAST_MESSAGE_TIMEOUT_S)
    return failure.exit_code


def as_shard_error(error: ShardError | DrillcoreError | RingError | OSError) -> ShardError:
    """The reason and message that the server is told."""
    match error:
        case ShardError():
            return error
        case WriteError():
            return ShardError(error.reason, str(error))
        case _:
            return ShardError(Reason.INTERNAL, str(error))


def _accept_server(listener: socket.socket) -> tuple[Doorbell, Hello]:
    """Blocks until a server says hello; whoever connects and does not is hung up on."""
    while True:
        connection, _ = listener.accept()
        doorbell = Doorbell(connection)
        try:
            doorbell.wait(_HELLO_TIMEOUT_S)
            message = doorbell.receive()
        except (DoorbellClosedError, RingError):
            message = None
        if isinstance(message, Hello):
            listener.close()
            return doorbell, message
        doorbell.close()


def _require_shard(job: JobFile, shard: int | None) -> None:
    if shard is not None and job.shard != shard:
        raise ShardError(Reason.INTERNAL, f"expected a job file of shard {shard}; got shard {job.shard}")


def _run_and_report(run: ShardRun, output: Path, doorbell: Doorbell) -> int:
    """Runs the attempt with its progress posted; the exit code."""
    with _posted(run.progress):
        end = run.run(output)
    if end is DrainEnd.STOPPED:
        return Reason.TERMINATED.exit_code
    if end is DrainEnd.SERVER_GONE:
        return EXIT_SERVER_GONE
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _wait_for_hang_up(doorbell)
    return 0


@contextlib.contextmanager
def _posted(progress: ShardProgress) -> Iterator[None]:
    """Posts progress meanwhile, and the last state at the end, where the environment says where to."""
    if not os.environ.get(ENV_PROGRESS_URL):
        yield
        return
    # Its HTTP client takes a while to import, and local runs do not need it.
    from drillcore_server.sidecar.progress_poster import ProgressPoster, ProgressTarget

    poster = ProgressPoster(ProgressTarget.from_environment(os.environ), progress.report, random.Random())
    try:
        yield
    finally:
        poster.close()


def _wait_for_hang_up(doorbell: Doorbell) -> None:
    """Blocks until the server has gone, so that it surely read what was said."""
    with contextlib.suppress(DoorbellClosedError):
        while True:
            doorbell.flush()
            while doorbell.receive() is not None:
                pass
            doorbell.wait(None)
