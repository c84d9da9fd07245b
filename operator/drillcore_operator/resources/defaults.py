"""What the installation, not the job, says about the pods."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PodDefaults:
    """Values of the chart that go into every child Job."""

    server_image: str
    """Image of the server, unless the job names one."""
    sidecar_image: str
    """Image of the sidecar."""
    api_url: str
    """Base URL at which pods reach the job-status API, without a slash at the end."""
    api_ca: str | None = None
    """Certificate authority of that URL, PEM; None: plain HTTP, or an authority that the image knows."""
