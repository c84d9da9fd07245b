"""What stands in a failed test's report: pods, events and the operator's log at that moment."""

from __future__ import annotations

from drillcore_testcluster.node.real_cluster import RealCluster
from drillcore_testcluster.node.release import NAMESPACE

_VIEWS = (
    ("get", "nodes,pods,pvc,jobs,extractionjobs", "--all-namespaces", "--output", "wide"),
    ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"),
    ("describe", "pods", "--namespace", NAMESPACE),
    ("logs", "deployment/drillcore", "--namespace", NAMESPACE, "--tail=60"),
    ("logs", "deployment/drillcore", "--namespace", NAMESPACE, "--tail=60", "--previous"),
)


def account(cluster: RealCluster) -> str:
    """Output of a few kubectl commands, whatever they say, and the tail of kubelet's log."""
    parts = []
    for view in _VIEWS:
        result = cluster.kubectl.run(*view)
        parts.append(f"$ kubectl {' '.join(view)}\n{result.stdout}{result.stderr}")
    if cluster.node is not None:
        parts.append(f"kubelet:\n{cluster.node.kubelet.log_tail()}")
    return "\n".join(parts)
