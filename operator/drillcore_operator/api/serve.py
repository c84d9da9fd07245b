"""The job-status API inside the operator's event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import CollectorRegistry

from drillcore_operator.api.authorization import ClusterAuthorizer
from drillcore_operator.api.job_source import ClusterJobSource
from drillcore_operator.api.metrics import ReportMetrics, install_process_metrics
from drillcore_operator.api.progress_sink import ClusterProgressSink
from drillcore_operator.api.throughput_book import ThroughputBook
from drillcore_operator.cluster import ClusterApi, ReviewApi
from drillcore_operator.keys import JobKey
from drillcore_operator.progress import ProgressBook
from drillcore_operator.progress_looks import ProgressLooks
from drillcore_operator.settings import Settings
from drillcore_operator.work_queue import WorkQueue
from drillcore_operator.workers import Resync
from drillcore_status import PodReports, Services, create_app
from drillcore_status.serving import TlsFiles, make_server, serve
from drillcore_status.views import Login

ALL_INTERFACES: Final = ""
"""IPv4 and IPv6, whichever the pod has."""
MAX_MISSED_LISTS: Final = 3
"""After this many lists that should have come and did not, the process is to be started anew."""


async def serve_api(
    settings: Settings,
    api: ClusterApi,
    reviews: ReviewApi,
    queue: WorkQueue[JobKey],
    looks: ProgressLooks,
    progress: ProgressBook,
    resync: Resync,
    registry: CollectorRegistry,
) -> None:
    """Serves until it is cancelled."""
    services = build_services(settings, api, reviews, queue, looks, progress, resync, registry)
    server = make_server(create_app(services), ALL_INTERFACES, settings.api_port, _tls(settings))
    await serve(server)


def build_services(
    settings: Settings,
    api: ClusterApi,
    reviews: ReviewApi,
    queue: WorkQueue[JobKey],
    looks: ProgressLooks,
    progress: ProgressBook,
    resync: Resync,
    registry: CollectorRegistry,
) -> Services:
    """Everything that the API rests on."""
    install_process_metrics(registry, queue, resync.age_s)
    throughput = ThroughputBook()
    authorizer = ClusterAuthorizer(reviews)
    sink = ClusterProgressSink(api, queue, progress, throughput, ReportMetrics(registry), looks=looks)
    return Services(
        source=ClusterJobSource(api, progress, throughput, settings.namespaces),
        authorizer=authorizer,
        reports=PodReports(sink, authorizer),
        login=Login(namespace=settings.namespaces[0]) if settings.namespaces else Login(),
        live_check=_live_check(resync, settings.resync_interval_s * MAX_MISSED_LISTS),
        ready_check=_ready_check(resync),
        registry=registry,
    )


def _live_check(resync: Resync, max_age_s: float) -> Callable[[], Awaitable[str | None]]:
    async def check() -> str | None:
        age_s = resync.age_s()
        is_old = age_s is not None and age_s > max_age_s
        return f"the jobs were listed {age_s:.0f} s ago; at most {max_age_s:.0f} s are expected" if is_old else None

    return check


def _ready_check(resync: Resync) -> Callable[[], Awaitable[str | None]]:
    async def check() -> str | None:
        return "the jobs were not listed yet" if resync.age_s() is None else None

    return check


def _tls(settings: Settings) -> TlsFiles | None:
    if settings.api_certificate_file is None or settings.api_key_file is None:
        return None
    return TlsFiles(settings.api_certificate_file, settings.api_key_file)
