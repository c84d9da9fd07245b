"""Answers as server-sent events: each token's text as it comes, and at the end where the states are.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, and OpenAI's `[DONE]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final, Protocol

from pydantic_core import to_json

from drillcore_server.api.answers import error_object
from drillcore_server.api.batch import Batch
from drillcore_server.api.errors import ApiError
from drillcore_server.api.extraction import Delta, Extraction
from drillcore_server.api.responses import ResponseForm, usage

MEDIA_TYPE: Final = "text/event-stream"
_DONE: Final = b"data: [DONE]\n\n"
_News = tuple[int, Delta | ApiError | None]
"""Which extraction; then what it brought, or how it failed; None: it is published."""


class Chunks(Protocol):
    """How the parts of one kind of answer look."""

    def first(self, index: int, extraction: Extraction) -> dict[str, Any]:
        """Before anything is generated."""
        ...

    def delta(self, index: int, delta: Delta) -> dict[str, Any]:
        """A token's worth."""
        ...

    def last(self, index: int, extraction: Extraction) -> dict[str, Any]:
        """The end: text that was held back, why it ended, where the states are."""
        ...


class CompletionChunks:
    """The parts of a completion."""

    def __init__(self, form: ResponseForm) -> None:
        self._form = form

    def first(self, index: int, extraction: Extraction) -> dict[str, Any]:
        """The prompt's ids."""
        return self._choice(index, "", **self._form.prompt_ids(extraction), **self._form.token_ids([]))

    def delta(self, index: int, delta: Delta) -> dict[str, Any]:
        """A token's text."""
        return self._choice(index, delta.text, **self._form.token_ids([delta.token_id]))

    def last(self, index: int, extraction: Extraction) -> dict[str, Any]:
        """The end."""
        last = self._form.last_choice(index, extraction) | self._form.token_ids([])
        return self._form.part([{**last, "text": extraction.rest}])

    def _choice(self, index: int, text: str, **fields: Any) -> dict[str, Any]:
        return self._form.part([{"index": index, "text": text, "logprobs": None, "finish_reason": None, **fields}])


class ChatChunks:
    """The parts of a chat completion."""

    def __init__(self, form: ResponseForm) -> None:
        self._form = form

    def first(self, index: int, extraction: Extraction) -> dict[str, Any]:
        """The role, and the prompt's ids."""
        choice = _choice(index, {"role": "assistant", "content": ""}) | self._form.token_ids([])
        return self._form.part([choice], **self._form.prompt_ids(extraction))

    def delta(self, index: int, delta: Delta) -> dict[str, Any]:
        """A token's text."""
        choice = _choice(index, {"content": delta.text})
        return self._form.part([choice | self._form.token_ids([delta.token_id])])

    def last(self, index: int, extraction: Extraction) -> dict[str, Any]:
        """The end."""
        delta = {"content": extraction.rest} if extraction.rest else {}
        last = self._form.last_choice(index, extraction) | self._form.token_ids([])
        return self._form.part([{**last, "delta": delta}])


def _choice(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


async def events(batch: Batch, form: ResponseForm, chunks: Chunks, *, include_usage: bool) -> AsyncIterator[bytes]:
    """The events of one answer. An extraction is delivered when the event with its path was sent."""
    news: asyncio.Queue[_News] = asyncio.Queue()
    tasks = [asyncio.create_task(_run(i, extraction, news)) for i, extraction in enumerate(batch.extractions)]
    try:
        for index, extraction in enumerate(batch.extractions):
            yield _event(chunks.first(index, extraction))
        num_running = len(tasks)
        while num_running:
            index, what = await news.get()
            if isinstance(what, ApiError):
                yield _event(error_object(what))
                yield _DONE
                return
            if what is None:
                num_running -= 1
                extraction = batch.extractions[index]
                yield _event(chunks.last(index, extraction))
                extraction.is_delivered = True
            elif what.text or form.with_token_ids:
                yield _event(chunks.delta(index, what))
        if include_usage:
            yield _event(form.part([], usage=usage(batch)))
        yield _DONE
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(index: int, extraction: Extraction, news: asyncio.Queue[_News]) -> None:
    extraction.on_delta = partial(_put, index, news)
    try:
        await extraction.run()
    except ApiError as error:
        news.put_nowait((index, error))
    else:
        news.put_nowait((index, None))


def _put(index: int, news: asyncio.Queue[_News], delta: Delta) -> None:
    news.put_nowait((index, delta))


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + to_json(content) + b"\n\n"
