"""The only way to the API server."""

from drillcore_operator.cluster.cluster import Cluster, ClusterApi
from drillcore_operator.cluster.connection import Connection
from drillcore_operator.cluster.credentials import Credentials
from drillcore_operator.cluster.reviews import Access, ReviewApi, Reviews, User

__all__ = ["Access", "Cluster", "ClusterApi", "Connection", "Credentials", "ReviewApi", "Reviews", "User"]
