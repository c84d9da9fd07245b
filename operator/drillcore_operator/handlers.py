"""The wiring to kopf: its watches put keys into the queue, and nothing else.

kopf keeps watches alive, logs in again and leaves in good order. Its change handlers, timers and daemons
are not used: they put finalizers and annotations on user objects, and retry for ever.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import kopf

from drillcore_operator.cluster.credentials import service_url
from drillcore_operator.keys import JobKey
from drillcore_spec import names

WATCH_SERVER_TIMEOUT_S = 240
"""A watch is renewed after this time, so that one that was cut silently is noticed."""
WATCH_CLIENT_TIMEOUT_S = 300
REQUEST_TIMEOUT_S = 30
CONNECT_TIMEOUT_S = 5
FIRST_BACKOFFS_S = (1, 1, 2, 3, 5, 8)
LAST_BACKOFF_S = 10
NUM_WATCHED_KINDS = 2
_OURS = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


class _EndlessBackoffs:
    """Pauses between tries, for ever: after its last one kopf would give up the watch and go on blind."""

    def __iter__(self) -> Iterator[float]:
        yield from FIRST_BACKOFFS_S
        yield from itertools.repeat(LAST_BACKOFF_S)


def build_registry(add: Callable[[JobKey], object]) -> kopf.OperatorRegistry:
    """Handlers for our resource and for the Jobs that we made; `add` is told the job that there is news of.

    They are coroutines, because kopf runs others in a pool of threads.
    """
    registry = kopf.OperatorRegistry()

    async def on_resource(namespace: str, name: str, event: Mapping[str, Any], **_: Any) -> None:
        if not is_own_echo(event):
            add(JobKey(namespace, name))

    async def on_job(namespace: str, labels: dict[str, str], **_: Any) -> None:
        # Anybody may label a Job; an empty name would be the path of all jobs.
        if labels[names.LABEL_JOB]:
            add(JobKey(namespace, labels[names.LABEL_JOB]))

    async def login(**kwargs: Any) -> Any:
        account = kopf.login_with_service_account(**kwargs)
        return by_address(account, os.environ) if account else kopf.login_with_kubeconfig(**kwargs)

    kopf.on.event(names.API_GROUP, names.API_VERSION_NAME, names.PLURAL, registry=registry)(on_resource)
    kopf.on.event("batch", "v1", "jobs", labels={names.LABEL_JOB: kopf.PRESENT}, registry=registry)(on_job)
    kopf.on.login(registry=registry)(login)
    return registry


def by_address(account: kopf.ConnectionInfo, environment: Mapping[str, str]) -> kopf.ConnectionInfo:
    """A pod's account at the address that kubelet gives to every container.

    kopf goes by DNS name, and would be blind where the cluster's DNS is slow, broken or not there.
    """
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    return replace(account, server=service_url(host, port))


def is_own_echo(event: Mapping[str, Any]) -> bool:
    """Whether an event of our resource tells of nothing but a status that we wrote: half of all events."""
    resource = event["object"]
    if event["type"] != "MODIFIED" or "deletionTimestamp" in resource["metadata"]:
        return False
    observed = resource.get("status", {}).get("observedGeneration")
    return bool(observed == resource["metadata"]["generation"])


def build_settings() -> kopf.OperatorSettings:
    """Kopf without what we do not use: events of its own, scanning of the cluster, peering."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.watching.server_timeout = WATCH_SERVER_TIMEOUT_S
    settings.watching.client_timeout = WATCH_CLIENT_TIMEOUT_S
    settings.watching.connect_timeout = CONNECT_TIMEOUT_S
    settings.watching.label_selectors["batch", "jobs"] = _OURS
    settings.networking.request_timeout = REQUEST_TIMEOUT_S
    settings.networking.connect_timeout = CONNECT_TIMEOUT_S
    settings.networking.error_backoffs = _EndlessBackoffs()
    # Else kopf kills the process ten minutes after its own end, though it may have been started anew.
    settings.process.ultimate_exiting_timeout = None
    return settings
