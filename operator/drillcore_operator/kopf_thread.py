"""One life of kopf, in a thread and an event loop of its own.

An ending kopf cancels every task of its loop that it did not find at its start, also those of others, and a watch
that it cancels while it reconnects swallows that and streams on (its streaming_block suppresses CancelledError).
In a loop of its own it can do neither to the rest of the operator, and what it leaves ends with the loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import kopf

from drillcore_operator.errors import KopfStuck, WatchEnded
from drillcore_operator.handlers import NUM_WATCHED_KINDS, build_registry, build_settings
from drillcore_operator.keys import JobKey

START_TIMEOUT_S = 60.0
"""kopf's watches are there after this time, or it has become blind: the CRD may be missing."""
STOP_TIMEOUT_S = 10.0
"""kopf has ended after this time, or it never will."""
_POLL_S = 0.2
_TASK_NAME = "watcher for "
"""Names of kopf's tasks begin with this (kopf._core.reactor.orchestration)."""


class KopfThread:
    """kopf watches from `start()` until `stop()`, or until it has become blind.

    `add` is called from the thread, with each job that there is news of.
    """

    def __init__(self, namespaces: Collection[str], add: Callable[[JobKey], object]) -> None:
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        """Done when nothing of kopf is left; raises WatchEnded when it became blind, KopfStuck when it does not end."""
        self._namespaces = namespaces
        self._add = add
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._stop = asyncio.Event()

    def start(self) -> None:
        """Begins to watch."""
        self.ended.set_running_or_notify_cancel()
        # A daemon, so that a kopf that does not end cannot keep the process.
        threading.Thread(target=self._run, name="kopf", daemon=True).start()

    def stop(self) -> None:
        """Asks kopf to end; may be called from any thread, again and again."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stop.set)

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._report_end())

    async def _report_end(self) -> None:
        life = asyncio.create_task(self._live())
        await asyncio.wait([life])
        if (error := life.exception()) is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)

    async def _live(self) -> None:
        kopf_stop = asyncio.Event()
        tasks_before = asyncio.all_tasks()
        roots = await kopf.spawn_tasks(
            registry=build_registry(self._add),
            settings=build_settings(),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=kopf_stop,
        )
        guard = asyncio.create_task(_until_a_watch_ends(NUM_WATCHED_KINDS * max(1, len(self._namespaces))))
        stopped = asyncio.create_task(self._stop.wait())
        ignored = tasks_before | {guard, stopped}
        life = asyncio.create_task(kopf.run_tasks(roots, ignored=ignored))
        # The first root that ends takes the others along; by itself kopf may take a minute for that, blind.
        done, _ = await asyncio.wait([stopped, guard, *roots], return_when=asyncio.FIRST_COMPLETED)
        kopf_stop.set()
        await _end(life)
        if stopped not in done:
            raise WatchEnded("; ".join(sorted(_reason(task) for task in done)))


async def _end(life: asyncio.Task[None]) -> None:
    """Waits until kopf has ended, and cancels its watches until they are gone."""
    deadline_s = asyncio.get_running_loop().time() + STOP_TIMEOUT_S
    while (watches := _watch_tasks()) or not life.done():
        if asyncio.get_running_loop().time() > deadline_s:
            raise KopfStuck(f"kopf did not end within {STOP_TIMEOUT_S:.0f} s; this process ends, to be started anew")
        for watch in watches:
            watch.cancel()
        await asyncio.wait([life, *watches], timeout=_POLL_S)
    if not life.cancelled():
        life.exception()  # told by the task that failed


async def _until_a_watch_ends(num_watches: int) -> str:
    """Gives the name of the watch, and why it ended."""
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while len(tasks := _watch_tasks()) < num_watches:
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return f"no watch of all kinds within {START_TIMEOUT_S:.0f} s; is the CRD there?"
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return "; ".join(sorted(_reason(task) for task in done))


def _reason(task: asyncio.Task[Any]) -> str:
    if task.cancelled():
        return f"{task.get_name()} was cancelled"
    if (error := task.exception()) is not None:
        return f"{task.get_name()} ended: {error}"
    return str(task.result() or f"{task.get_name()} ended")


def _watch_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name().startswith(_TASK_NAME)]
