"""xxh3_64 of files, in the order in which their bytes were produced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import xxhash

from drillcore.errors import ChecksumError, FormatError, ReadError
from drillcore.layout import is_part, row_of_sample
from drillcore.part_info import FileInfo
from drillcore.sample_schema import SampleFileInfo

_CHUNK_BYTES = 1 << 20


def check_file(path: Path, info: FileInfo, on_read: Callable[[int], None] | None = None) -> None:
    """Check that a file has the size and the bytes that a journal or a commit says.

    Args:
        path: the file.
        info: what is said about it.
        on_read: called with the number of bytes after each read.

    Raises:
        FormatError: when it is missing or of another size.
        ChecksumError: when its bytes are others.
        ReadError: when it cannot be read.
    """
    check_size(path, info)
    try:
        found = _xxh3_64(path, info.bytes, on_read)
    except OSError as error:
        raise ReadError(path, error) from error
    if found != info.xxh3_64:
        raise ChecksumError(path, f"the bytes changed since they were written: xxh3_64 {found}, not {info.xxh3_64}")


def check_size(path: Path, info: FileInfo) -> None:
    """Check a file's size only; raises as `check_file` does."""
    try:
        size_bytes = path.stat().st_size
    except FileNotFoundError:
        raise FormatError(path, "the file is missing") from None
    except OSError as error:
        raise ReadError(path, error) from error
    if size_bytes != info.bytes:
        raise FormatError(path, f"must be {info.bytes} bytes long; it has {size_bytes}")


def hash_sample(path: Path) -> tuple[str, SampleFileInfo]:
    """The checksum of all bytes behind a sample file's header block, and what is said about the whole file.

    Raises:
        OSError: when it cannot be read.
    """
    size_bytes = path.stat().st_size
    behind_header, whole = _digests(path, size_bytes, header_last=True, on_read=None)
    return behind_header, SampleFileInfo(size_bytes, int(whole, 16))


def _xxh3_64(path: Path, size_bytes: int, on_read: Callable[[int], None] | None) -> str:
    header_last = is_part(path.name) or row_of_sample(path.name) is not None
    return _digests(path, size_bytes, header_last=header_last, on_read=on_read)[1]


def _digests(
    path: Path, size_bytes: int, *, header_last: bool, on_read: Callable[[int], None] | None
) -> tuple[str, str]:
    """The checksums before and after the header block, which comes last or has no bytes."""
    hasher = xxhash.xxh3_64()
    buffer = memoryview(bytearray(min(_CHUNK_BYTES, max(size_bytes, 1))))
    with path.open("rb", buffering=0) as file:
        start = _header_block_bytes(file.read(8), size_bytes) if header_last else 0
        for begin, end in ((start, size_bytes), (0, start)):
            behind_header = hasher.hexdigest()
            file.seek(begin)
            while begin < end:
                count = file.readinto(buffer[: end - begin])
                if not count:
                    break
                hasher.update(buffer[:count])
                begin += count
                if on_read:
                    on_read(count)
    return behind_header, hasher.hexdigest()


def _header_block_bytes(length: bytes, size_bytes: int) -> int:
    return min(8 + int.from_bytes(length, "little"), size_bytes)
