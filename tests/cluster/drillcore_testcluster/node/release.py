"""The chart, installed as a user does it."""

from __future__ import annotations

from dataclasses import dataclass

from drillcore_testcluster.helm import CHART
from drillcore_testcluster.kube_api import Object
from drillcore_testcluster.node.real_cluster import RealCluster
from drillcore_testcluster.node.volumes import STORAGE_CLASS

NAMESPACE = "drillcore-system"
NAME = "drillcore"
SERVICE = "drillcore-api"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
_WAIT = ("--wait", "--timeout", "100s")


@dataclass(frozen=True)
class Release:
    """One release of the chart in one cluster."""

    cluster: RealCluster

    def install(self) -> None:
        """Installs it and waits until the operator is ready.

        Without a cluster DNS, which the own node lacks, pods get the address of the status API's Service as a number.
        """
        self._helm("install", NAME, str(CHART), "--namespace", NAMESPACE, *self._values(), *_WAIT)
        if self.cluster.node is not None:
            url = f"api.advertiseUrl=http://{self.service()['spec']['clusterIP']}"
            self._helm("upgrade", NAME, str(CHART), "--namespace", NAMESPACE, *self._values(), "--set", url, *_WAIT)

    def uninstall(self) -> None:
        """Uninstalls it and waits until its objects are gone."""
        self._helm("uninstall", NAME, "--namespace", NAMESPACE, *_WAIT)

    def is_installed(self) -> bool:
        """Whether it is."""
        return NAME in self._helm("list", "--namespace", NAMESPACE, "--short").split()

    def test(self) -> str:
        """`helm test`; gives its output."""
        return self._helm("test", NAME, "--namespace", NAMESPACE, "--timeout", "110s")

    def service(self) -> Object:
        """The status API's Service."""
        return self.cluster.api.get("Service", SERVICE, namespace=NAMESPACE)

    def _values(self) -> list[str]:
        values = self.cluster.images.chart_values()
        if self.cluster.node is not None:
            # The only node is also that which tests drain and cut off: the operator stays.
            values += ["--set-json", 'operator.tolerations=[{"operator":"Exists"}]']
            values += ["--set", f"selfTest.storageClassName={STORAGE_CLASS}"]
        return values

    def _helm(self, *arguments: str) -> str:
        return self.cluster.helm(*arguments)


def restricted_namespace(cluster: RealCluster, name: str) -> str:
    """Makes a namespace that admits only restricted pods, and gives its name."""
    metadata = {"name": name, "labels": RESTRICTED}
    cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return name
