"""`python -m drillcore_operator`: one process, a loop for kopf and one for the rest; whatever ends, all ends."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from drillcore_operator.api import LookMetrics, serve_api
from drillcore_operator.cluster import Cluster, Connection, Credentials, Reviews
from drillcore_operator.errors import SettingsError
from drillcore_operator.keys import JobKey
from drillcore_operator.pacer import Pacer
from drillcore_operator.progress import ProgressBook
from drillcore_operator.progress_looks import ProgressLooks
from drillcore_operator.reconciler import Reconciler
from drillcore_operator.settings import Settings
from drillcore_operator.status_writer import StatusWriter
from drillcore_operator.watches import watch
from drillcore_operator.work_queue import WorkQueue
from drillcore_operator.workers import Resync, work

_LOG = logging.getLogger("drillcore_operator")

EXIT_BAD_SETTINGS = 64


async def serve(settings: Settings, credentials: Credentials) -> None:
    """Runs the operator until it is told to stop, or one of its loops fails."""
    async with Connection(credentials, settings.requests_per_second) as connection:
        api = Cluster(connection, kueue_enabled=settings.kueue_enabled)
        queue: WorkQueue[JobKey] = WorkQueue()
        writer = StatusWriter(api, settings.status_interval_s, time.monotonic)
        defaults = settings.pod_defaults()
        progress = ProgressBook()
        pacer = Pacer(time.monotonic)
        reconciler = Reconciler(api, defaults, progress, writer, pacer, lambda: datetime.now(UTC))
        resync = Resync(api, queue, settings.namespaces)
        registry = CollectorRegistry()
        reviews = Reviews(connection, settings.requests_per_second)
        metrics = LookMetrics(registry)
        looks = ProgressLooks(queue, settings.progress_looks_per_second, settings.status_interval_s)
        status_api = serve_api(settings, api, reviews, queue, looks, progress, resync, registry)
        workers = [work(queue, reconciler, metrics.count_failure) for _ in range(settings.num_workers)]
        lists = resync.run(settings.resync_interval_s)
        await _until_one_ends([*workers, looks.run(), lists, status_api, watch(settings, queue)])


async def _until_one_ends(loops: Sequence[Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.create_task(loop) for loop in loops]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()


def main() -> int:
    """Reads the settings and serves; gives the process's exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # One line for each event of each object is the queue's business, not the log's.
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    # kopf tells at each start that it takes no signal: this process does.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = Settings.from_environment(os.environ)
        credentials = Credentials.find(os.environ)
    except SettingsError as error:
        _LOG.error("%s", error)
        return EXIT_BAD_SETTINGS
    asyncio.run(serve(settings, credentials))
    return 0


if __name__ == "__main__":
    sys.exit(main())
