"""The job-status API of `drillcore run --status-port`: the one job that runs here, for this machine only."""

from drillcore_server.local_status.serve import serve_status
from drillcore_server.local_status.source import LocalJobSource

__all__ = ["LocalJobSource", "serve_status"]
