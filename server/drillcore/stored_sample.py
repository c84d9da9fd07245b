"""A sample's own file, opened and checked: layout PerSample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from drillcore.checksum import check_file, check_size, hash_sample
from drillcore.errors import DrillcoreError, FormatError
from drillcore.json_fields import MAX_INTEGER
from drillcore.layout import ShardLayout
from drillcore.part_file import SampleTable
from drillcore.sample_schema import CHECKSUM, HIDDEN_STATES, LAST_TOKEN, TOKEN_IDS, SampleFileInfo, SampleFileSchema
from drillcore.tensor_file import TensorFile


@dataclass(frozen=True, eq=False)
class StoredSample:
    """What a sample's file holds: S tokens, a state each, C columns. The arrays are views of the mapped file."""

    hidden_states: npt.NDArray[Any]
    """[S, C, hidden]."""
    token_ids: npt.NDArray[np.int64]
    """[S]."""
    last_token: int | None
    """The token sampled last, which has no state."""
    checksum: str
    """Of all bytes behind the header block, as the header says."""

    @classmethod
    def open(cls, path: Path, schema: SampleFileSchema) -> StoredSample:
        """Map the file.

        Raises:
            FormatError: when it is anything but a file of this schema.
            ReadError: when it cannot be read.
        """
        file = TensorFile(path)
        own = {key: file.metadata.pop(key, "") for key in (CHECKSUM, LAST_TOKEN)}
        if file.metadata != dict(schema.metadata):
            raise FormatError(path, "the file's metadata is not that of this output's manifest")
        token_ids: npt.NDArray[np.int64] = file.array(TOKEN_IDS, "I64", None)
        shape = (len(token_ids), schema.num_columns, schema.hidden_size)
        return cls(
            hidden_states=file.array(HIDDEN_STATES, schema.store_dtype.value, *shape),
            token_ids=token_ids,
            last_token=_last_token(own[LAST_TOKEN], path),
            checksum=own[CHECKSUM],
        )


def whole_sample(path: Path, schema: SampleFileSchema) -> tuple[StoredSample, SampleFileInfo] | None:
    """The sample that a file holds and what is said about the file; None when its bytes are not those written.

    Reads the whole file.
    """
    try:
        sample = StoredSample.open(path, schema)
        behind_header, info = hash_sample(path)
    except (DrillcoreError, OSError):
        return None
    return (sample, info) if behind_header == sample.checksum else None


def check_sample_files(shard: ShardLayout, table: SampleTable, on_read: Callable[[int], None] | None = None) -> None:
    """Check size and checksum of the files that a part of layout PerSample lists; raises as `checksum.check_file`."""
    for file in table.sample_files():
        check_file(shard.samples / file.name, file, on_read)


def check_sample_sizes(shard: ShardLayout, table: SampleTable) -> None:
    """Check the files' sizes only; raises as `checksum.check_size`."""
    for file in table.sample_files():
        check_size(shard.samples / file.name, file)


def _last_token(text: str, path: Path) -> int | None:
    try:
        token = int(text)
    except ValueError:
        token = -2
    if not -1 <= token <= MAX_INTEGER:
        raise FormatError(path, f"metadata `{LAST_TOKEN}` must be a token id or -1; got {text[:80]!r}")
    return None if token == -1 else token
