"""`python -m drillcore_operator.self_test`: waits until an ExtractionJob succeeds; what `helm test` runs."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from typing import Final

from drillcore_operator.cluster import Cluster, ClusterApi, Connection, Credentials
from drillcore_operator.errors import ClusterError
from drillcore_operator.plan.aspects import find
from drillcore_spec.status import Condition, ConditionStatus, ConditionType, ExtractionJobStatus

_LOG = logging.getLogger("drillcore_operator.self_test")

POLL_S: Final = 2.0
REQUESTS_PER_SECOND: Final = 5.0
EXIT_FAILED: Final = 1
EXIT_TIMEOUT: Final = 2


async def wait_for_end(api: ClusterApi, namespace: str, name: str, poll_s: float = POLL_S) -> Condition:
    """The job's condition Succeeded once it is True or False; what changes on the way is logged."""
    told = ""
    while True:
        status = await _status(api, namespace, name)
        summary = find(status.conditions, ConditionType.SUCCEEDED)
        if summary is not None and summary.status is not ConditionStatus.UNKNOWN:
            return summary
        news = "; ".join(f"{c.type}={c.status} {c.reason}: {c.message}" for c in status.conditions if c.message)
        if news != told:
            _LOG.info("%s", news)
            told = news
        await asyncio.sleep(poll_s)


async def _status(api: ClusterApi, namespace: str, name: str) -> ExtractionJobStatus:
    try:
        document = await api.get_resource(namespace, name)
    except ClusterError as error:
        _LOG.warning("%s", error)
        document = None
    return ExtractionJobStatus.model_validate((document or {}).get("status") or {})


async def _run(arguments: argparse.Namespace) -> int:
    async with Connection(Credentials.find(os.environ), REQUESTS_PER_SECOND) as connection:
        try:
            async with asyncio.timeout(arguments.timeout):
                end = await wait_for_end(Cluster(connection), arguments.namespace, arguments.name)
        except TimeoutError:
            _LOG.error("the job was not over after %d s; the last line above says why", arguments.timeout)
            return EXIT_TIMEOUT
    _LOG.info("Succeeded=%s %s: %s", end.status, end.reason, end.message)
    return 0 if end.status is ConditionStatus.TRUE else EXIT_FAILED


def main() -> int:
    """Waits; the exit code tells how the job ended."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(prog="drillcore_operator.self_test", description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--timeout", type=int, default=600, metavar="SECONDS")
    return asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
