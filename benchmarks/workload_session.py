"""One model with its peer, and everything that is measured over it."""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from composed_run import composed_run
from conditions import Row
from end_to_end import Disturbance, Places, extract, limits_of
from forward_only import forward_only
from job_run import run_job, write_job
from parity_check import Parity, check_parity
from random_model import RandomModel, make_model, write_model_folder
from transformers_peer import TransformersPeer
from workload_list import Prompts, Workload
from workload_rows import ClockUnderLoad, current_device, extraction_row, forward_row, job_row

from drillcore_server.models.decoder import Decoder

_PEER_BATCH_TOKENS = 16_384
_FORWARD_BLOCKS = 4097
"""Enough for every step in flight, and for the prefixes of W5."""
_JOB_LIMIT_S = 90.0
_START_SAMPLES = 8
_DISTURBED_SAMPLES = 128
_SMALL_RING_BYTES = 64 << 20
_PAUSE_S = 10.0


class Session:
    """Makes the model, judges its states, and gives the rows of each measurement."""

    def __init__(self, name: str, places: Places, num_peer_tokens: int) -> None:
        self._name = name
        self._places = places
        self._num_peer_tokens = num_peer_tokens
        self._model: RandomModel | None = None
        self._peer: TransformersPeer | None = None
        self._parities: dict[str, Parity] = {}

    def make(self) -> Iterable[Row]:
        """Draws the weights; the peer has them in float32 until its rate is measured."""
        self._model = make_model(self._name, current_device())
        self._peer = TransformersPeer(self._model, torch.float32)
        return ()

    def check(self, workload: Workload) -> Iterable[Row]:
        """Judges the states of some prompts of the workload, without generated tokens.

        Raises:
            RuntimeError: they are wrong; no row of the workload is reported.
        """
        model, peer = self._made()
        parity = check_parity(replace(workload, max_tokens=0), model.decoder, peer, self._prompts(workload))
        _free()
        print(f"{workload.name}: {parity}", flush=True)
        self._parities[workload.name] = parity
        if not parity.ok:
            raise RuntimeError(f"{workload.name}: its states are wrong: {parity}")
        return ()

    def yardstick(self, workload: Workload, system: str) -> Iterable[Row]:
        """The row of a system that keeps nothing."""
        parity, prompts = self._require_parity(workload), self._prompts(workload)
        with ClockUnderLoad(current_device()) as clock:
            if system == "composed-forward":
                run = composed_run(workload, self._decoder, prompts)
            else:
                run = forward_only(workload, self._decoder, prompts, limits_of(workload, _FORWARD_BLOCKS))
        yield forward_row(workload, system, run, parity, clock)
        _free()

    def end_to_end(self, workload: Workload) -> Iterable[Row]:
        """The row of the whole extraction."""
        yield self._extract(workload, self._prompts(workload))

    def disturbed(self, workload: Workload) -> Iterable[Row]:
        """The workload's first samples in quiet, through a ring of 64 MiB, and with a sidecar that pauses."""
        prompts = self._prompts(workload)[:_DISTURBED_SAMPLES]
        parity = self._require_parity(workload)
        for name, ring_bytes, disturbance in (
            ("quiet", workload.ring_bytes, None),
            ("ring-64Mi", min(workload.ring_bytes, _SMALL_RING_BYTES), None),
            (f"sidecar-paused-{_PAUSE_S:g}s", workload.ring_bytes, Disturbance(after_s=0.5, pause_s=_PAUSE_S)),
        ):
            changed = replace(workload, name=f"{workload.name}-{name}", ring_bytes=ring_bytes)
            yield self._extract(changed, prompts, parity, disturbance)

    def peer_rate(self, workload: Workload) -> Iterable[Row]:
        """The rate of transformers over some of the prompts, taken evenly."""
        _, peer = self._made()
        parity = self._require_parity(workload)
        peer.to(self._decoder.weights.embedding.dtype)
        _free()
        prompts = self._prompts(workload)
        some = prompts[:: max(1, sum(map(len, prompts)) // self._num_peer_tokens)]
        with ClockUnderLoad(current_device()) as clock:
            run = peer.run(workload, some, _PEER_BATCH_TOKENS)
        yield forward_row(workload, "transformers", run, parity, clock, batch_tokens=_PEER_BATCH_TOKENS)

    def job(self, workload: Workload) -> Iterable[Row]:
        """The workload's first prompts, then all of it, as jobs in processes of their own.

        The model folder is in memory. The first job shows the start: from its process's start to a durable sample.
        """
        model, _ = self._made()
        parity, prompts = self._require_parity(workload), self._prompts(workload)
        folder = Path(tempfile.mkdtemp(prefix="workload-job-", dir=self._places.output_root))
        try:
            began = time.monotonic()
            write_model_folder(model, folder / "model")
            print(f"model folder written in {time.monotonic() - began:.1f} s", flush=True)
            _free()
            for name, some in (("start", prompts[:_START_SAMPLES]), (f"{workload.name}-job", prompts)):
                job = write_job(workload, some, folder / "model", folder)
                times = run_job(job, folder / name, workload.ring_bytes, _JOB_LIMIT_S)
                print(f"started at {times.started_at}\n{times.server_log}", flush=True)
                yield job_row(replace(workload, name=name), times, some, parity)
                shutil.rmtree(folder / name)
        finally:
            shutil.rmtree(folder)

    @property
    def _decoder(self) -> Decoder:
        return self._made()[0].decoder

    def _extract(
        self,
        workload: Workload,
        prompts: Prompts,
        parity: Parity | None = None,
        disturbance: Disturbance | None = None,
    ) -> Row:
        parity = parity or self._require_parity(workload)
        with ClockUnderLoad(current_device()) as clock:
            run = extract(workload, self._decoder, prompts, self._places, disturbance)
        row = extraction_row(workload, run, parity, clock)
        _free()
        return row

    def _made(self) -> tuple[RandomModel, TransformersPeer]:
        if self._model is None or self._peer is None:
            raise RuntimeError(f"the model {self._name} was not made")
        return self._model, self._peer

    def _require_parity(self, workload: Workload) -> Parity:
        if workload.name not in self._parities:
            raise RuntimeError(f"{workload.name} is not measured: its states were not judged")
        return self._parities[workload.name]

    def _prompts(self, workload: Workload) -> Prompts:
        return workload.prompts(self._decoder.spec.vocab_size)


def _free() -> None:
    """Gives the device's memory that nothing uses back to other processes and to the next engine."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
