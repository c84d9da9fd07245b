"""The loops of the operator: workers over the queue, and the full list as a safety net below the watches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from drillcore_operator.cluster import ClusterApi
from drillcore_operator.errors import ClusterError, Throttled
from drillcore_operator.keys import JobKey
from drillcore_operator.reconciler import Reconciler
from drillcore_operator.work_queue import WorkQueue

_LOG = logging.getLogger(__name__)

LIST_RETRY_S = 5.0


async def work(queue: WorkQueue[JobKey], reconciler: Reconciler) -> None:
    """Looks at keys for ever. A failed call is tried again later; any other error ends the process."""
    while True:
        key = await queue.get()
        try:
            again_s = await reconciler.reconcile(key)
        except Throttled as error:
            _LOG.warning("%s: %s", key, error)
            queue.add_failed(key, at_least_s=error.retry_after_s)
        except ClusterError as error:
            _LOG.warning("%s: %s", key, error)
            queue.add_failed(key)
        else:
            queue.forget_failures(key)
            if again_s is not None:
                queue.add_after(key, again_s)
        finally:
            queue.done(key)


class Resync:
    """Lists all jobs now and then and has each looked at; its age tells whether the operator is alive."""

    def __init__(self, api: ClusterApi, queue: WorkQueue[JobKey], namespaces: Sequence[str]) -> None:
        self._api = api
        self._queue = queue
        self._namespaces: Sequence[str | None] = namespaces or (None,)
        self._last_s: float | None = None

    def age_s(self) -> float | None:
        """Seconds since the last full list; None: there was none yet."""
        return None if self._last_s is None else asyncio.get_running_loop().time() - self._last_s

    async def run(self, interval_s: float) -> None:
        """Lists for ever; a failed list is tried again soon."""
        while True:
            try:
                await self.list_once()
            except ClusterError as error:
                _LOG.warning("cannot list jobs: %s", error)
                await asyncio.sleep(LIST_RETRY_S)
            else:
                await asyncio.sleep(interval_s)

    async def list_once(self) -> None:
        """Puts every job into the queue.

        Raises:
            ClusterError: the API server did not give the list.
        """
        for namespace in self._namespaces:
            for document in await self._api.list_resources(namespace):
                metadata = document["metadata"]
                self._queue.add(JobKey(metadata["namespace"], metadata["name"]))
        self._last_s = asyncio.get_running_loop().time()
