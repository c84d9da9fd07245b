from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from drillcore_server.errors import ShardError
from drillcore_server.ring import ring_file
from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.header import RingShape
from drillcore_server.ring.layout import PAGE_BYTES, Word
from drillcore_server.ring.ring_file import attach_ring, create_ring
from drillcore_spec.reasons import Reason

SIZE_BYTES = 256 * 1024


@pytest.fixture
def shape() -> RingShape:
    return RingShape.plan(SIZE_BYTES, dtype="BF16", columns=3, hidden=64)


def test_what_one_side_writes_the_other_side_reads(tmp_path: Path, shape: RingShape) -> None:
    made = create_ring(tmp_path, shape)
    attached = attach_ring(tmp_path)
    assert attached.shape == shape
    made.data[-3:] = b"abc"
    attached.header[Word.RELEASED] = 2**63
    assert bytes(attached.data[-3:]) == b"abc"
    assert made.header[Word.RELEASED] == 2**63


def test_the_whole_file_is_the_given_size_and_has_memory_behind_it(tmp_path: Path, shape: RingShape) -> None:
    mapping = create_ring(tmp_path, shape)
    status = (tmp_path / "ring").stat()
    assert status.st_size == SIZE_BYTES
    assert status.st_blocks * 512 >= SIZE_BYTES
    assert len(mapping.data) == shape.data_bytes
    assert mapping.data_address % PAGE_BYTES == 0
    assert np.frombuffer(mapping.data, np.uint8).ctypes.data == mapping.data_address


def test_a_new_ring_leaves_the_old_one_to_whoever_has_it_mapped(tmp_path: Path, shape: RingShape) -> None:
    old = create_ring(tmp_path, shape)
    old.data[:3] = b"old"
    new = create_ring(tmp_path, shape)
    assert bytes(new.data[:3]) == bytes(3)
    assert bytes(old.data[:3]) == b"old"


def test_a_ring_larger_than_the_file_system_is_refused_with_the_numbers(tmp_path: Path) -> None:
    volume = os.statvfs(tmp_path)
    too_large = (volume.f_blocks + 1) * volume.f_frsize
    shape = RingShape.plan(too_large, dtype="F32", columns=1, hidden=8)
    with pytest.raises(ShardError, match=str(shape.file_bytes)) as raised:
        create_ring(tmp_path, shape)
    assert raised.value.reason is Reason.SHM_TOO_SMALL
    assert list(tmp_path.iterdir()) == []


def test_a_ring_larger_than_the_containers_memory_is_refused(
    tmp_path: Path, shape: RingShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.stat").write_text("anon 800000\nfile 900000\nshmem 50000\n")
    monkeypatch.setattr(ring_file, "_CGROUP", tmp_path)
    with pytest.raises(ShardError, match="limit is 1000000 bytes, 850000 are in use"):
        create_ring(tmp_path, shape)


def test_a_state_larger_than_the_ring_is_refused() -> None:
    with pytest.raises(ValueError, match="states of 4194304 bytes"):
        RingShape.plan(SIZE_BYTES, dtype="F32", columns=1, hidden=1 << 20)


@pytest.mark.parametrize("word", [Word.MAGIC, Word.VERSION, Word.DATA_BYTES, Word.DTYPE, Word.HIDDEN])
def test_a_changed_header_is_not_attached(tmp_path: Path, shape: RingShape, word: Word) -> None:
    mapping = create_ring(tmp_path, shape)
    mapping.header[word] = mapping.header[word] + 2**40
    with pytest.raises(RingCorruptError):
        attach_ring(tmp_path)


@pytest.mark.parametrize("size", [0, PAGE_BYTES, 3 * PAGE_BYTES])
def test_a_file_that_is_no_ring_is_not_attached(tmp_path: Path, size: int) -> None:
    (tmp_path / "ring").write_bytes(bytes(size))
    with pytest.raises(RingCorruptError):
        attach_ring(tmp_path)


def test_no_file_is_no_ring(tmp_path: Path) -> None:
    with pytest.raises(RingCorruptError, match="no ring to attach"):
        attach_ring(tmp_path)
