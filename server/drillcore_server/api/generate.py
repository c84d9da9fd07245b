"""`/v1/completions`, `/v1/chat/completions` and `/v1/chat/completions/render`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from drillcore_server.api.answers import CLIENT_LEFT, json_answer
from drillcore_server.api.batch import Batch
from drillcore_server.api.body import client_gone
from drillcore_server.api.direct_route import DirectRoute
from drillcore_server.api.errors import BadRequest
from drillcore_server.api.extraction import Extraction
from drillcore_server.api.fields import TokenIds
from drillcore_server.api.openapi import answers, body_of
from drillcore_server.api.prompts import completion_prompts, cut, fitted, tokens_to_generate
from drillcore_server.api.protocol import ChatRequest, CompletionRequest, GenerationRequest
from drillcore_server.api.responses import ResponseForm
from drillcore_server.api.services import Services, services_of
from drillcore_server.api.storage import PARAM
from drillcore_server.api.streams import MEDIA_TYPE, ChatChunks, CompletionChunks, events
from drillcore_server.api.views import ChatCompletion, Completion, Rendered
from drillcore_server.api.watched_answer import ClientLeft, WatchedAnswer, until_client_leaves

router = APIRouter(tags=["generation"], route_class=DirectRoute)


@router.post(
    "/v1/completions",
    summary="Extract the states of prompts, and generate",
    openapi_extra=body_of(CompletionRequest),
    responses=answers(Completion, streams=True),
)
async def create_completion(request: Request) -> Response:
    """One file for each prompt, complete before the answer leaves."""
    services = services_of(request)
    asked = await services.bodies.read(request, CompletionRequest)
    work = _Work(request, services, asked, "prompt", len(asked.prompt))

    async def prompts() -> Sequence[TokenIds]:
        return await completion_prompts(asked, services.model)

    return await work.answer(prompts, asked.most_tokens, _COMPLETION)


@router.post(
    "/v1/chat/completions",
    summary="Extract the states of a conversation, and generate its next turn",
    openapi_extra=body_of(ChatRequest),
    responses=answers(ChatCompletion, streams=True),
)
async def create_chat_completion(request: Request) -> Response:
    """One file for the rendered conversation, complete before the answer leaves."""
    services = services_of(request)
    asked = await services.bodies.read(request, ChatRequest)
    work = _Work(request, services, asked, "messages", 1)

    async def prompts() -> Sequence[TokenIds]:
        return [fitted(await services.chat.token_ids(asked), asked, services.model, param="messages")]

    return await work.answer(prompts, asked.most_tokens, _CHAT)


@router.post(
    "/v1/chat/completions/render",
    summary="The token ids of a conversation",
    openapi_extra=body_of(ChatRequest),
    responses=answers(Rendered),
)
async def render_chat_completion(request: Request) -> Response:
    """What `/v1/chat/completions` would make of the same messages; nothing is computed."""
    services = services_of(request)
    asked = await services.bodies.read(request, ChatRequest)
    services.model.require(asked.model)
    token_ids = cut(await services.chat.token_ids(asked), asked, services.model.max_tokens)
    return json_answer(
        {"request_id": f"chatcmpl-{uuid.uuid4().hex}", "model": services.model.id, "token_ids": token_ids.tolist()}
    )


@dataclass(frozen=True)
class _Kind:
    """What tells one kind of answer from the other."""

    prefix: str
    whole: str
    part: str
    """`object` of a whole answer and of an event."""
    build: Callable[[ResponseForm, Batch], dict[str, Any]]
    chunks: Callable[[ResponseForm], CompletionChunks | ChatChunks]


_COMPLETION = _Kind("cmpl", "text_completion", "text_completion", ResponseForm.completion, CompletionChunks)
_CHAT = _Kind("chatcmpl", "chat.completion", "chat.completion.chunk", ResponseForm.chat, ChatChunks)


class _Work:
    """One request from its fields to its answer."""

    def __init__(
        self, request: Request, services: Services, asked: GenerationRequest, param: str, num_prompts: int
    ) -> None:
        """`param` names the field that the prompts are in."""
        self._request = request
        self._services = services
        self._asked = asked
        self._param = param
        self._num_prompts = num_prompts
        self._started_s = time.perf_counter()
        services.model.require(asked.model)
        if num_prompts > 1 and asked.wants.hidden_states_path is not None:
            raise BadRequest("can be chosen for one prompt only", param=PARAM)

    async def answer(
        self, prompts: Callable[[], Awaitable[Sequence[TokenIds]]], most_tokens: int | None, kind: _Kind
    ) -> Response:
        """Admits, runs and answers."""
        streams = bool(self._asked.stream)
        request_id = f"{kind.prefix}-{uuid.uuid4().hex}"
        form = ResponseForm(
            self._services.model,
            request_id,
            int(time.time()),
            kind=kind.part if streams else kind.whole,
            with_token_ids=bool(self._asked.return_token_ids),
        )
        batch = Batch()

        async def prepare() -> None:
            batch.extractions = self._extractions(await prompts(), most_tokens, request_id)

        if streams:
            return await self._stream(batch, prepare, form, kind)
        return await self._whole(batch, prepare, lambda: kind.build(form, batch))

    async def _whole(
        self, batch: Batch, prepare: Callable[[], Awaitable[None]], build: Callable[[], dict[str, Any]]
    ) -> Response:
        async def run() -> None:
            await prepare()
            await batch.run()

        with self._places():
            try:
                await until_client_leaves(run(), lambda: client_gone(self._request))
                answer = json_answer(build())
                for extraction in batch.extractions:
                    extraction.is_delivered = True
            except ClientLeft:
                return Response(status_code=CLIENT_LEFT)
            finally:
                await batch.discard()
        self._count(batch)
        return answer

    async def _stream(
        self, batch: Batch, prepare: Callable[[], Awaitable[None]], form: ResponseForm, kind: _Kind
    ) -> Response:
        options = self._asked.stream_options
        async with AsyncExitStack() as stack:
            stack.enter_context(self._places())
            stack.push_async_callback(batch.discard)
            await prepare()
            parts = events(batch, form, kind.chunks(form), include_usage=bool(options and options.include_usage))
            kept = stack.pop_all()

        async def end() -> None:
            if batch.is_delivered:
                self._count(batch)
            else:
                self._services.metrics.tally.clients_left += 1
            await kept.aclose()

        return WatchedAnswer(parts, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-cache"}, on_end=end)

    def _places(self) -> AbstractContextManager[None]:
        return self._services.admission.places(self._num_prompts, self._param)

    def _extractions(self, prompts: Sequence[TokenIds], most_tokens: int | None, request_id: str) -> list[Extraction]:
        model, extractor, asked = self._services.model, self._services.extractor, self._asked
        return [
            extractor.prepare(
                prompt,
                tokens_to_generate(most_tokens, prompt, model),
                asked,
                f"{request_id}-{index}",
                watch=bool(asked.stream),
            )
            for index, prompt in enumerate(prompts)
        ]

    def _count(self, batch: Batch) -> None:
        metrics, files = self._services.metrics, [e.file for e in batch.extractions if e.file is not None]
        tally = metrics.tally
        tally.prompt_tokens += batch.num_prompt_tokens
        tally.generated_tokens += batch.num_generated_tokens
        tally.files += len(files)
        tally.file_bytes += sum(file.num_bytes for file in files)
        metrics.observe(self._request.scope["path"], time.perf_counter() - self._started_s)
