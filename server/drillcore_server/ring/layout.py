"""What stands where in the ring file. Little endian; nobody but this package reads it.

    0                header page: immutable facts, the server's words, the sidecar's words
    4096             descriptors: DESCRIPTOR_BYTES each, record `sequence` in slot `sequence % descriptor_count`
    data_offset      data area: a ring of bytes, records contiguous in it; page-aligned, to the end of the file

Each word of the header has one writer and is a single aligned 8-byte store; between two sidecars, while none is
attached, the server sets the sidecar's cursors too. Cursors count records from 0 and never wrap:

    durable <= released <= sealed <= created        created - released <= descriptor_count

    durable     records below are on the volume and journaled, or were never to be kept    (sidecar)
    released    records below are written: their bytes and slots are the server's again    (sidecar)
    sealed      records below are immutable and may be read                                (server)
    created     records below have bytes in the data area                                  (server)

The socket beside the file carries the same cursors, and its send and receive order the memory accesses of
both processes; the header's copies are for recovery, when the other process is dead.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

MAGIC: Final = 0x474E495244  # "DRING"
RING_VERSION: Final = 1
PAGE_BYTES: Final = 4096
HEADER_BYTES: Final = PAGE_BYTES
DESCRIPTOR_BYTES: Final = 64
RECORD_ALIGNMENT: Final = 64
"""Records start on a cache line, so that a record's bytes can be viewed as any dtype."""

MIN_DESCRIPTORS: Final = 64
MAX_DESCRIPTORS: Final = 65_536
DATA_BYTES_PER_DESCRIPTOR: Final = 4096
"""One descriptor for so much of the ring: smaller records on average fill the descriptors first."""

DTYPE_BYTES: Final = {"F32": 4, "F16": 2, "BF16": 2}
"""Names of dtypes as in safetensors, with the size of an element."""
DTYPE_CODES: Final = {"F32": 1, "F16": 2, "BF16": 3}


class Word(IntEnum):
    """Index of each 8-byte word in the header page. Facts, server and sidecar lie on different cache lines."""

    MAGIC = 0
    VERSION = 1
    FILE_BYTES = 2
    DESCRIPTOR_COUNT = 3
    DATA_OFFSET = 4
    DATA_BYTES = 5
    DTYPE = 6
    COLUMNS = 7
    HIDDEN = 8
    SERVER_EPOCH = 16
    CREATED = 17
    SEALED = 18
    ENDED = 19
    SERVER_HEARTBEAT_NS = 20
    SIDECAR_EPOCH = 32
    RELEASED = 33
    DURABLE = 34
    SIDECAR_STATE = 35
    SIDECAR_ERROR = 36
    SIDECAR_HEARTBEAT_NS = 37


class SidecarState(IntEnum):
    """How far the sidecar's attempt is."""

    STARTING = 0
    DRAINING = 1
    COMMITTING = 2
    COMMITTED = 3
    FAILED = 4


class RecordKind(IntEnum):
    """What a record's bytes are."""

    CHUNK = 1
    """States of one sample, [num_states, columns, hidden] in the ring's dtype, contiguous."""
    SAMPLE_END = 2
    """Everything else about the sample whose chunks came before, see `sample_codec`; or its abort, without bytes."""
    QUARANTINED = 3
    """One line of the quarantine file, JSON in UTF-8."""


class RecordFlag(IntFlag):
    """Bits of a descriptor's flags."""

    NONE = 0
    ABORTED = 1
    """A chunk to skip, or the sample's end that tells to drop the sample."""
    CONTINUED = 2
    """More bytes of the same SAMPLE_END or QUARANTINED follow in the next record: it did not fit the ring in one."""


def descriptor_count_for(ring_bytes: int) -> int:
    """How many descriptors a ring of this size has: a power of two."""
    wanted = max(1, ring_bytes // DATA_BYTES_PER_DESCRIPTOR)
    return min(MAX_DESCRIPTORS, max(MIN_DESCRIPTORS, 1 << (wanted.bit_length() - 1)))


def align_up(value: int, alignment: int) -> int:
    """The next multiple of `alignment`, a power of two."""
    return (value + alignment - 1) & -alignment
