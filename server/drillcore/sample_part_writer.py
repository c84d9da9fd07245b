"""One part of layout PerSample: a file for each sample, and the part that lists them."""

from __future__ import annotations

from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import xxhash

from drillcore.durable import publish, sync_folder
from drillcore.errors import WriteError
from drillcore.layout import ShardLayout
from drillcore.part_info import PartInfo
from drillcore.part_schema import SAMPLE_BYTES, SAMPLE_XXH3_64, PartSchema
from drillcore.records import SampleEnd
from drillcore.sample_columns import SampleColumns
from drillcore.sample_file import SampleFileWriter
from drillcore.sample_schema import SampleFileInfo
from drillcore.stored_sample import StoredSample, whole_sample
from drillcore.tensor_header import TensorSpec

_MAX_UNSYNCED = 32
"""Files of a part that wait for the disk; each holds a file descriptor."""
_STATS_STATES = 256


@dataclass(frozen=True, eq=False)
class _Published:
    """What the file of one row holds."""

    end: SampleEnd
    file: SampleFileInfo


class SamplePartWriter:
    """Writes the files of one sample after another, then the part.

    Used by one thread at a time. A finished file is synced and published by `syncs` while the next ones are written:
    a disk does many fsyncs at once in hardly more time than one. A row counts only when its part is journaled, and by
    then every file of the part is durable under its name: the folder is synced once a part.

    A file that is there already stays, and the part lists that one: an attempt may have died, or may still run, between
    the file and its journal. Only a file whose bytes are not those written is replaced.
    """

    def __init__(self, shard: ShardLayout, number: int, attempt: str, schema: PartSchema, syncs: Executor) -> None:
        """Begin a part.

        Args:
            shard: whose part.
            number: of the part among the attempt's.
            attempt: of the caller.
            schema: what the part holds, from `PartSchema.of(manifest)`.
            syncs: threads that wait for the disk.
        """
        self.path = shard.part(number, attempt)
        self._shard = shard
        self._number = number
        self._attempt = attempt
        self._schema = schema
        self._syncs = syncs
        self._open: SampleFileWriter | None = None
        self._num_begun = 0
        self._publishing: list[tuple[SampleFileWriter, Future[_Published]]] = []

    def append(self, data: memoryview) -> None:
        """Append states of the open sample, as `PartWriter.append`."""
        self._open_file().append(data)

    def end_sample(self, end: SampleEnd) -> None:
        """Finish the open sample.

        Raises:
            ValueError: when its states are not those that were appended.
            WriteError: when the volume refuses this file, or refused an earlier one.
        """
        file = self._open_file()
        expected = end.num_states * self._schema.state_bytes
        if file.states_bytes != expected:
            raise ValueError(
                f"row {end.row}: {end.num_states} states are {expected} bytes; {file.states_bytes} were appended"
            )
        info = file.finish(end.token_ids, end.last_token)
        self._open = None
        self._publishing.append((file, self._syncs.submit(self._publish, file, end, info)))
        if len(self._publishing) > _MAX_UNSYNCED:
            self._publishing[-_MAX_UNSYNCED][1].result()

    def drop_sample(self) -> None:
        """Forget the open sample."""
        file, self._open = self._open, None
        if file is not None:
            file.abandon()

    def close(self) -> PartInfo | None:
        """Make all files and the part durable under their final names; an open sample is dropped.

        Returns:
            What a journal says about the part; None when it has no sample.

        Raises:
            WriteError: when the volume refuses. The part is lost: `abandon` it.
        """
        self.drop_sample()
        if not self._publishing:
            return None
        published = [future.result() for _, future in self._publishing]
        sync_folder(self._shard.samples)
        columns = SampleColumns(self._schema.num_columns, every_token=True, has_positions=False)
        for sample in published:
            columns.add(sample.end)
        size_bytes, checksum = self._write_part(columns, [sample.file for sample in published])
        sample_bytes = sum(sample.file.bytes for sample in published)
        return PartInfo.of(
            self.path, size_bytes, checksum, columns, states=columns.num_tokens, sample_bytes=sample_bytes
        )

    def abandon(self) -> None:
        """Remove the unpublished files; published ones stay for the attempt that computes their rows again."""
        self.drop_sample()
        for file, future in self._publishing:
            if future.cancel():
                file.abandon()
        wait(future for _, future in self._publishing)

    def _open_file(self) -> SampleFileWriter:
        if self._open is None:
            path = self._shard.unpublished_sample(self._number, self._num_begun, self._attempt)
            self._open = SampleFileWriter(path, self._schema.sample_file)
            self._num_begun += 1
        return self._open

    def _publish(self, file: SampleFileWriter, end: SampleEnd, info: SampleFileInfo) -> _Published:
        """Runs in a thread of `syncs`."""
        path = self._shard.sample(end.row)
        try:
            if file.publish_once(path):
                return _Published(end, info)
            found = whole_sample(path, self._schema.sample_file)
            if found is None or not _same_prompt(found[0], end):
                file.replace(path)
                return _Published(end, info)
            file.abandon()
        except WriteError:
            file.abandon()
            raise
        return _Published(_end_of(found[0], end), found[1])

    def _write_part(self, columns: SampleColumns, files: list[SampleFileInfo]) -> tuple[int, str]:
        """Publish the part's own file; its size and checksum."""
        tensors = {
            SAMPLE_BYTES: np.array([file.bytes for file in files], np.int64),
            SAMPLE_XXH3_64: np.array([file.xxh3_64 for file in files], np.uint64),
            **columns.tensors(),
        }
        header = self._schema.header_block({name: TensorSpec.of(tensor) for name, tensor in tensors.items()})
        body = b"".join(tensor.tobytes() for tensor in tensors.values())
        publish(self.path, header + body, self._attempt)
        hasher = xxhash.xxh3_64(body)
        hasher.update(header)
        return len(header) + len(body), hasher.hexdigest()


def _same_prompt(sample: StoredSample, end: SampleEnd) -> bool:
    prompt = end.token_ids[: end.num_prompt_tokens]
    return np.array_equal(sample.token_ids[: end.num_prompt_tokens], prompt)


def _end_of(sample: StoredSample, ours: SampleEnd) -> SampleEnd:
    """The end of the sample that another attempt stored: its states, and what it generated, may differ from ours."""
    num_tokens = len(sample.token_ids)
    norm_sums, max_abs = _stats(sample.hidden_states)
    return replace(
        ours,
        token_ids=sample.token_ids,
        last_token=sample.last_token,
        num_states=num_tokens,
        loss_mask=_resized(ours.loss_mask, num_tokens),
        norm_sums=norm_sums,
        max_abs=max_abs,
    )


def _resized(loss_mask: npt.NDArray[np.uint8] | None, num_tokens: int) -> npt.NDArray[np.uint8] | None:
    """The mask over as many tokens; only generated tokens can differ in number, and all of them are supervised."""
    if loss_mask is None:
        return None
    resized = np.ones(num_tokens, np.uint8)
    resized[: len(loss_mask)] = loss_mask[:num_tokens]
    return resized


def _stats(states: npt.NDArray[np.generic]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Per column: the sum of the L2 norms of `states` [S, C, hidden], and the largest absolute element."""
    norm_sums = np.zeros(states.shape[1])
    max_abs = np.zeros(states.shape[1])
    for first in range(0, len(states), _STATS_STATES):
        some = states[first : first + _STATS_STATES].astype(np.float64)
        norm_sums += np.linalg.norm(some, axis=2).sum(axis=0)
        max_abs = np.maximum(max_abs, np.abs(some).max(axis=(0, 2)))
    return norm_sums, max_abs
