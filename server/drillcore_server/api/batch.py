"""The prompts of one request: admitted together, answered together, discarded together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from drillcore_server.api.errors import ApiError
from drillcore_server.api.extraction import Extraction


class Batch:
    """What one response is about."""

    def __init__(self, extractions: Sequence[Extraction]) -> None:
        self.extractions = extractions
        self.is_delivered = False
        """Whether the client was told of the files, which are its own from then on."""

    async def run(self) -> None:
        """Until every file is published.

        Raises:
            ApiError: of the first extraction that failed; the others are aborted.
        """
        if len(self.extractions) == 1:
            await self.extractions[0].run()
            return
        try:
            async with asyncio.TaskGroup() as group:
                for extraction in self.extractions:
                    group.create_task(extraction.run())
        except* ApiError as failures:
            raise _first(failures) from failures

    async def discard(self) -> None:
        """Sees to it that no file is left, unless the client was told of them."""
        if self.is_delivered:
            return
        published = [e for e in self.extractions if e.file is not None]
        for extraction in self.extractions:
            if extraction.file is None:
                extraction.target.discard()
        if published:
            await asyncio.to_thread(_discard, published)

    @property
    def num_prompt_tokens(self) -> int:
        """Of all prompts."""
        return sum(len(extraction.prompt) for extraction in self.extractions)

    @property
    def num_generated_tokens(self) -> int:
        """Of all generations, when they have ended."""
        return sum(len(e.file.generated_ids) for e in self.extractions if e.file is not None)


@asynccontextmanager
async def discarding(batch: Batch) -> AsyncIterator[Batch]:
    """Discards the batch on the way out, unless it was delivered."""
    try:
        yield batch
    finally:
        await batch.discard()


def _discard(extractions: Sequence[Extraction]) -> None:
    for extraction in extractions:
        extraction.target.discard()


def _first(group: BaseExceptionGroup[ApiError]) -> ApiError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ApiError), "except* gives the kind that was asked for"
    return error
