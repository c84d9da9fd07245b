"""The only way to the API server."""

from drillcore_operator.cluster.cluster import Cluster, ClusterApi
from drillcore_operator.cluster.connection import Connection
from drillcore_operator.cluster.credentials import Credentials

__all__ = ["Cluster", "ClusterApi", "Connection", "Credentials"]
