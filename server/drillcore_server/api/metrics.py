"""Prometheus metrics of one server. None of them holds anything that a client typed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from drillcore_server.api.admission import Admission
from drillcore_server.api.answers import CLIENT_LEFT
from drillcore_server.api.file_engine import FileEngine

CONTENT_TYPE: Final = "text/plain; version=1.0.0; charset=utf-8"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


@dataclass(slots=True)
class Tally:
    """Sums since the start. Written by the event loop only, so that plain numbers do."""

    clients_left: int = 0
    """Requests whose client left before the answer."""
    prompt_tokens: int = 0
    """Tokens of answered prompts."""
    generated_tokens: int = 0
    """Tokens generated for answers."""
    files: int = 0
    """Files that clients were told of."""
    file_bytes: int = 0
    """Bytes of these files."""


class ServeMetrics:
    """Counted as things happen; what the engine counts itself is read from it when somebody asks."""

    def __init__(self, engine: FileEngine, admission: Admission) -> None:
        self.tally = Tally()
        self._registry = registry = CollectorRegistry()
        answers = Counter(
            "drillcore_serve_answers",
            "Answers by method, route and code.",
            ("method", "route", "code"),
            registry=registry,
        )
        latency = Histogram(
            "drillcore_serve_answer_seconds",
            "Time from the end of a request's body to its files and answer.",
            ("route",),
            buckets=_BUCKETS_S,
            registry=registry,
        )
        # Finding a child by its labels costs more than counting.
        self._answers_of = cache(answers.labels)
        self._latency_of = cache(latency.labels)
        registry.register(_Readings(engine, admission, self.tally))

    def count(self, method: str, route: str, code: int) -> None:
        """Counts an answer; a method of nobody's standard is not a label of its own."""
        self._answers_of(method if method in _METHODS else "other", route, code).inc()
        self.tally.clients_left += code == CLIENT_LEFT

    def observe(self, route: str, seconds: float) -> None:
        """Notes how long an answer took."""
        self._latency_of(route).observe(seconds)

    def exposition(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self._registry)


class _Readings(Collector):
    """What stands in the server's parts, read when somebody asks."""

    def __init__(self, engine: FileEngine, admission: Admission, tally: Tally) -> None:
        self._engine = engine
        self._admission = admission
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """Every reading."""
        tally, core, sink = self._tally, self._engine.engine, self._engine.sink
        pool, scheduled, prefixes = core.kv.pool, core.scheduler_counters, core.prefix_counters
        for name, text, count in (
            ("clients_left", "Requests whose client left before the answer.", tally.clients_left),
            ("prompt_tokens", "Tokens of answered prompts.", tally.prompt_tokens),
            ("generated_tokens", "Tokens generated for answers.", tally.generated_tokens),
            ("files", "Files that clients were told of.", tally.files),
            ("file_bytes", "Bytes of these files.", tally.file_bytes),
            ("computed_tokens", "Tokens that went through the model.", scheduled.computed_tokens),
            ("prefix_hit_tokens", "Prompt tokens found in the caches.", prefixes.hits),
        ):
            yield CounterMetricFamily(f"drillcore_serve_{name}", text, value=count)
        for name, text, value in (
            ("prompts_admitted", "Prompts accepted and not answered.", self._admission.num_admitted),
            ("prompts_waiting", "Prompts that hold no blocks yet.", core.scheduler.num_waiting),
            ("samples_saving", "Samples that wait for a writer or are being written.", sink.num_saving),
            ("held_bytes", "States in host memory on their way to files.", sink.held_bytes),
            ("blocks_free", "Blocks of the caches that nobody holds.", pool.num_free),
            ("blocks", "Blocks of the caches.", pool.num_blocks - 1),
        ):
            yield GaugeMetricFamily(f"drillcore_serve_{name}", text, value=value)
