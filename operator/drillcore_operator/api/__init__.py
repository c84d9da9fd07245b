"""The job-status API of the operator: what `drillcore_status` needs, from the cluster and the progress reports."""

from drillcore_operator.api.metrics import LookMetrics
from drillcore_operator.api.serve import serve_api

__all__ = ["LookMetrics", "serve_api"]
