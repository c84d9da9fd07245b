"""The life of one shard: prepare, meet the sidecar, extract what is not committed, wait for the commit.

A sidecar that dies takes with it what was not journaled: the engine forgets everything, the next sidecar says
which rows are committed, and the extraction starts again with the rest.
"""

from __future__ import annotations

import logging
import time
from typing import Final

import numpy as np
import torch

from drillcore import Layout
from drillcore.publish import current_commit
from drillcore_server.connector.registered_memory import RegisteredMemory, register_for
from drillcore_server.connector.ring_sink import RingSink
from drillcore_server.engine.device import choose_device, compute_dtype, store_dtype, stored_name
from drillcore_server.engine.engine import Engine
from drillcore_server.errors import ShardError
from drillcore_server.models.loader import load_decoder
from drillcore_server.ring.errors import SidecarGoneError
from drillcore_server.ring.job_file import JobFile
from drillcore_server.ring.producer import RingProducer
from drillcore_server.shard.preparation import Preparation, manifest_of, prepare
from drillcore_server.shard.settings import ShardSettings
from drillcore_server.shard.sizing import engine_config
from drillcore_server.shard.source import open_requests
from drillcore_spec.messages import Counts
from drillcore_spec.names import COMMITTED_FILE
from drillcore_spec.quantity import quantity_bytes
from drillcore_spec.reasons import Reason

logger = logging.getLogger(__name__)

_SIDECAR_TIMEOUT_S: Final = 60.0
_COMMIT_TIMEOUT_S: Final = 1800.0
"""Longest wait for the last part and the commit: a ring's worth of states on a slow volume."""
_WAIT_S: Final = 1.0


def run_shard(settings: ShardSettings) -> Counts:
    """Runs one shard to its commit; returns the commit's counts.

    Raises:
        ShardError: with the reason that ends this attempt.
    """
    device = choose_device(settings.spec.server.resources.gpus, local=settings.local)
    preparation = prepare(settings.spec, settings.volumes)
    dtype = compute_dtype(settings.spec.model.dtype, preparation.model.dtype, device)
    stored = store_dtype(settings.spec.extraction.store_dtype, preparation.model.dtype)
    logger.info("%s on %s, %d rows in the dataset", preparation.folder.uri, device, preparation.dataset.num_rows)
    job = _job_file(settings, preparation, dtype, stored)
    job.write(settings.ring_dir)
    producer = RingProducer.create(
        settings.ring_dir,
        settings.ring_bytes,
        dtype=stored_name(stored).value,
        columns=preparation.plan.num_columns,
        hidden=preparation.model.hidden_size,
    )
    logger.info("made a ring of %.2f GB", settings.ring_bytes / 1e9)
    extraction = _Extraction(settings, preparation, producer, device, dtype, stored)
    try:
        extraction.run()
    finally:
        producer.close()
    return _checked_counts(settings, job)


class _Extraction:
    """The rows of one shard, through whatever sidecars come and go."""

    def __init__(
        self,
        settings: ShardSettings,
        preparation: Preparation,
        producer: RingProducer,
        device: torch.device,
        dtype: torch.dtype,
        stored: torch.dtype,
    ) -> None:
        self._settings = settings
        self._preparation = preparation
        self._producer = producer
        self._device = device
        self._dtype = dtype
        self._stored = stored
        self._engine: Engine | None = None
        self._registered: RegisteredMemory | None = None
        """The ring's memory, registered with the GPU until this process ends."""

    def run(self) -> None:
        """Extracts, and starts again with the rest whenever a sidecar dies, until the shard is committed."""
        while not self._attempt():
            if self._engine is not None:
                self._engine.reset()

    def _attempt(self) -> bool:
        """One sidecar's worth; false when it died."""
        ready = self._producer.connect(_SIDECAR_TIMEOUT_S)
        try:
            if not ready.committed:
                self._extract()
                self._producer.end()
            self._await_commit()
        except SidecarGoneError as error:
            logger.warning("%s; waiting for the next one", error)
            return False
        return True

    def _extract(self) -> None:
        shard = self._settings.shard
        rows_in = self._preparation.rows_in(shard)
        done = np.load(self._settings.ring_dir / COMMITTED_FILE)
        if len(done) == rows_in:
            return
        if rows_in is None:
            logger.info("%d contexts are extracted already", len(done))
        else:
            logger.info("%d of %d rows to extract", rows_in - len(done), rows_in)
        # On a GPU the engine's thread gives up the interpreter's lock at each kernel launch.
        in_process = self._device.type == "cuda"
        with open_requests(self._preparation, shard, done, in_process=in_process) as source:
            if self._engine is None:
                self._engine = self._load()
            self._engine.run(source)

    def _load(self) -> Engine:
        p = self._preparation
        self._registered = register_for(self._device, self._producer.buffer)
        decoder = load_decoder(
            p.folder.path,
            p.model,
            device=self._device,
            dtype=self._dtype,
            num_layers=p.plan.num_layers_to_run(generates=p.generates),
            lm_head=p.generates,
            final_norm=p.plan.final_norm or p.generates,
            max_positions=p.max_model_len,
        )
        config = engine_config(p, decoder, self._stored)
        return Engine(decoder, p.plan, config, RingSink(self._producer), store_dtype=self._stored)

    def _await_commit(self) -> None:
        deadline = time.monotonic() + _COMMIT_TIMEOUT_S
        while not self._producer.committed:
            self._producer.wait(_WAIT_S)
            if time.monotonic() > deadline:
                raise ShardError(
                    Reason.COMMIT_TIMEOUT,
                    f"the sidecar did not commit within {_COMMIT_TIMEOUT_S:.0f} s of the last state; "
                    "is the output volume slow or hung?",
                )


def _job_file(settings: ShardSettings, p: Preparation, dtype: torch.dtype, stored: torch.dtype) -> JobFile:
    output, rows = settings.spec.output, p.shard_rows(settings.shard)
    size_limit_bytes = None
    if output.size_limit is not None:
        size_limit_bytes = quantity_bytes(output.size_limit) * len(rows) // max(p.dataset.num_rows, 1)
    return JobFile(
        manifest=manifest_of(p, dtype, stored),
        shard=settings.shard,
        first_row=p.first_row(settings.shard),
        rows_in=p.rows_in(settings.shard),
        part_bytes=quantity_bytes(output.part_size),
        commit_interval_s=output.commit_interval_seconds,
        size_limit_bytes=size_limit_bytes,
        max_quarantined_percent=settings.spec.failure_policy.max_quarantined_percent,
    )


def _checked_counts(settings: ShardSettings, job: JobFile) -> Counts:
    """The counts of commit.json, read back from the volume and compared with what this shard had to do."""
    commit = current_commit(Layout(settings.output).shard(settings.shard))
    is_ours = commit is not None and commit.identity == job.manifest.identity_sha256
    if commit is None or not is_ours or job.rows_in not in (None, commit.counts.rows_in):
        raise ShardError(
            Reason.INTERNAL,
            f"expected a commit of {job.rows_in or 'all'} rows with identity {job.manifest.identity_sha256[:12]} in "
            f"{settings.output}; got {commit and (commit.counts.rows_in, commit.identity[:12])}",
        )
    return Counts.model_validate(commit.counts.to_json())
