"""Pure builders of the objects that the operator creates: values in, manifests out."""

from drillcore_operator.resources.child_job import build_child_job
from drillcore_operator.resources.defaults import PodDefaults

__all__ = ["PodDefaults", "build_child_job"]
