"""Errors of the ring.

RingError           what the other process did is against the byte contract
├── RingCorruptError    a descriptor or the header is not what its checksum or version says
└── SidecarGoneError    the sidecar's process ended or was replaced: connect again and send what is not committed
"""

from __future__ import annotations


class RingError(Exception):
    """The other side of the ring did something that the byte contract excludes, or is gone."""


class RingCorruptError(RingError):
    """Bytes in the ring are not what they should be."""


class SidecarGoneError(RingError):
    """The sidecar hung up. Its records that were not durable are lost with it."""
