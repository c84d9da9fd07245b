"""One part of a shard, streamed to disk at the speed of the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from drillcore.durable import create, rename, sync, write_at, writing
from drillcore.layout import temporary
from drillcore.part_info import PartInfo
from drillcore.part_schema import PADDING, PartSchema
from drillcore.records import SampleEnd
from drillcore.sample_columns import SampleColumns
from drillcore.sample_schema import HIDDEN_STATES
from drillcore.tensor_header import TensorSpec

_ZEROS = memoryview(bytes(1 << 20))
_BLOCK_BYTES = 1 << 20
"""Written, then hashed while it is still in the processor's cache."""


class PartWriter:
    """Writes one part: the states of one sample after another, then the small data, then the header.

    Used by one thread at a time. Nothing of the part is visible under its final name before `close` returns.

        | header block | finished samples | open sample | left by dropped ones |
        0            block          sample start       end               high water

    A dropped sample's bytes are overwritten by what follows; only what still lies behind the end at `close` is
    cut off, or, where the file system refuses ftruncate, covered by a tensor `padding`.
    """

    def __init__(self, path: Path, schema: PartSchema) -> None:
        """Create the file under its temporary name.

        Args:
            path: the final name, from `ShardLayout.part`.
            schema: what the part holds, from `PartSchema.of(manifest)`.

        Raises:
            WriteError: when the volume refuses.
        """
        self.path = path
        self._schema = schema
        self._block_bytes = schema.header_block_bytes
        self._temporary = temporary(path)
        self._fd = create(self._temporary)
        self._columns = SampleColumns(
            schema.num_columns, every_token=schema.every_token, has_positions=schema.has_positions
        )
        self._hash = xxhash.xxh3_64()
        self._sample_start_hash = self._hash.copy()
        self._sample_start = self._end = self._high_water = self._block_bytes

    @property
    def num_samples(self) -> int:
        """Finished samples."""
        return self._columns.num_samples

    @property
    def open_sample_bytes(self) -> int:
        """Bytes appended since the last finished sample."""
        return self._end - self._sample_start

    @property
    def size_bytes(self) -> int:
        """Size of the file if the part were closed now, the open sample dropped."""
        return self._schema.part_bytes(
            samples=self._columns.num_samples,
            tokens=self._columns.num_tokens,
            states=self._num_states,
            id_bytes=self._columns.num_id_bytes,
            loss_mask=self._columns.has_loss_mask,
        )

    def append(self, data: memoryview) -> None:
        """Append states of the open sample, without a copy and without the interpreter lock.

        Args:
            data: contiguous bytes of `[n, C, hidden]`; free for reuse when this returns.

        Raises:
            WriteError: when the volume refuses. The open sample is then undefined: drop it.
        """
        data = data.cast("B") if data.ndim != 1 or data.format != "B" else data
        self._high_water = max(self._high_water, self._end + len(data))
        for start in range(0, len(data), _BLOCK_BYTES):
            block = data[start : start + _BLOCK_BYTES]
            write_at(self._fd, block, self._end, self._temporary)
            self._hash.update(block)
            self._end += len(block)

    def end_sample(self, end: SampleEnd) -> None:
        """Finish the open sample.

        Raises:
            ValueError: when its states are not those that were appended.
        """
        expected = end.num_states * self._schema.state_bytes
        if self.open_sample_bytes != expected:
            raise ValueError(
                f"row {end.row}: {end.num_states} states are {expected} bytes; {self.open_sample_bytes} were appended"
            )
        self._columns.add(end)
        self._sample_start = self._end
        self._sample_start_hash = self._hash.copy()

    def drop_sample(self) -> None:
        """Forget the open sample."""
        self._end = self._sample_start
        self._hash = self._sample_start_hash.copy()

    def close(self) -> PartInfo | None:
        """Make the part durable under its final name; an open sample is dropped.

        Returns:
            What a journal says about the part; None, and no file, when it has no sample.

        Raises:
            WriteError: when the volume refuses. The part is lost: `abandon` it.
        """
        self.drop_sample()
        if not self._columns.num_samples:
            self.abandon()
            return None
        size_bytes, checksum = self._write_rest()
        try:
            sync(self._fd, self._temporary)
        finally:
            # After a failed fsync the kernel may have dropped pages, and a second one would succeed: never try again.
            self._release()
        rename(self._temporary, self.path)
        return PartInfo.of(self.path, size_bytes, checksum, self._columns, states=self._num_states)

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._release()
        with writing(self._temporary):
            self._temporary.unlink(missing_ok=True)

    @property
    def _num_states(self) -> int:
        return (self._sample_start - self._block_bytes) // self._schema.state_bytes

    def _write_rest(self) -> tuple[int, str]:
        """Write the small data and the header; the size of the file and its checksum."""
        self._cut_off()
        hasher = self._hash.copy()
        offset = self._end
        tensors = self._columns.tensors()
        for tensor in tensors.values():
            offset = self._write_tail(tensor, offset, hasher)
        specs = {name: TensorSpec.of(tensor) for name, tensor in tensors.items()}
        if self._high_water > offset:
            left = self._high_water - offset
            specs[PADDING] = TensorSpec("U8", (left,), left)
            offset = self._write_padding(offset, hasher)
        shape = (self._num_states, self._schema.num_columns, self._schema.hidden_size)
        states = TensorSpec(self._schema.store_dtype.value, shape, self._end - self._block_bytes)
        header = self._schema.header_block({HIDDEN_STATES: states, **specs})
        write_at(self._fd, memoryview(header), 0, self._temporary)
        hasher.update(header)
        return offset, hasher.hexdigest()

    def _cut_off(self) -> None:
        if self._high_water > self._end:
            try:
                os.ftruncate(self._fd, self._end)
            except OSError:
                return  # Some FUSE file systems have no ftruncate: `padding` covers what is left.
            self._high_water = self._end

    def _write_tail(self, tensor: npt.NDArray[Any], offset: int, hasher: xxhash.xxh3_64) -> int:
        if not tensor.nbytes:
            return offset
        data = tensor.reshape(-1).view(np.uint8).data
        self._high_water = max(self._high_water, offset + len(data))
        write_at(self._fd, data, offset, self._temporary)
        hasher.update(data)
        return offset + len(data)

    def _write_padding(self, offset: int, hasher: xxhash.xxh3_64) -> int:
        while offset < self._high_water:
            zeros = _ZEROS[: self._high_water - offset]
            write_at(self._fd, zeros, offset, self._temporary)
            hasher.update(zeros)
            offset += len(zeros)
        return offset

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with writing(self._temporary):
                os.close(fd)
