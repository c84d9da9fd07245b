"""The loops of the operator: workers over the queue, and the full list as a safety net below the watches."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from enum import StrEnum

from drillcore_operator.cluster import ClusterApi
from drillcore_operator.errors import ClusterError, Refused, Throttled
from drillcore_operator.keys import JobKey
from drillcore_operator.reconciler import Reconciler
from drillcore_operator.work_queue import WorkQueue

_LOG = logging.getLogger(__name__)

LIST_RETRY_S = 5.0
SPREAD = 0.5
"""The looks at all listed jobs are spread over this part of the interval: all at once, news would wait for them."""


class Failure(StrEnum):
    """Why a look at a job failed, for the metric."""

    THROTTLED = "throttled"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    DEFECT = "defect"


async def work(queue: WorkQueue[JobKey], reconciler: Reconciler, count_failure: Callable[[Failure], None]) -> None:
    """Looks at keys for ever; a look that failed is tried again later, and the other jobs are served on.

    That holds for a defect of ours too: else one job that reveals it would keep all others from being served.
    """
    while True:
        key = await queue.get()
        try:
            again_s = await reconciler.reconcile(key)
        except Throttled as error:
            _LOG.warning("%s: %s", key, error)
            count_failure(Failure.THROTTLED)
            queue.add_failed(key, at_least_s=error.retry_after_s)
        except ClusterError as error:
            _LOG.warning("%s: %s", key, error)
            count_failure(Failure.REFUSED if isinstance(error, Refused) else Failure.UNAVAILABLE)
            queue.add_failed(key)
        except Exception:  # noqa: BLE001 - told by the log and a metric
            _LOG.exception("%s: a defect in the operator; please report it", key)
            count_failure(Failure.DEFECT)
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
        spread_s = 0.0
        while True:
            try:
                await self.list_once(spread_s)
            except ClusterError as error:
                _LOG.warning("cannot list jobs: %s", error)
                spread_s = 0.0
                await asyncio.sleep(LIST_RETRY_S)
            else:
                spread_s = SPREAD * interval_s
                await asyncio.sleep(interval_s)

    async def list_once(self, spread_s: float = 0.0) -> None:
        """Puts every job into the queue, each at a random moment of the next `spread_s` seconds.

        Raises:
            ClusterError: the API server did not give the list.
        """
        for namespace in self._namespaces:
            for key in await self._api.list_keys(namespace):
                self._queue.add_after(key, random.uniform(0, spread_s))
        self._last_s = asyncio.get_running_loop().time()
