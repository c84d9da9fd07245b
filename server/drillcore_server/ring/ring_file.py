"""The ring's file and its mapping. Only the server makes and fills it; the sidecar attaches."""

from __future__ import annotations

import errno
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np

from drillcore_server.errors import ShardError
from drillcore_server.ring.errors import RingCorruptError
from drillcore_server.ring.header import RingHeader, RingShape
from drillcore_server.ring.layout import DESCRIPTOR_BYTES, HEADER_BYTES, PAGE_BYTES
from drillcore_spec.names import RING_FILE
from drillcore_spec.reasons import Reason

_CGROUP: Final = Path("/sys/fs/cgroup")
_TOUCH_BYTES: Final = 256 * 1024 * 1024


class RingMapping:
    """A mapped ring file, divided into its three areas. It stays mapped as long as a view of it lives."""

    def __init__(self, file_descriptor: int, size_bytes: int, shape: RingShape | None = None) -> None:
        whole = memoryview(mmap.mmap(file_descriptor, size_bytes, mmap.MAP_SHARED))
        self.header = RingHeader(whole)
        self.shape = self.header.read_shape(size_bytes) if shape is None else shape
        slots_end = HEADER_BYTES + self.shape.descriptor_count * DESCRIPTOR_BYTES
        self.descriptors = whole[HEADER_BYTES:slots_end]
        self.data = whole[self.shape.data_offset :]

    @property
    def data_address(self) -> int:
        """Where the data area lies in this process: page-aligned, `shape.data_bytes` long."""
        return np.frombuffer(self.data, np.uint8).ctypes.data


def create_ring(ring_dir: Path, shape: RingShape) -> RingMapping:
    """Makes a new ring file in place of any older one and puts memory behind every page of it.

    A sidecar that still has the older file mapped keeps that one until it ends.

    Raises:
        ShardError: ShmTooSmall, when the memory is not there.
    """
    path = ring_dir / RING_FILE
    new = ring_dir / f"{RING_FILE}.new"
    path.unlink(missing_ok=True)
    new.unlink(missing_ok=True)
    _require_memory(ring_dir, shape.file_bytes)
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
    try:
        os.posix_fallocate(descriptor, 0, shape.file_bytes)
        mapping = RingMapping(descriptor, shape.file_bytes, shape)
    except OSError as error:
        new.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise _too_small(ring_dir, shape.file_bytes, error.strerror or str(error)) from None
        raise
    finally:
        os.close(descriptor)
    _touch(mapping.data)
    mapping.header.write_shape(shape)
    os.rename(new, path)
    return mapping


def attach_ring(ring_dir: Path) -> RingMapping:
    """Maps the ring that the server made.

    Raises:
        RingCorruptError: when there is none, or it is of another version.
    """
    path = ring_dir / RING_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise RingCorruptError(f"{path}: no ring to attach: {error.strerror}") from None
    try:
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes < 2 * PAGE_BYTES:
            raise RingCorruptError(f"{path}: expected a ring, got a file of {size_bytes} bytes")
        return RingMapping(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def _touch(data: memoryview) -> None:
    """Faults every page in, with several threads: numpy releases the interpreter lock in a strided fill."""

    def fault(start: int) -> None:
        np.frombuffer(data[start : start + _TOUCH_BYTES], np.uint8)[::PAGE_BYTES] = 0

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(fault, range(0, len(data), _TOUCH_BYTES)))


def _require_memory(ring_dir: Path, size_bytes: int) -> None:
    """Refuses a ring that this file system or this container cannot hold, before the kernel would kill us for it."""
    volume = os.statvfs(ring_dir)
    free = volume.f_bavail * volume.f_frsize
    if free < size_bytes:
        raise _too_small(ring_dir, size_bytes, f"{free} bytes are free there")
    limits = _container_memory()
    if limits is not None and limits[0] - limits[1] < size_bytes:
        raise _too_small(
            ring_dir, size_bytes, f"the container's memory limit is {limits[0]} bytes, {limits[1]} are in use"
        )


def _container_memory() -> tuple[int, int] | None:
    """Limit of this container and its use without page cache, in bytes (cgroup v2); `None` where no limit shows."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return limit, int(stat["anon"]) + int(stat["shmem"])
    except (OSError, ValueError, KeyError):
        return None


def _too_small(ring_dir: Path, size_bytes: int, got: str) -> ShardError:
    return ShardError(
        Reason.SHM_TOO_SMALL,
        f"`ring.size` needs {size_bytes} bytes of memory in {ring_dir}; {got}. "
        "Lower ring.size, or raise server.resources.memory (locally: --ring SIZE)",
    )
