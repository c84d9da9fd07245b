"""Writing so that a crash leaves either the old file or the whole new one.

temporary file, fsync, rename (or link, which refuses an existing name), fsync of the folder. Every refusal
of the operating system leaves this module as a `WriteError`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drillcore.errors import WriteError, write_error
from drillcore.layout import temporary

_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the body into the `WriteError` about `path`."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def create(path: Path) -> int:
    """A file descriptor of a new file, for writing.

    Raises:
        WriteError: also when the file exists.
    """
    with writing(path):
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def write_at(fd: int, data: memoryview, offset: int, path: Path) -> None:
    """Write all of `data` (one dimension, contiguous) at `offset`; one system call unless the kernel stops early.

    The interpreter lock is released meanwhile.
    """
    try:
        written = os.pwrite(fd, data, offset)
        while written < len(data):
            written += os.pwrite(fd, data[written:], offset + written)
    except OSError as error:
        raise write_error(path, error) from error


def sync(fd: int, path: Path) -> None:
    """Bring a file's bytes to the disk."""
    with writing(path):
        os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk. A file system that has no such operation needs none."""
    with writing(folder):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(fd)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, durably; an existing one is left as it is."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with writing(folder):
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, "a file of this name exists") from None
    sync_folder(folder.parent)


def rename(source: Path, target: Path) -> None:
    """Give a synced file its final name, durably; a file of that name is replaced."""
    with writing(target):
        os.rename(source, target)
    sync_folder(target.parent)


def publish(path: Path, data: bytes, attempt: str) -> None:
    """Put a whole file at `path`, durably; a file of that name is replaced.

    Args:
        path: the final name.
        data: all bytes of the file.
        attempt: makes the temporary name unique.
    """
    rename(_write_temporary(path, data, attempt), path)


def publish_once(path: Path, data: bytes, attempt: str) -> bool:
    """Put a whole file at `path`, durably, unless a file of that name exists.

    Where the file system has no hard links, a file that appears at the same moment is replaced: both are whole.

    Returns:
        Whether ours is published.
    """
    if path.exists():
        return False
    source = _write_temporary(path, data, attempt)
    ours = link_once(source, path)
    _remove(source)
    sync_folder(path.parent)
    return ours


def link_once(source: Path, target: Path) -> bool:
    """Give a synced file a second name unless a file of that name exists.

    The name is durable after `sync_folder`; `source` is the caller's to remove. Without hard links the file is
    renamed: one that appears at the same moment is replaced.

    Returns:
        Whether `target` is our file.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise write_error(target, error) from error
        return _rename_once(source, target)
    with writing(target):
        # A network file system may repeat a link whose answer was lost, and then reports our own link.
        return os.path.samefile(source, target)


def _rename_once(source: Path, target: Path) -> bool:
    with writing(target):
        if target.exists():
            return False
        os.rename(source, target)
    return True


def _write_temporary(path: Path, data: bytes, attempt: str) -> Path:
    source = temporary(path, attempt)
    with writing(source):
        source.unlink(missing_ok=True)
    fd = create(source)
    try:
        write_at(fd, memoryview(data), 0, source)
        sync(fd, source)
    except WriteError:
        source.unlink(missing_ok=True)
        raise
    finally:
        with writing(source):
            os.close(fd)
    return source


def _remove(path: Path) -> None:
    with writing(path):
        path.unlink(missing_ok=True)
