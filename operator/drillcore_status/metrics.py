"""Prometheus metrics of the API. They hold no name of a job: whoever scrapes need not be allowed to read jobs."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import generate_latest

from drillcore_status.stream import StreamSlots

CONTENT_TYPE: Final = "text/plain; version=1.0.0; charset=utf-8"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMetrics:
    """Answers by method, route and code, and open streams."""

    def __init__(self, registry: CollectorRegistry, slots: StreamSlots) -> None:
        self._registry = registry
        self._requests = Counter(
            "drillcore_http_requests",
            "Answers of the job-status API.",
            ("method", "route", "code"),
            registry=registry,
        )
        streams = Gauge("drillcore_http_streams", "Open streams of the job-status API.", registry=registry)
        streams.set_function(lambda: float(slots.num_open))

    def count(self, method: str, route: str, code: HTTPStatus) -> None:
        """Counts an answer; a method of nobody's standard is not a label of its own."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(code.value)).inc()

    def exposition(self) -> bytes:
        """All metrics of the registry as text."""
        return generate_latest(self._registry)
