"""kopf's watches, kept alive.

kopf goes on without a watch that ended on an error that it does not retry (an HTTP 410, a CRD that was taken
away): such an operator would look alive and see nothing. So the watches' tasks are looked after here, and kopf
is started anew when one ends; its first list then tells of everything that was missed.
"""

from __future__ import annotations

import asyncio
import logging

import kopf

from drillcore_operator.errors import KopfStuck, WatchEnded
from drillcore_operator.handlers import NUM_WATCHED_KINDS, build_registry, build_settings
from drillcore_operator.keys import JobKey
from drillcore_operator.settings import Settings
from drillcore_operator.work_queue import WorkQueue

_LOG = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
"""kopf's watches are there after this time, or it is started anew: the CRD may have been missing."""
RESTART_PAUSE_S = 2.0
GRACE_S = 10.0
"""kopf leaves in good order within this time."""
STOP_TIMEOUT_S = 10.0
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
    tasks_of_others = asyncio.all_tasks()
    roots = await kopf.spawn_tasks(
        registry=build_registry(queue),
        settings=build_settings(),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
    )
    num_watches = NUM_WATCHED_KINDS * max(1, len(settings.namespaces))
    guard = asyncio.create_task(_until_a_watch_ends(num_watches))
    life = asyncio.create_task(kopf.run_tasks(roots, ignored=tasks_of_others | {guard}))
    try:
        # The first root that ends takes the others along; by itself kopf may take a minute for that, blind.
        done, _ = await asyncio.wait([guard, *roots], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error if isinstance(error, WatchEnded) else WatchEnded(f"{task.get_name()} ended: {error}")
        await asyncio.wait([life], timeout=GRACE_S)
    finally:
        guard.cancel()
        await _end(life)


async def _end(life: asyncio.Task[None]) -> None:
    """Ends kopf, or this process.

    A watch that kopf cancels while it reconnects swallows that (kopf's streaming_block suppresses CancelledError)
    and goes on, and kopf waits for it for ever; so it is cancelled until it is gone.
    """
    life.cancel()
    deadline_s = asyncio.get_running_loop().time() + STOP_TIMEOUT_S
    while not (await asyncio.wait([life], timeout=_POLL_S))[0]:
        if asyncio.get_running_loop().time() > deadline_s:
            raise KopfStuck(f"kopf did not end within {STOP_TIMEOUT_S:.0f} s; this process ends, to be started anew")
        for task in _watch_tasks():
            task.cancel()


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
