"""The 64 bytes that describe one record."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.layout import DESCRIPTOR_BYTES, RecordFlag, RecordKind

# sequence, row, offset, length, end, first_state | sidecar epoch, num_states, kind, flags, reserved | crc
_FIELDS = struct.Struct("<QqQQQQIIBBH")
_CRC = struct.Struct("<I")
_CRC_OFFSET = DESCRIPTOR_BYTES - _CRC.size
_KINDS = {kind.value: kind for kind in RecordKind}
_FLAGS = {value: RecordFlag(value) for value in range(4)}


class Descriptor(NamedTuple):
    """Where one record lies and what it is."""

    sequence: int
    """Position of the record in the order of creation, from 0."""
    row: int
    offset: int
    """First byte in the data area."""
    length: int
    """Bytes of the record."""
    end: int
    """Position in the data area, counted without wrapping, up to which its release frees the space."""
    first_state: int
    """Chunk: index of its first state within the sample."""
    sidecar_epoch: int
    """The sidecar for which it was sealed."""
    num_states: int
    kind: RecordKind
    flags: RecordFlag


def pack_descriptor(area: memoryview, slot: int, descriptor: Descriptor) -> None:
    """Writes a descriptor and its CRC-32 into `slot` of the descriptor area."""
    start = slot * DESCRIPTOR_BYTES
    _FIELDS.pack_into(area, start, *descriptor, 0)
    crc_at = start + _CRC_OFFSET
    _CRC.pack_into(area, crc_at, zlib.crc32(area[start:crc_at]))


def unpack_descriptor(area: memoryview, slot: int) -> Descriptor:
    """Reads `slot` of the descriptor area.

    Raises:
        RingCorruptError: when the CRC is wrong or the kind is unknown.
    """
    start = slot * DESCRIPTOR_BYTES
    crc_at = start + _CRC_OFFSET
    (stored,) = _CRC.unpack_from(area, crc_at)
    actual = zlib.crc32(area[start:crc_at])
    if stored != actual:
        raise RingCorruptError(f"descriptor in slot {slot}: expected CRC {stored:08x}, got {actual:08x}")
    sequence, row, offset, length, end, first, epoch, states, kind, flags, _ = _FIELDS.unpack_from(area, start)
    try:
        return Descriptor(sequence, row, offset, length, end, first, epoch, states, _KINDS[kind], _FLAGS[flags])
    except KeyError as error:
        raise RingCorruptError(f"descriptor in slot {slot}: unknown kind or flag {error}") from None
