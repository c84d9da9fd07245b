from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.ring.descriptor import Descriptor, pack_descriptor, unpack_descriptor
from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.layout import DESCRIPTOR_BYTES, RecordFlag, RecordKind

words = st.integers(0, 2**64 - 1)
descriptors = st.builds(
    Descriptor,
    sequence=words,
    row=st.integers(-(2**63), 2**63 - 1),
    offset=words,
    length=words,
    end=words,
    first_state=words,
    sidecar_epoch=st.integers(0, 2**32 - 1),
    num_states=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(RecordKind),
    flags=st.sampled_from([RecordFlag(bits) for bits in range(4)]),
)


@given(descriptors, st.integers(0, 2))
def test_a_descriptor_comes_back_from_its_slot(descriptor: Descriptor, slot: int) -> None:
    area = memoryview(bytearray(3 * DESCRIPTOR_BYTES))
    pack_descriptor(area, slot, descriptor)
    assert unpack_descriptor(area, slot) == descriptor


@given(descriptors, st.integers(0, DESCRIPTOR_BYTES * 8 - 1))
def test_one_flipped_bit_is_noticed(descriptor: Descriptor, bit: int) -> None:
    area = memoryview(bytearray(DESCRIPTOR_BYTES))
    pack_descriptor(area, 0, descriptor)
    area[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RingCorruptError, match="slot 0"):
        unpack_descriptor(area, 0)
