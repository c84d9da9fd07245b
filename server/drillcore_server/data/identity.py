"""What makes two runs read the same data: part of the output's manifest."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drillcore.json_fields import JsonValue
from drillcore_server.data.files import FoundFile
from drillcore_server.data.loss_mask import resolve_loss_mask
from drillcore_server.errors import ShardError
from drillcore_spec.dataset import DatasetSource
from drillcore_spec.reasons import Reason

if TYPE_CHECKING:
    from drillcore_server.data.dataset import Dataset

MAX_HASHED_BYTES = 1 << 30
"""Larger files are known by size and modification time: hashing terabytes at each start would take hours."""


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """Identity of one file of a dataset."""

    path: str
    """Relative to the dataset's root."""
    bytes: int
    sha256: str | None
    """Of the content; None above MAX_HASHED_BYTES."""
    mtime_ns: int | None
    """Modification time in nanoseconds; None where there is a sha256."""

    def to_json(self) -> dict[str, JsonValue]:
        """The file's object in the manifest."""
        known: dict[str, JsonValue] = (
            {"sha256": self.sha256} if self.sha256 is not None else {"mtimeNs": self.mtime_ns or 0}
        )
        return {"path": self.path, "bytes": self.bytes, **known}


def identify(found: FoundFile) -> DatasetFile:
    """The identity of a file.

    Raises:
        ShardError: BAD_DATASET when it cannot be read.
    """
    try:
        with found.path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > MAX_HASHED_BYTES:
                return DatasetFile(found.name, status.st_size, None, status.st_mtime_ns)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ShardError(Reason.BAD_DATASET, f"{found.path} cannot be read: {error.strerror}") from error
    return DatasetFile(found.name, status.st_size, digest, None)


def dataset_identity(dataset: Dataset, source: DatasetSource, chat_template: str | None = None) -> dict[str, JsonValue]:
    """The `dataset` object of the manifest: the files, and every setting that changes a row or its tokens.

    Args:
        dataset: what was found under the source's URI.
        source: the job's dataset.
        chat_template: Jinja text in place of the model's own; the model's is part of the tokenizer's identity.
    """
    columns: dict[str, JsonValue] = source.columns.model_dump(mode="json", by_alias=True, exclude_none=True)
    identity: dict[str, JsonValue] = {
        "uri": source.uri,
        "revision": dataset.revision,
        "split": source.split,
        "files": [file.to_json() for file in dataset.files],
        "format": dataset.format.value,
        "columns": columns,
        "lossMask": resolve_loss_mask(source).value,
        "maxSamples": source.max_samples,
        "contextSize": source.context_size,
        "overlong": source.overlong.value,
        "chatTemplateKwargs": dict(source.chat_template_kwargs),
    }
    if chat_template is not None:
        identity["chatTemplateSha256"] = hashlib.sha256(chat_template.encode()).hexdigest()
    return identity
