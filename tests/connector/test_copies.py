"""States come from their slots, in order, with one copy a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drillcore_kernels.reference_ops import REFERENCE_OPS
from drillcore_server.connector.copies import CpuCopier, copier_for

CACHE = torch.arange(6 * 4 * 2 * 3, dtype=torch.float32).view(6, 4, 2, 3)
ROW_BYTES = 2 * 3 * 4


@pytest.fixture
def copier() -> CpuCopier:
    return CpuCopier(CACHE, REFERENCE_OPS)


def states_at(slots) -> np.ndarray:
    return CACHE.view(-1, 2, 3)[torch.as_tensor(slots)].numpy()


@given(st.lists(st.integers(0, 23), min_size=1, max_size=24))
def test_states_are_those_at_the_slots(slots):
    buffer = bytearray(len(slots) * ROW_BYTES)

    CpuCopier(CACHE, REFERENCE_OPS).copy_runs(np.array(slots), memoryview(buffer))

    assert np.array_equal(np.frombuffer(buffer, np.float32).reshape(-1, 2, 3), states_at(slots))


def test_a_run_of_slots_over_blocks_is_one_copy(copier, monkeypatch):
    copies = []
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, source, **_: copies.append(len(source)))

    copier.copy_runs(np.array([4, 5, 6, 7, 8, 9, 20, 21, 12]), memoryview(bytearray(9 * ROW_BYTES)))

    assert copies == [6, 2, 1]


def test_scattered_states_are_gathered_into_each_buffer(copier):
    slots = [np.array([9, 2]), np.array([23])]
    buffers = [bytearray(2 * ROW_BYTES), bytearray(ROW_BYTES)]

    copier.copy_gathered(slots, [memoryview(buffer) for buffer in buffers])

    for wanted, buffer in zip(slots, buffers, strict=True):
        assert np.array_equal(np.frombuffer(buffer, np.float32).reshape(-1, 2, 3), states_at(wanted))


def test_copies_in_host_memory_have_landed_when_they_are_made(copier):
    landing = copier.mark()

    landing.synchronize()

    assert landing.query()


def test_a_cache_in_host_memory_has_the_plain_copier():
    assert type(copier_for(CACHE, REFERENCE_OPS)) is CpuCopier
