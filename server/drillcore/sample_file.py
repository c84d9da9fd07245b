"""One sample, streamed to a file of its own that any safetensors reader opens.

    writer = SampleFileWriter(temporary(path, attempt), schema)
    writer.append(states)                 # bytes of [n, C, hidden], as often as needed
    info = writer.finish(token_ids)
    writer.publish(path)                  # durable, under its final name

Layout PerSample makes one of these for each row.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from drillcore.durable import create, link_once, rename, sync, write_at, writing
from drillcore.sample_schema import SampleFileInfo, SampleFileSchema


class SampleFileWriter:
    """Writes one sample file under a temporary name. Used by one thread at a time."""

    def __init__(self, temporary: Path, schema: SampleFileSchema) -> None:
        """Create the file.

        Args:
            temporary: a name that no one else uses, on the file system of the final one.
            schema: what the file holds.

        Raises:
            WriteError: when the volume refuses.
        """
        self._temporary = temporary
        self._schema = schema
        self._fd = create(temporary)
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

    def finish(self, token_ids: npt.NDArray[np.int64], last_token: int | None = None) -> SampleFileInfo:
        """Write the tokens and the header: the file is whole, but neither durable nor published.

        Args:
            token_ids: [S], the whole sequence, also when fewer states were appended.
            last_token: the token sampled last, which has no state.

        Raises:
            ValueError: when the bytes appended are no whole number of states.
            WriteError: when the volume refuses: `abandon` the file.
        """
        states, rest = divmod(self.states_bytes, self._schema.state_bytes)
        if rest:
            raise ValueError(f"{self.states_bytes} bytes are no whole states of {self._schema.state_bytes} bytes")
        self.append(np.ascontiguousarray(token_ids, np.int64).view(np.uint8).data)
        header = self._schema.header_block(states, len(token_ids), self._hash.hexdigest(), last_token)
        write_at(self._fd, memoryview(header), 0, self._temporary)
        self._hash.update(header)
        return SampleFileInfo(self._end, self._hash.intdigest())

    def publish(self, path: Path) -> None:
        """Make the finished file durable under its final name; a file of that name is replaced.

        Raises:
            WriteError: when the volume refuses: `abandon` the file.
        """
        self._sync()
        rename(self._temporary, path)

    def publish_once(self, path: Path) -> bool:
        """Make the finished file durable under its final name, unless a file of that name exists.

        The name itself is durable after `durable.sync_folder`: once for many files.

        Returns:
            Whether ours has the name; if not, `replace` that file or `abandon` ours.

        Raises:
            WriteError: when the volume refuses: `abandon` the file.
        """
        self._sync()
        ours = link_once(self._temporary, path)
        if ours:
            self.abandon()
        return ours

    def replace(self, path: Path) -> None:
        """Give the file that `publish_once` did not publish the name nevertheless."""
        with writing(path):
            os.rename(self._temporary, path)

    def abandon(self) -> None:
        """Remove the temporary name, and with it an unpublished file."""
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
