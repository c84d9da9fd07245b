"""A PersistentVolumeClaim of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from drillcore_operator.observed.fields import Manifest


@dataclass(frozen=True)
class Claim:
    """What decisions need of a claim."""

    name: str
    phase: str
    """Pending, Bound or Lost."""
    access_modes: tuple[str, ...]

    @classmethod
    def from_api(cls, claim: Manifest) -> Self:
        """Reads a claim of the API server."""
        return cls(
            name=claim["metadata"]["name"],
            phase=claim.get("status", {}).get("phase", "Pending"),
            access_modes=tuple(claim["spec"].get("accessModes") or ()),
        )
