"""One sample in a safetensors file of its own: `hidden_states` and `token_ids`, as speculators' trainer reads it.

    writer = SampleFileWriter(folder / "hs_7.safetensors", schema)
    writer.append(states)                 # bytes of [n, C, hidden], as often as needed
    info = writer.finish(token_ids)
    writer.publish()                      # durable, under its final name

Layout PerSample makes one of these for each row. The states stream behind a header block whose size is known before
the first state is; the header is written last and carries the checksum of all that follows it, so that a file that
is found can be told whole without anything beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from drillcore.dtypes import StoreDType
from drillcore.durable import create, link_once, rename, sync, write_at, writing
from drillcore.layout import new_attempt_id, temporary
from drillcore.tensor_header import LENGTH_BYTES, TensorSpec, header_bytes, padded_header, widest_header_bytes

HIDDEN_STATES = "hidden_states"
TOKEN_IDS = "token_ids"
CHECKSUM = "xxh3_64"
"""Metadata key: 16 hexadecimal digits over the bytes behind the header block."""

_BLOCK_BYTES = 512


@dataclass(frozen=True)
class SampleFileSchema:
    """What several sample files have in common: C columns of `hidden_size` elements a state."""

    store_dtype: StoreDType
    num_columns: int
    hidden_size: int
    metadata: Mapping[str, str]
    """Goes into `__metadata__`; the checksum is added to it."""

    @property
    def state_bytes(self) -> int:
        """Bytes of one token's states in all columns."""
        return self.num_columns * self.hidden_size * self.store_dtype.itemsize

    @cached_property
    def header_block_bytes(self) -> int:
        """Bytes before the first state."""
        metadata = {**self.metadata, CHECKSUM: "0" * 16}
        length = LENGTH_BYTES + widest_header_bytes((HIDDEN_STATES, TOKEN_IDS), metadata)
        return -(-length // _BLOCK_BYTES) * _BLOCK_BYTES

    def header_block(self, states: int, tokens: int, checksum: str) -> bytes:
        """The header block of a file with so many states and tokens, and that checksum of what follows."""
        shape = (states, self.num_columns, self.hidden_size)
        tensors = {
            HIDDEN_STATES: TensorSpec(self.store_dtype.value, shape, states * self.state_bytes),
            TOKEN_IDS: TensorSpec("I64", (tokens,), tokens * np.dtype(np.int64).itemsize),
        }
        header = header_bytes(tensors, {**self.metadata, CHECKSUM: checksum})
        return padded_header(header, self.header_block_bytes)

    def file_bytes(self, states: int, tokens: int) -> int:
        """Size of a file with so many states and tokens."""
        return self.header_block_bytes + states * self.state_bytes + tokens * np.dtype(np.int64).itemsize


@dataclass(frozen=True)
class SampleFileInfo:
    """A finished sample file."""

    bytes: int
    xxh3_64: int
    """Over the bytes behind the header block, then over the header block."""


class SampleFileWriter:
    """Writes one sample file. Used by one thread at a time; nothing stands under `path` before it is published."""

    def __init__(self, path: Path, schema: SampleFileSchema, *, built_at: Path | None = None) -> None:
        """Create the file under a temporary name.

        Args:
            path: the final name.
            schema: what the file holds.
            built_at: the temporary name, on the same file system; None for a unique one beside `path`.

        Raises:
            WriteError: when the volume refuses.
        """
        self.path = path
        self._schema = schema
        self._temporary = built_at or temporary(path, new_attempt_id())
        self._fd = create(self._temporary)
        self._hash = xxhash.xxh3_64()
        self._end = schema.header_block_bytes

    @property
    def states_bytes(self) -> int:
        """Bytes of states appended so far."""
        return self._end - self._schema.header_block_bytes

    def append(self, data: memoryview) -> None:
        """Append states: one write, without a copy and without the interpreter lock.

        Args:
            data: contiguous bytes of `[n, C, hidden]`; free for reuse when this returns.

        Raises:
            WriteError: when the volume refuses: `abandon` the file.
        """
        data = data.cast("B") if data.ndim != 1 or data.format != "B" else data
        write_at(self._fd, data, self._end, self._temporary)
        self._hash.update(data)
        self._end += len(data)

    def finish(self, token_ids: npt.NDArray[np.int64]) -> SampleFileInfo:
        """Write the tokens and the header: the file is whole, but neither durable nor published.

        Args:
            token_ids: [S], the whole sequence, also when fewer states were appended.

        Raises:
            ValueError: when the states appended are no whole number of states.
            WriteError: when the volume refuses: `abandon` the file.
        """
        states, rest = divmod(self.states_bytes, self._schema.state_bytes)
        if rest:
            raise ValueError(
                f"{self.path}: {self.states_bytes} bytes are no whole states of {self._schema.state_bytes}"
            )
        self.append(np.ascontiguousarray(token_ids, np.int64).view(np.uint8).data)
        header = self._schema.header_block(states, len(token_ids), self._hash.hexdigest())
        write_at(self._fd, memoryview(header), 0, self._temporary)
        self._hash.update(header)
        return SampleFileInfo(self._end, self._hash.intdigest())

    def publish(self) -> None:
        """Make the finished file durable under its final name; a file of that name is replaced.

        Raises:
            WriteError: when the volume refuses: `abandon` the file.
        """
        self._sync()
        rename(self._temporary, self.path)

    def publish_once(self) -> bool:
        """Make the finished file durable under its final name, unless a file of that name exists: then ours is removed.

        The name itself is durable after `durable.sync_folder`: once for many files.

        Returns:
            Whether ours has the name.

        Raises:
            WriteError: when the volume refuses: `abandon` the file.
        """
        self._sync()
        return link_once(self._temporary, self.path)

    def abandon(self) -> None:
        """Remove the unpublished file; does nothing to a published one."""
        self._release()
        with writing(self._temporary):
            self._temporary.unlink(missing_ok=True)

    def _sync(self) -> None:
        try:
            sync(self._fd, self._temporary)
        finally:
            # After a failed fsync the kernel may have dropped pages, and a second one would succeed: never try again.
            self._release()

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with writing(self._temporary):
                os.close(fd)
