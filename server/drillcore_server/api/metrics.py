"""Prometheus metrics of one server. None of them holds anything that a client typed."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from drillcore_server.api.admission import Admission
from drillcore_server.api.file_engine import FileEngine

CONTENT_TYPE: Final = "text/plain; version=1.0.0; charset=utf-8"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class ServeMetrics:
    """Counted as things happen; what the engine counts itself is read from it when somebody asks."""

    def __init__(self, engine: FileEngine, admission: Admission) -> None:
        self._registry = registry = CollectorRegistry()
        self._answers = Counter(
            "drillcore_serve_answers",
            "Answers by method, route and code.",
            ("method", "route", "code"),
            registry=registry,
        )
        self._latency = Histogram(
            "drillcore_serve_answer_seconds",
            "Time from the end of a request's body to its files and answer.",
            ("route",),
            buckets=_BUCKETS_S,
            registry=registry,
        )
        self.clients_left = Counter(
            "drillcore_serve_clients_left", "Requests whose client left before the answer.", registry=registry
        )
        self.prompt_tokens = Counter("drillcore_serve_prompt_tokens", "Tokens of answered prompts.", registry=registry)
        self.generated_tokens = Counter("drillcore_serve_generated_tokens", "Tokens generated.", registry=registry)
        self.files = Counter("drillcore_serve_files", "Files that clients were told of.", registry=registry)
        self.file_bytes = Counter("drillcore_serve_file_bytes", "Bytes of these files.", registry=registry)
        self._watch(engine, admission)

    def _watch(self, engine: FileEngine, admission: Admission) -> None:
        core, pool = engine.engine, engine.engine.kv.pool
        scheduled, prefixes = core.scheduler_counters, core.prefix_counters
        for name, text, read in (
            ("prompts_admitted", "Prompts accepted and not answered.", lambda: admission.num_admitted),
            ("prompts_waiting", "Prompts that hold no blocks yet.", lambda: core.scheduler.num_waiting),
            ("samples_saving", "Samples that wait for a writer or are being written.", lambda: engine.sink.num_saving),
            ("held_bytes", "States in host memory on their way to files.", lambda: engine.sink.held_bytes),
            ("blocks_free", "Blocks of the caches that nobody holds.", lambda: pool.num_free),
            ("blocks", "Blocks of the caches.", lambda: pool.num_blocks - 1),
            ("computed_tokens", "Tokens that went through the model so far.", lambda: scheduled.computed_tokens),
            ("prefix_hit_tokens", "Prompt tokens found in the caches so far.", lambda: prefixes.hits),
        ):
            Gauge(f"drillcore_serve_{name}", text, registry=self._registry).set_function(read)

    def count(self, method: str, route: str, code: int) -> None:
        """Counts an answer; a method of nobody's standard is not a label of its own."""
        self._answers.labels(method if method in _METHODS else "other", route, str(code)).inc()

    def observe(self, route: str, seconds: float) -> None:
        """Notes how long an answer took."""
        self._latency.labels(route).observe(seconds)

    def exposition(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self._registry)
