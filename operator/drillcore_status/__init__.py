"""The HTTP job-status API and its page, over whatever a `JobSource` knows.

The operator serves jobs of a cluster with it, `drillcore run --status-port` the one job that runs here.
"""

from drillcore_status.app import create_app
from drillcore_status.services import (
    Authorizer,
    HealthCheck,
    JobSource,
    OpenAuthorizer,
    PodAuthorizer,
    PodIdentity,
    PodReports,
    ProgressSink,
    Services,
)

__all__ = [
    "Authorizer",
    "HealthCheck",
    "JobSource",
    "OpenAuthorizer",
    "PodAuthorizer",
    "PodIdentity",
    "PodReports",
    "ProgressSink",
    "Services",
    "create_app",
]
