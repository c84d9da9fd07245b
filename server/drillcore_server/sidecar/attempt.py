"""One attempt at a shard on the output volume: identity, recovery, journal, quarantine file, commit."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drillcore.checksum import check_size
from drillcore.cleaning import clean_shard
from drillcore.commit import Commit
from drillcore.journal import Journal, QuarantineLog
from drillcore.layout import Layout, ShardLayout
from drillcore.part_file import PartFile
from drillcore.part_info import PartInfo
from drillcore.part_schema import PartSchema
from drillcore.publish import current_commit, publish_commit, publish_complete, publish_manifest
from drillcore.recover import Recovered, recover
from drillcore.stored_sample import check_sample_sizes
from drillcore_server.errors import ShardError
from drillcore_server.ring.job_file import JobFile
from drillcore_server.sidecar.part_thread import PartJournal
from drillcore_server.sidecar.row_ledger import RowLedger
from drillcore_spec.names import COMMITTED_FILE
from drillcore_spec.reasons import Reason

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardAttempt:
    """What this process adds to a shard, and what it found there."""

    attempt: str
    job: JobFile
    layout: Layout
    recovered: Recovered
    journal: Journal
    quarantine: QuarantineLog

    @classmethod
    def begin(cls, layout: Layout, job: JobFile, attempt: str) -> ShardAttempt:
        """Recovers the shard and makes this attempt's journal and quarantine file.

        Files that crashed attempts left and nobody needs are removed first: the volume may be full of them.

        Raises:
            DrillcoreError: when the volume refuses.
        """
        shard = layout.shard(job.shard)
        freed_bytes = clean_shard(shard) if shard.directory.is_dir() else 0
        if freed_bytes:
            logger.info("removed %d bytes that crashed attempts left", freed_bytes)
        recovered = recover(shard, job.manifest, _rows_of(job))
        for problem in recovered.dropped:
            logger.warning("computing again what is not whole: %s", problem)
        journal = Journal(shard, attempt)
        return cls(attempt, job, layout, recovered, journal, QuarantineLog(shard, attempt, recovered.quarantined))

    @property
    def shard(self) -> ShardLayout:
        """The shard's files."""
        return self.layout.shard(self.job.shard)

    @property
    def schema(self) -> PartSchema:
        """What the parts hold."""
        return PartSchema.of(self.job.manifest)

    def part_journal(self) -> PartJournal:
        """The journal, for several part threads."""
        return PartJournal(self.journal, self.shard, self.attempt, itertools.count())

    def rows_done(self) -> NDArray[np.int64]:
        """[n]: rows that the server need not send, ascending: stored ones, and quarantined ones that are rows of the
        shard (contexts are not).
        """
        contexts = self.job.manifest.rows_are_contexts
        return self.recovered.rows if contexts else self.recovered.rows_done

    def ledger(self) -> RowLedger:
        """A ledger that has the recovered rows."""
        job = self.job
        ledger = RowLedger(job.first_row, job.rows_in, rows_are_contexts=job.manifest.rows_are_contexts)
        ledger.recover(self.recovered.rows, [entry.row for entry in self.recovered.quarantined])
        return ledger

    def commit(self, parts: Sequence[PartInfo], rows_in: int) -> Commit:
        """Publishes index, commit.json and, after the last shard, complete.json.

        Args:
            parts: this attempt's, journaled.
            rows_in: rows that are accounted for.

        Returns:
            The commit that counts: this attempt's, or an equal one that was there first.

        Raises:
            ShardError: TooManyQuarantined; the parts and the quarantine file stay for a later attempt.
            DrillcoreError: when the volume refuses, or a commit that must not be replaced is there.
        """
        self._require_few_quarantined(rows_in)
        commit = publish_commit(
            self.shard,
            self.job.manifest,
            self.attempt,
            parts=[*self.recovered.parts, *parts],
            quarantine=self.quarantine,
            rows_in=rows_in,
            keep=_rows_of(self.job),
        )
        publish_complete(self.layout, self.job.manifest)
        return commit

    def _require_few_quarantined(self, rows_in: int) -> None:
        num_faulty = self.quarantine.num_rows - self.quarantine.num_skipped
        limit_percent = self.job.max_quarantined_percent
        if num_faulty * 100 > limit_percent * rows_in:
            self.quarantine.sync()
            raise ShardError(
                Reason.TOO_MANY_QUARANTINED,
                f"at most {limit_percent:g} % of the shard's {rows_in} rows may be quarantined "
                f"(failurePolicy.maxQuarantinedPercent); {num_faulty} are. Each stands with file, line and reason in "
                f"{self.shard.quarantine(self.attempt)}",
            )

    def close(self) -> None:
        """Closes the journal and the quarantine file."""
        self.journal.close()
        self.quarantine.close()


def find_commit(layout: Layout, job: JobFile) -> Commit | None:
    """The commit that makes this job's shard done already, or `None`.

    Raises:
        DrillcoreError: when the commit names files that are not there as it says.
    """
    shard = layout.shard(job.shard)
    commit = current_commit(shard)
    if commit is None or commit.identity != job.manifest.identity_sha256:
        return None
    if commit.max_samples != job.manifest.max_samples or job.rows_in not in (None, commit.counts.rows_in):
        return None
    for file in (*commit.parts, commit.index, commit.quarantine):
        check_size(shard.named(file.name), file)
    schema = PartSchema.of(job.manifest)
    if schema.per_sample:
        for part in commit.parts:
            check_sample_sizes(shard, PartFile(shard.named(part.name), schema).samples())
    return commit


def claim_output(output: Path, job: JobFile) -> Layout:
    """Publishes the manifest, or checks that the folder belongs to this job.

    Raises:
        WriteError: OutputForeign, OutputIdentity, or what the volume refuses.
    """
    layout = Layout(output)
    publish_manifest(layout, job.manifest)
    return layout


def write_committed_rows(ring_dir: Path, rows: NDArray[np.int64]) -> None:
    """Replaces committed.npy beside the ring: the rows that the server need not send."""
    path = ring_dir / COMMITTED_FILE
    temporary = path.with_suffix(".new")
    with temporary.open("wb") as file:
        np.save(file, rows)
    os.rename(temporary, path)


def all_rows(job: JobFile) -> NDArray[np.int64]:
    """[n]: the rows of a shard that is done; none where their number is not known."""
    return np.arange(job.first_row, job.first_row + (job.rows_in or 0), dtype=np.int64)


def _rows_of(job: JobFile) -> range | None:
    return None if job.rows_in is None else range(job.first_row, job.first_row + job.rows_in)
