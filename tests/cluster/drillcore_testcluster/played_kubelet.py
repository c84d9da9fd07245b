"""The kubelet's part of a node, played: statuses of pods come from files, deletions are carried out.

The scheduler, the Job controller, the taint manager and the API server are the real ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from drillcore_testcluster.errors import ApiError, TestClusterError
from drillcore_testcluster.kube_api import KubeApi, Object
from drillcore_testcluster.pod_statuses import pod_status

WATCH_S = 20
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


class PlayedKubelet:
    """Ends deleted pods of its node in a thread, and reports what a test tells it to."""

    def __init__(self, api: KubeApi, node: str) -> None:
        self.node = node
        self.is_frozen = False
        """The node is cut off: pods whose deletion is asked for stay."""
        self.scripts: dict[str, Callable[[Object], tuple[str, dict[str, str | int]]]] = {}
        """By namespace: how each pod ends, a situation with its values; such pods run and end by themselves."""
        self._api = api
        self._stopped = threading.Event()
        self._working = threading.Thread(target=self._work, name=f"kubelet of {node}", daemon=True)

    def start(self) -> None:
        """Begins to end deleted pods and to play scripts."""
        self._working.start()

    def stop(self) -> None:
        """Leaves all pods as they are."""
        self._stopped.set()

    def pod_of(self, namespace: str, job: str, index: int = 0, timeout_s: float = 60.0) -> Object:
        """The pod of a shard that is on this node and not over; waits until there is one."""
        found = self._first_pod(namespace, job, lambda pod: self._is_mine(pod, index), timeout_s)
        if found is None:
            raise TestClusterError(f"no pod of {namespace}/{job} shard {index} on {self.node} in {timeout_s} s")
        return found

    def report(self, pod: Object, situation: str, *, age_s: float = 2.0, **values: str | int) -> None:
        """Reports the status of a situation, as kubelet would by a strategic merge patch."""
        status: dict[str, Any] = {"status": pod_status(situation, age_s=age_s, **values)}
        metadata = pod["metadata"]
        self._api.patch_strategic("Pod", metadata["name"], status, metadata["namespace"], "status")

    def release(self, pod: Object) -> None:
        """Ends a deleted pod, whatever keeps the others."""
        self._end(pod)

    def _is_mine(self, pod: Object, index: int) -> bool:
        phase = pod["status"].get("phase")
        return (
            pod["metadata"]["annotations"].get(INDEX_ANNOTATION) == str(index)
            and pod["spec"].get("nodeName") == self.node
            and phase not in ("Failed", "Succeeded")
            and "deletionTimestamp" not in pod["metadata"]
        )

    def _first_pod(self, namespace: str, job: str, is_it: Callable[[Object], bool], timeout_s: float) -> Object | None:
        selector = f"drillcore.dev/job={job}"
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            events = self._api.watch("Pod", namespace=namespace, labelSelector=selector, timeout_s=max(1, int(left_s)))
            for event in events:
                if event["type"] in ("ADDED", "MODIFIED") and is_it(event["object"]):
                    found: Object = event["object"]
                    return found
        return None

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                for pod in self._pods_with_work():
                    if pod["metadata"].get("deletionTimestamp"):
                        self._end(pod)
                    else:
                        self._play(pod)
            except (ApiError, httpx.TransportError):
                self._stopped.wait(0.5)  # a test has stopped the API server

    def _pods_with_work(self) -> Iterator[Object]:
        selector = f"spec.nodeName={self.node}"
        for event in self._api.watch("Pod", fieldSelector=selector, timeout_s=WATCH_S):
            if self._stopped.is_set():
                return
            pod = event["object"]
            if event["type"] == "DELETED" or self.is_frozen:
                continue
            is_new = pod["metadata"]["namespace"] in self.scripts and pod["status"]["phase"] == "Pending"
            if pod["metadata"].get("deletionTimestamp") or is_new:
                yield pod

    def _play(self, pod: Object) -> None:
        situation, values = self.scripts[pod["metadata"]["namespace"]](pod)
        self.report(pod, "running")
        if situation != "running":
            self.report(pod, situation, **values)

    def _end(self, pod: Object) -> None:
        metadata = pod["metadata"]
        try:
            if pod["status"].get("phase") not in ("Failed", "Succeeded"):
                self.report(pod, "terminated")
            place = {"namespace": metadata["namespace"], "gracePeriodSeconds": "0"}
            self._api.delete("Pod", metadata["name"], **place)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
