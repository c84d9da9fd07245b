"""`spec.server` and `spec.sidecar`: the two containers of a shard's pod."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from drillcore_spec.base import SpecModel
from drillcore_spec.forms import ByteQuantity, CpuQuantity, ImageName, LabelKey, integer


class ServerResources(SpecModel):
    """What the server asks for; memory and GPUs are its limits too."""

    gpus: Annotated[int, integer(0, 64)] = 1
    """GPUs; 0: run on the CPU. Ignored by `drillcore run`."""
    gpu_resource_name: LabelKey = "nvidia.com/gpu"
    """The cluster's name for a GPU."""
    cpu: CpuQuantity = "4"
    """CPUs requested."""
    memory: ByteQuantity = "32Gi"
    """Memory, the ring included."""


class SidecarResources(SpecModel):
    """What the sidecar asks for; memory is its limit too."""

    cpu: CpuQuantity = "1"
    """CPUs requested."""
    memory: ByteQuantity = "1Gi"
    """Memory, the ring not included."""


class ServerContainer(SpecModel):
    """The container that runs the model."""

    image: ImageName | None = None
    """Container image. Default: the chart's."""
    resources: ServerResources = Field(default_factory=ServerResources)
    """What the server asks for."""


class SidecarContainer(SpecModel):
    """The container that writes."""

    resources: SidecarResources = Field(default_factory=SidecarResources)
    """What the sidecar asks for."""
