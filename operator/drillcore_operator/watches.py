"""kopf's watches, kept alive.

kopf goes on without a watch that ended on an error that it does not retry (an HTTP 410, a CRD that was taken
away): such an operator would look alive and see nothing. So the watches' tasks are looked after here, and kopf
is started anew when one ends; its first list then tells of everything that was missed.
"""

from __future__ import annotations

import asyncio
import logging

import kopf

from drillcore_operator.errors import WatchEnded
from drillcore_operator.handlers import NUM_WATCHED_KINDS, build_registry, build_settings
from drillcore_operator.keys import JobKey
from drillcore_operator.settings import Settings
from drillcore_operator.work_queue import WorkQueue

_LOG = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
"""kopf's watches are there after this time, or it is started anew: the CRD may have been missing."""
RESTART_PAUSE_S = 2.0
_POLL_S = 0.2
_TASK_NAME = "watcher for "
"""Names of kopf's tasks begin with this (kopf._core.reactor.orchestration)."""


async def watch(settings: Settings, queue: WorkQueue[JobKey]) -> None:
    """Watches until the process is told to stop (SIGTERM and SIGINT, which kopf takes)."""
    while True:
        try:
            await _run_kopf(settings, queue)
        except WatchEnded as error:
            _LOG.warning("%s; starting the watches anew", error)
            await asyncio.sleep(RESTART_PAUSE_S)
        else:
            return


async def _run_kopf(settings: Settings, queue: WorkQueue[JobKey]) -> None:
    """One life of kopf; raises WatchEnded when it has become blind."""
    num_watches = NUM_WATCHED_KINDS * max(1, len(settings.namespaces))
    guard = asyncio.create_task(_until_a_watch_ends(num_watches))
    operator = asyncio.create_task(
        kopf.operator(
            registry=build_registry(queue),
            settings=build_settings(),
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
        )
    )
    done, pending = await asyncio.wait([guard, operator], return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for task in done:
        task.result()


async def _until_a_watch_ends(num_watches: int) -> None:
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while len(tasks := _watch_tasks()) < num_watches:
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise WatchEnded(f"no watch of all kinds within {START_TIMEOUT_S:.0f} s; is the CRD there?") from None
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in done if not task.cancelled()]
    if not ended:
        # kopf itself is leaving, and takes its watches along.
        await asyncio.Event().wait()
    raise WatchEnded(f"{ended[0].get_name()} ended: {ended[0].exception()}")


def _watch_tasks() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith(_TASK_NAME)]
