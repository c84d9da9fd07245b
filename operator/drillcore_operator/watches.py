"""kopf's watches, kept alive.

kopf goes on without a watch that ended on an error that it does not retry (an HTTP 410, a CRD that was taken
away): such an operator would look alive and see nothing. So kopf is started anew when one ends; its first list
then tells of everything that was missed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any

from drillcore_operator.errors import KopfStuck, WatchEnded
from drillcore_operator.keys import JobKey
from drillcore_operator.kopf_thread import STOP_TIMEOUT_S, KopfThread
from drillcore_operator.settings import Settings
from drillcore_operator.work_queue import WorkQueue

_LOG = logging.getLogger(__name__)

RESTART_PAUSE_S = 2.0


async def watch(settings: Settings, queue: WorkQueue[JobKey]) -> None:
    """Watches until the process is told to stop: SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    is_told = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, is_told.set)
    told = asyncio.create_task(is_told.wait())
    while not told.done():
        try:
            await _watch_once(settings, queue, told)
        except WatchEnded as error:
            _LOG.warning("%s; starting the watches anew", error)
            await asyncio.wait([told], timeout=RESTART_PAUSE_S)


async def _watch_once(settings: Settings, queue: WorkQueue[JobKey], told: asyncio.Task[Any]) -> None:
    """One life of kopf; raises WatchEnded when it has become blind."""
    loop = asyncio.get_running_loop()
    thread = KopfThread(settings.namespaces, lambda key: loop.call_soon_threadsafe(queue.add, key))
    thread.start()
    ended = asyncio.wrap_future(thread.ended)
    try:
        await asyncio.wait([ended, told], return_when=asyncio.FIRST_COMPLETED)
    finally:
        thread.stop()
    try:
        await asyncio.wait_for(ended, 2 * STOP_TIMEOUT_S)
    except TimeoutError:
        raise KopfStuck("kopf's thread does not answer; this process ends, to be started anew") from None
