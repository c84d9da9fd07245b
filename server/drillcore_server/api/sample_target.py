"""The file of one prompt, from the moment that its name is known until it is delivered or discarded.

    waiting ──write──► being written ──► published ──► delivered (the client's own from now on)
       │                     │               │
       └────────── discard ──┴───────────────┴──► gone: no file, also no part of one, is left

The writer's thread publishes; the event loop discards, at any moment. Whoever of the two comes second removes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from drillcore.errors import OutputVolumeFullError, WriteError
from drillcore.sample_file import SampleFileWriter
from drillcore.sample_schema import SampleFileSchema
from drillcore_server.api.errors import ApiError, BadRequest, InternalError, StorageFull
from drillcore_server.api.storage import PARAM, Place, Storage
from drillcore_server.connector.list_sink import ExtractedSample

START_KEY: Final = "hiddenStatesStart"
"""Metadata key of a file that does not begin with the first token: the position of its first state."""


class Discarded(Exception):
    """Nobody wants the file any more."""


@dataclass(frozen=True, slots=True, eq=False)
class SampleFile:
    """A published file."""

    generated_ids: NDArray[np.int64]
    """Every generated token, whether it has a state or not."""
    num_states: int
    num_bytes: int


class SampleTarget:
    """See the module."""

    def __init__(self, storage: Storage, place: Place, schema: SampleFileSchema, *, has_output_tokens: bool) -> None:
        """`has_output_tokens`: whether generated tokens have their states in the file."""
        self.place = place
        self._storage = storage
        self._schema = schema
        self._has_output_tokens = has_output_tokens
        self._lock = threading.Lock()
        self._is_discarded = False
        self._is_published = False

    @property
    def path(self) -> str:
        """Where the client finds the file."""
        return self._storage.path_of(self.place)

    def write(self, sample: ExtractedSample) -> SampleFile:
        """Makes the sample durable under its name; in a writer's thread.

        Raises:
            Discarded: nobody wants it.
            ApiError: the storage refuses, or the client's path cannot be.
        """
        self._refuse_if_discarded()
        try:
            num_bytes = self._write(sample)
        except (WriteError, FileNotFoundError) as error:
            raise self._api_error(error) from error
        self._settle()
        end = sample.end
        generated = end.token_ids[end.num_prompt_tokens :]
        if end.last_token is not None:
            generated = np.append(generated, end.last_token)
        return SampleFile(generated, end.num_states, num_bytes)

    def discard(self) -> None:
        """Sees to it that no file is left; any thread. Removing one takes a system call."""
        with self._lock:
            self._is_discarded = True
            is_published = self._is_published
        if is_published:
            self._storage.remove(self.place)

    def _refuse_if_discarded(self) -> None:
        if self._is_discarded:
            raise Discarded

    def _settle(self) -> None:
        with self._lock:
            self._is_published = True
            is_discarded = self._is_discarded
        if is_discarded:
            self._storage.remove(self.place)
            raise Discarded

    def _write(self, sample: ExtractedSample) -> int:
        first, token_ids = self._stored_tokens(sample)
        last_token = sample.end.last_token if self._has_output_tokens else None
        with self._storage.folder_of(self.place, create=True) as folder:
            # The way that leads into an open folder, whatever its name is by now.
            inside = Path(f"/proc/self/fd/{folder}")
            temporary = inside / self._storage.unfinished.name_of(self.place.handle)
            writer = SampleFileWriter(temporary, self._schema_at(first))
            try:
                writer.append(sample.hidden_states.view(torch.uint8).numpy().reshape(-1).data)
                info = writer.finish(token_ids, last_token)
                self._refuse_if_discarded()
                writer.publish(inside / self.place.name)
            except BaseException:
                writer.abandon()
                raise
        return info.bytes

    def _stored_tokens(self, sample: ExtractedSample) -> tuple[int, NDArray[np.int64]]:
        """The first position that has a state in the file, and the ids of those that have."""
        positions = sample.end.positions
        if positions is None:
            return 0, sample.end.token_ids
        return int(positions[0]), sample.end.token_ids[positions]

    def _schema_at(self, first: int) -> SampleFileSchema:
        if first == 0:
            return self._schema
        return replace(self._schema, metadata={**self._schema.metadata, START_KEY: str(first)})

    def _api_error(self, error: WriteError | FileNotFoundError) -> ApiError:
        cause = error.__cause__ if isinstance(error, WriteError) else error
        said = cause.strerror if isinstance(cause, OSError) else str(error)
        if isinstance(error, OutputVolumeFullError):
            return StorageFull(f"the storage has no room for {self.path}: {said}")
        if isinstance(cause, (IsADirectoryError, NotADirectoryError, FileNotFoundError)):
            return BadRequest(f"{self.path} cannot be written: {said}", param=PARAM)
        return InternalError(f"{self.path} cannot be written: {said}")
