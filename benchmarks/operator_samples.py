"""Memory, processor time and metrics of the operator, read every few seconds."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from drillcore_testcluster.ports import LOOPBACK
from drillcore_testcluster.processes import Process

INTERVAL_S = 5.0
QUEUE_DELAY = "drillcore_work_queue_delay_seconds"


@dataclass(frozen=True)
class Sample:
    """The operator at one moment."""

    time_s: float
    """Since the first sample."""
    resident_bytes: int
    cpu_s: float
    queue_length: float
    looks_within: dict[float, float]
    """Looks at jobs so far that had waited at most so many seconds; the last key is infinity."""


@dataclass
class Sampler:
    """A thread that samples while its context lasts, at its beginning and at its end too."""

    operator: Process
    api_port: int
    samples: list[Sample] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._begun_s = time.monotonic()
        self._process = psutil.Process(self.operator.pid)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        self.samples.append(self._sample())

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.samples.append(self._sample())
            self._stopped.wait(INTERVAL_S)

    def _sample(self) -> Sample:
        text = httpx.get(f"http://{LOOPBACK}:{self.api_port}/metrics", timeout=30, trust_env=False).text
        families = {family.name: family for family in text_string_to_metric_families(text)}
        buckets = [s for s in families[QUEUE_DELAY].samples if s.name.endswith("_bucket")]
        times = self._process.cpu_times()
        return Sample(
            time_s=time.monotonic() - self._begun_s,
            resident_bytes=self._process.memory_info().rss,
            cpu_s=times.user + times.system,
            queue_length=families["drillcore_work_queue_length"].samples[0].value,
            looks_within={float(bucket.labels["le"]): bucket.value for bucket in buckets},
        )
