"""What the sidecars of all shards post, as drillcore_server.sidecar.progress_poster does, from one process."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
from operator_cluster import LoadedCluster

from drillcore_server.sidecar.progress_poster import JITTER
from drillcore_spec import names
from drillcore_testcluster.kube_api import Object, async_client_of_kubeconfig
from drillcore_testcluster.ports import LOOPBACK

TOKEN_LIFETIME_S = 600
"""As in the child Job."""
TOKEN_RENEWED_AFTER_S = 480.0
"""kubelet renews a token after four fifths of its life."""
TOKEN_TIMEOUT_S = 30.0
POST_TIMEOUT_S = 5.0
"""As the sidecar's: a report that takes longer is lost, and the next one says all that it said."""
ROWS = 1_000_000
ROWS_PER_REPORT = 1000
ACCEPTED = "202"


@dataclass
class Shard:
    """One shard's place and counts."""

    namespace: str
    job: str
    index: int
    pod: dict[str, str]
    """Name and uid."""
    token: str = ""
    renewed_unix_s: float = 0.0
    """At first the start of its pod, as kubelet counts: the pods of 1,000 jobs did not all start at once."""
    seq: int = 0

    @classmethod
    def of_pod(cls, pod: Object) -> Shard:
        """The shard that a pod runs."""
        metadata = pod["metadata"]
        index = int(metadata["annotations"][names.ANNOTATION_COMPLETION_INDEX])
        about = {"name": metadata["name"], "uid": metadata["uid"]}
        started_unix_s = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
        place = (metadata["namespace"], metadata["labels"][names.LABEL_JOB], index)
        return cls(*place, about, renewed_unix_s=started_unix_s)

    def report(self) -> dict[str, Any]:
        """The next report: some more rows are durable."""
        self.seq += 1
        rows = ROWS_PER_REPORT * self.seq
        counts = {
            "rowsTotal": ROWS,
            "rowsDone": rows,
            "rowsQuarantined": 0,
            "tokens": 100 * rows,
            "bytes": 10_000 * rows,
        }
        return {"shard": self.index, "attempt": "0badcafe", "seq": self.seq, "state": "Running"} | counts


class Reporters:
    """Posts for every shard at its own times."""

    def __init__(self, cluster: LoadedCluster, interval_s: float) -> None:
        self._cluster = cluster
        self._interval_s = interval_s
        self._randomness = random.Random(0)
        self.shards = [Shard.of_pod(pod) for pod in cluster.pods()]
        self.latencies_s: list[float] = []
        self.failures: dict[str, int] = {}
        """By status code or kind of error."""

    def forget(self) -> None:
        """What was before does not count."""
        self.latencies_s, self.failures = [], {}

    async def run(self, duration_s: float) -> None:
        """Posts until the duration is over."""
        kubeconfig = self._cluster.control_plane.admin_kubeconfig
        async with async_client_of_kubeconfig(kubeconfig, TOKEN_TIMEOUT_S) as admin:
            loops = [asyncio.create_task(self._report(shard, admin)) for shard in self.shards]
            done, _ = await asyncio.wait(loops, timeout=duration_s, return_when=asyncio.FIRST_COMPLETED)
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
        for loop in done:
            loop.result()

    async def _report(self, shard: Shard, admin: httpx.AsyncClient) -> None:
        await asyncio.sleep(self._randomness.uniform(0, self._interval_s))
        while True:
            try:
                if not shard.token:
                    shard.token = await _token(admin, shard)
                elif time.time() - shard.renewed_unix_s > TOKEN_RENEWED_AFTER_S:
                    shard.token = await _token(admin, shard)
                    shard.renewed_unix_s = time.time()
                async with asyncio.timeout(POST_TIMEOUT_S):
                    await self._post(shard)
            except (httpx.HTTPError, OSError) as error:
                self._fail(type(error).__name__)
            await asyncio.sleep(self._interval_s * self._randomness.uniform(1 - JITTER, 1 + JITTER))

    async def _post(self, shard: Shard) -> None:
        """A connection for each post, as processes of their own have it; by hand, because a client costs more
        than the server that is measured.
        """
        body = json.dumps(shard.report())
        head = (
            f"POST {names.progress_path(shard.namespace, shard.job)} HTTP/1.1",
            f"Host: {LOOPBACK}:{self._cluster.api_port}",
            f"Authorization: Bearer {shard.token}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        begun_s = time.monotonic()
        reader, writer = await asyncio.open_connection(LOOPBACK, self._cluster.api_port)
        try:
            writer.write(("\r\n".join(head) + "\r\n\r\n" + body).encode())
            answer = await reader.read()
        finally:
            writer.close()
        self.latencies_s.append(time.monotonic() - begun_s)
        code = answer[9:12].decode()
        if code != ACCEPTED:
            self._fail(code)

    def _fail(self, what: str) -> None:
        self.failures[what] = self.failures.get(what, 0) + 1


async def _token(admin: httpx.AsyncClient, shard: Shard) -> str:
    """A token as kubelet asks for it."""
    spec = {
        "audiences": [names.token_audience(shard.namespace, shard.job)],
        "expirationSeconds": TOKEN_LIFETIME_S,
        "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", **shard.pod},
    }
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    response = await admin.post(f"/api/v1/namespaces/{shard.namespace}/serviceaccounts/default/token", json=body)
    response.raise_for_status()
    return str(response.json()["status"]["token"])
