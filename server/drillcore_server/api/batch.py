"""The prompts of one request: admitted together, answered together, discarded together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from drillcore_server.api.errors import ApiError
from drillcore_server.api.extraction import Extraction


class Batch:
    """What one response is about."""

    def __init__(self) -> None:
        self.extractions: Sequence[Extraction] = ()
        """Set once the prompts are known."""

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
        """Sees to it that no file is left but those that the client was told of."""
        unwanted = [extraction for extraction in self.extractions if not extraction.is_delivered]
        for extraction in unwanted:
            if extraction.file is None:
                extraction.target.discard()
        if published := [extraction for extraction in unwanted if extraction.file is not None]:
            await asyncio.to_thread(_discard, published)

    @property
    def is_delivered(self) -> bool:
        """Whether the client was told of every file."""
        return all(extraction.is_delivered for extraction in self.extractions)

    @property
    def num_prompt_tokens(self) -> int:
        """Of all prompts."""
        return sum(len(extraction.prompt) for extraction in self.extractions)

    @property
    def num_generated_tokens(self) -> int:
        """Of all generations, when they have ended."""
        return sum(len(e.file.generated_ids) for e in self.extractions if e.file is not None)


def _discard(extractions: Sequence[Extraction]) -> None:
    for extraction in extractions:
        extraction.target.discard()


def _first(group: BaseExceptionGroup[ApiError]) -> ApiError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ApiError), "except* gives the kind that was asked for"
    return error
