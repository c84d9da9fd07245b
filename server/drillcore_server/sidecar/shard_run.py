"""The work of one attempt, from the server's hello to the commit."""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from drillcore.commit import Commit
from drillcore.layout import Layout, new_attempt_id
from drillcore.part_schema import PartSchema
from drillcore.publish import publish_complete
from drillcore_server.ring.consumer import RingConsumer
from drillcore_server.ring.doorbell import Committed, Doorbell, Hello, Ready
from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.header import RingShape
from drillcore_server.ring.job_file import JobFile
from drillcore_server.ring.layout import SidecarState
from drillcore_server.sidecar.attempt import (
    ShardAttempt,
    all_rows,
    claim_output,
    find_commit,
    write_committed_rows,
)
from drillcore_server.sidecar.drain import Drain, DrainEnd
from drillcore_server.sidecar.part_pool import PartLimits, PartPool
from drillcore_server.sidecar.progress import ShardProgress
from drillcore_server.sidecar.sample_router import SampleRouter
from drillcore_server.sidecar.waker import Waker
from drillcore_spec.enums import ShardState

logger = logging.getLogger(__name__)

_BUSY_BYTES: Final = 8 * 1024 * 1024
"""Some milliseconds of writing: a writer with more before it is busy."""
_PROGRESS_S: Final = 0.5


class ShardRun:
    """One attempt with its ring, its doorbell and its progress."""

    def __init__(self, ring_dir: Path, job: JobFile, doorbell: Doorbell, hello: Hello) -> None:
        """Attaches the ring; raises RingCorruptError when it is not the one that the job needs."""
        self.attempt = new_attempt_id()
        self.progress = ShardProgress(job.shard, self.attempt, rows_total=job.rows_in or 0)
        self._ring_dir = ring_dir
        self._job = job
        self._doorbell = doorbell
        self._consumer = RingConsumer.attach(
            ring_dir,
            server_epoch=hello.server_epoch,
            first_sequence=hello.first_sequence,
            sidecar_epoch=int(self.attempt, 16),
        )
        self._first_sequence = hello.first_sequence
        self._progress_at_s = 0.0
        _require_shape(self._consumer.shape, PartSchema.of(job.manifest))

    def run(self, output: Path) -> DrainEnd:
        """Drains the ring into `output`. ENDED: the shard is committed, and the server knows.

        Raises:
            ShardError, DrillcoreError, RingError, OSError: what ends the shard or this attempt.
        """
        self._show(ShardState.STARTING, SidecarState.STARTING)
        try:
            layout = claim_output(output, self._job)
            commit = find_commit(layout, self._job)
            if commit is None:
                return self._extract(layout)
            publish_complete(layout, self._job.manifest)
            self._greet(all_rows(self._job), committed=True)
            self._say_committed(commit)
            return DrainEnd.ENDED
        except Exception:
            self._show(ShardState.FAILED, SidecarState.FAILED)
            raise

    def _extract(self, layout: Layout) -> DrainEnd:
        with contextlib.ExitStack() as stack:
            attempt = ShardAttempt.begin(layout, self._job, self.attempt)
            stack.callback(attempt.close)
            recovered = attempt.recovered
            self.progress.recover(recovered.parts, len(recovered.rows), len(recovered.quarantined))
            ledger = attempt.ledger()
            waker = Waker()
            stack.callback(waker.close)
            journal = attempt.part_journal()
            stack.callback(journal.close)
            pool = PartPool(self._job.num_writers, attempt.schema, journal, self._limits(), waker.wake)
            stack.callback(pool.stop)
            limit = self._job.size_limit_bytes
            router = SampleRouter(
                pool,
                ledger,
                attempt.quarantine,
                self.progress,
                first_sequence=self._first_sequence,
                size_limit_bytes=None if limit is None else limit - recovered.bytes,
            )
            drain = Drain(self._consumer, self._doorbell, router, pool, waker, self._show_sometimes)
            stack.callback(drain.close)
            self._greet(attempt.rows_done(), committed=False)
            signal.signal(signal.SIGTERM, lambda *_: drain.stop())
            end = drain.run()
            if end is DrainEnd.ENDED:
                self._show(ShardState.RUNNING, SidecarState.COMMITTING)
                self._say_committed(attempt.commit(drain.parts, ledger.require_all()))
            return end

    def _limits(self) -> PartLimits:
        busy_bytes = min(_BUSY_BYTES, self._consumer.shape.data_bytes // (2 * self._job.num_writers))
        return PartLimits(self._job.part_bytes, self._job.commit_interval_s, busy_bytes)

    def _greet(self, rows_done: NDArray[np.int64], *, committed: bool) -> None:
        write_committed_rows(self._ring_dir, rows_done)
        self._show(ShardState.RUNNING, SidecarState.DRAINING)
        self._doorbell.post(Ready(self.attempt, len(rows_done), committed))

    def _say_committed(self, commit: Commit) -> None:
        counts = commit.counts
        self.progress.take_commit(counts.rows_out, counts.rows_quarantined, counts.tokens, counts.bytes)
        self._show(ShardState.COMMITTED, SidecarState.COMMITTED)
        self._doorbell.post(Committed(commit.attempt))
        logger.info("shard %d is committed by attempt %s", self._job.shard, commit.attempt)

    def _show(self, state: ShardState, ring_state: SidecarState) -> None:
        self.progress.state = state
        self._consumer.set_state(ring_state)
        self.progress.write(self._ring_dir)

    def _show_sometimes(self) -> None:
        now_s = time.monotonic()
        if now_s - self._progress_at_s >= _PROGRESS_S:
            self._progress_at_s = now_s
            self.progress.write(self._ring_dir)


def _require_shape(ring: RingShape, parts: PartSchema) -> None:
    """Refuses a ring whose states are not those of the job."""
    got = (ring.dtype, ring.columns, ring.hidden)
    expected = (parts.store_dtype.value, parts.num_columns, parts.hidden_size)
    if got != expected:
        raise RingCorruptError(f"expected a ring for dtype, columns, hidden size {expected}; got {got}")
