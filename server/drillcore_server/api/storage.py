"""The folder that all files go to, and the paths below it that clients may name.

Every folder on the way to a file is opened by its own name in the folder before it, symbolic links refused
(openat with O_NOFOLLOW), and the file is made in the folder so opened. What a path meant when it was checked and what
it means when it is used are then the same, whatever is renamed or linked meanwhile.
"""

from __future__ import annotations

import base64
import binascii
import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from drillcore_server.api.errors import BadRequest, NotFound
from drillcore_server.api.unfinished import Unfinished, remove_leftovers
from drillcore_server.errors import ShardError
from drillcore_spec.reasons import Reason

SUFFIX: Final = ".safetensors"
PARAM: Final = "kv_transfer_params.hidden_states_path"
MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 4000
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_HANDLE: Final = re.compile(r"(?:cmpl|chatcmpl)-[0-9a-f]{32}-[0-9]{1,9}")
_CHOSEN_HANDLE: Final = re.compile(r"path\.([A-Za-z0-9_-]+)")
_CLIENTS_FAULTS: Final = {errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG, errno.ENOENT, errno.EINVAL}


@dataclass(frozen=True, slots=True)
class Place:
    """Where one file lies."""

    folder: tuple[str, ...]
    """Names of the folders below the root."""
    name: str
    handle: str
    """Names the file in `/v1/hidden_states/{handle}`."""


class Storage:
    """The root folder. Any thread."""

    def __init__(self, root: Path) -> None:
        """Open the root, which is created if it is not there; links on the way to the root itself are followed.

        Raises:
            ShardError: OutputUnwritable.
        """
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.root = Path(os.path.abspath(root))
            """As clients are told it."""
            self._real_root = root.resolve(strict=True)
            self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            remove_leftovers(self._real_root)
            self.unfinished = Unfinished(self._real_root)
            """Names of the files under construction."""
        except OSError as error:
            raise ShardError(
                Reason.OUTPUT_UNWRITABLE, f"`--storage` {root} must be a folder to write to: {error.strerror}"
            ) from error

    def close(self) -> None:
        """Gives the root back; nothing is written any more."""
        self.unfinished.close()
        os.close(self._fd)

    def own_place(self, handle: str) -> Place:
        """Where a file goes for which nobody chose a path."""
        return Place((), handle + SUFFIX, handle)

    def chosen_place(self, path: str) -> Place:
        """Where a client wants its file; says nothing of what is there.

        Raises:
            BadRequest: the path is not one below the root.
        """
        parts = self._parts_below(path)
        encoded = base64.urlsafe_b64encode("/".join(parts).encode()).rstrip(b"=").decode()
        return Place(tuple(parts[:-1]), parts[-1], f"path.{encoded}")

    def place_of(self, handle: str) -> Place:
        """Where the file of a handle lies, if there is one.

        Raises:
            NotFound: no file can have this handle.
        """
        if _OWN_HANDLE.fullmatch(handle):
            return self.own_place(handle)
        if chosen := _CHOSEN_HANDLE.fullmatch(handle):
            encoded = chosen[1]
            try:
                path = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
                return self.chosen_place(path)
            except (binascii.Error, UnicodeDecodeError, BadRequest):
                pass
        raise no_such_file(handle)

    def path_of(self, place: Place) -> str:
        """The absolute path to tell a client."""
        return "/".join((str(self.root), *place.folder, place.name))

    @contextmanager
    def folder_of(self, place: Place, *, create: bool = False) -> Iterator[int]:
        """A file descriptor of the place's folder, which is really below the root; made on the way if `create`.

        Raises:
            BadRequest: something on the way is a link or no folder.
            FileNotFoundError: a folder is not there.
        """
        fd = os.dup(self._fd)
        try:
            for name in place.folder:
                fd = _step_into(fd, name, create=create)
            yield fd
        finally:
            os.close(fd)

    def open_file(self, place: Place) -> int:
        """A file descriptor of the file, for reading.

        Raises:
            NotFound: there is no regular file.
        """
        try:
            with self.folder_of(place) as folder:
                # A named pipe would block whoever opens it.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                return os.open(place.name, flags, dir_fd=folder)
        except (OSError, BadRequest):
            raise no_such_file(place.handle) from None

    def remove(self, place: Place) -> bool:
        """Removes the file; gives whether there was one."""
        try:
            with self.folder_of(place) as folder:
                os.unlink(place.name, dir_fd=folder)
        except (FileNotFoundError, IsADirectoryError, PermissionError, BadRequest):
            return False
        return True

    def _parts_below(self, path: str) -> Sequence[str]:
        try:
            encoded = path.encode()
        except UnicodeEncodeError:
            raise BadRequest("must be valid Unicode", param=PARAM) from None
        if "\0" in path or not path or len(encoded) > MAX_PATH_BYTES:
            raise BadRequest(f"must be a path of 1 to {MAX_PATH_BYTES} bytes without NUL", param=PARAM)
        pure = PurePosixPath(path)
        if pure.is_absolute():
            root = next((r for r in (self.root, self._real_root) if pure.is_relative_to(r)), None)
            if root is None:
                raise BadRequest(f"must be below the storage, {self.root}", param=PARAM)
            pure = pure.relative_to(root)
        if not pure.parts or path.endswith("/"):
            raise BadRequest("must name a file below the storage", param=PARAM)
        for part in pure.parts:
            if part == ".." or part.startswith(".") or len(part.encode()) > MAX_NAME_BYTES:
                raise BadRequest(
                    f"must be made of names of at most {MAX_NAME_BYTES} bytes that do not begin with a dot", param=PARAM
                )
        return pure.parts


def _step_into(fd: int, name: str, *, create: bool) -> int:
    """The folder `name` of the folder `fd`, which is closed."""
    try:
        if create:
            try:
                os.mkdir(name, dir_fd=fd)
                os.fsync(fd)
            except FileExistsError:
                pass
        inner = os.open(name, _FOLDER, dir_fd=fd)
    except OSError as error:
        if create and error.errno in _CLIENTS_FAULTS:
            raise BadRequest(f"{name!r} is not a folder: {error.strerror}", param=PARAM) from None
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise BadRequest(f"{name!r} is not a folder", param=PARAM) from None
        raise
    os.close(fd)
    return inner


def no_such_file(handle: str) -> NotFound:
    """What a handle without a file ends with."""
    return NotFound(f"there is no file of the handle {handle[:100]!r}; it may have been moved away", param="handle")
