"""A control plane with an operator and a crowd of running jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from drillcore_spec.resource_definition import CRD_NAME, custom_resource_definition
from drillcore_testcluster import binaries
from drillcore_testcluster.claims import bound_claim, wait_until_bound
from drillcore_testcluster.cluster import running_cluster
from drillcore_testcluster.control_plane import ControlPlane
from drillcore_testcluster.helm import Helm
from drillcore_testcluster.kube_api import KubeApi, Object
from drillcore_testcluster.manifests import extraction_job
from drillcore_testcluster.operator_account import CLUSTER_WIDE
from drillcore_testcluster.operator_process import operator_process
from drillcore_testcluster.played_kubelet import PlayedKubelet
from drillcore_testcluster.played_node import PlayedNode
from drillcore_testcluster.ports import free_ports
from drillcore_testcluster.processes import Process
from drillcore_testcluster.waiting import until

NODE = {"cpu": "100000", "memory": "1000Ti", "pods": "100000"}
"""Room for every pod on one node."""
CONTROLLER_QPS = 500
"""The controllers' own defaults, 20 requests a second, would take many minutes to make the pods."""
SETUP_TIMEOUT_S = 1800.0
NUM_THREADS = 8
RUNNING = ("running", {})
SPEC = {"server.resources": {"gpus": 0, "cpu": "1", "memory": "2Gi"}, "ring.size": "256Mi"}


@dataclass(frozen=True)
class Crowd:
    """How many jobs there are."""

    num_namespaces: int
    jobs_per_namespace: int
    shards_per_job: int

    @property
    def num_jobs(self) -> int:
        """In all namespaces."""
        return self.num_namespaces * self.jobs_per_namespace

    @property
    def namespaces(self) -> list[str]:
        """Their names."""
        return [f"load-{number}" for number in range(self.num_namespaces)]


@dataclass(frozen=True)
class LoadedCluster:
    """The crowd runs."""

    control_plane: ControlPlane
    operator: Process
    api_port: int
    """Of the operator's job-status API."""
    crowd: Crowd

    @property
    def api(self) -> KubeApi:
        """The cluster as its administrator."""
        return self.control_plane.api

    def pods(self) -> list[Object]:
        """The pods of all jobs."""
        return [pod for namespace in self.crowd.namespaces for pod in self.api.list("Pod", namespace=namespace)]

    def conditions(self) -> dict[tuple[str, str], Object]:
        """What each job's conditions say, by namespace and name."""
        return {_place(job): _conditions(job) for job in _jobs(self.api, self.crowd)}


@contextmanager
def loaded_cluster(crowd: Crowd, status_interval_s: float) -> Iterator[LoadedCluster]:
    """Gives the cluster when every job of the crowd runs."""
    with running_cluster(controller_qps=CONTROLLER_QPS) as cluster:
        assert cluster.own is not None, "an existing cluster has no audit log to read"
        _install_crd(cluster.api)
        node = PlayedNode(cluster.api, "node", NODE)
        kubelet = PlayedKubelet(cluster.api, node.name)
        node.start()
        kubelet.scripts.update({namespace: lambda _: RUNNING for namespace in crowd.namespaces})
        kubelet.start()
        operator, port = _operator(cluster.own, status_interval_s)
        try:
            _create(cluster.api, crowd)
            until(lambda: _all_run(operator, cluster.api, crowd), "every job runs", SETUP_TIMEOUT_S)
            kubelet.stop()
            yield LoadedCluster(cluster.own, operator, port, crowd)
        finally:
            operator.stop()
            node.stop()


def _install_crd(api: KubeApi) -> None:
    api.create(custom_resource_definition())

    def is_established() -> bool:
        conditions = api.get("CustomResourceDefinition", CRD_NAME).get("status", {}).get("conditions") or ()
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    until(is_established, "the CRD is established")


def _operator(control_plane: ControlPlane, status_interval_s: float) -> tuple[Process, int]:
    """The operator with the chart's rights, started, and where its API is."""
    helm = Helm(binaries.find(binaries.HELM), control_plane.folder / "helm")
    kubeconfig = CLUSTER_WIDE.grant(control_plane, helm)
    (port,) = free_ports(1)
    settings = {"api_port": str(port), "status_interval_s": str(status_interval_s)}
    process = operator_process(control_plane.folder, kubeconfig, **settings)
    process.start()
    return process, port


def _create(api: KubeApi, crowd: Crowd) -> None:
    for namespace in crowd.namespaces:
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for claim in ("models", "datasets", "states"):
            bound_claim(api, namespace, claim)
        wait_until_bound(api, namespace)
    spec = SPEC | {"shards.count": crowd.shards_per_job, "parallelism": crowd.shards_per_job}
    jobs = [
        extraction_job(f"job-{number}", namespace, spec | {"output.subPath": f"job-{number}"})
        for number in range(crowd.jobs_per_namespace)
        for namespace in crowd.namespaces
    ]
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        list(threads.map(api.create, jobs))


def _all_run(operator: Process, api: KubeApi, crowd: Crowd) -> bool:
    operator.check()
    running = sum(1 for job in _jobs(api, crowd) if _conditions(job).get("PodsReady") == ("True", "Ready"))
    if running < crowd.num_jobs:
        time.sleep(min(10.0, crowd.num_jobs / 100))
    return running == crowd.num_jobs


def _jobs(api: KubeApi, crowd: Crowd) -> list[Object]:
    return [job for namespace in crowd.namespaces for job in api.list("ExtractionJob", namespace=namespace)]


def _conditions(job: Object) -> Object:
    return {c["type"]: (c["status"], c["reason"]) for c in job.get("status", {}).get("conditions", ())}


def _place(job: Object) -> tuple[str, str]:
    return job["metadata"]["namespace"], job["metadata"]["name"]
