"""One prompt on its way to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from drillcore.errors import WriteError
from drillcore.sample_schema import SampleFileSchema
from drillcore_server.api.errors import ApiError, BadRequest, InternalError, ModelNotFound, Unavailable, Unprocessable
from drillcore_server.api.fields import TokenIds
from drillcore_server.api.file_engine import FileEngine
from drillcore_server.api.generated_text import GeneratedText, StopStrings
from drillcore_server.api.protocol import GenerationRequest, KVTransferParams
from drillcore_server.api.sample_target import SampleFile, SampleTarget
from drillcore_server.api.storage import Storage
from drillcore_server.data.tokenizer import Tokenizer
from drillcore_server.engine.errors import (
    EngineStopped,
    RequestRefused,
    SampleQuarantined,
)
from drillcore_server.engine.request import Request, Sampling
from drillcore_spec.enums import PositionsKind

_CONTEXT_TOKENS = 8
"""Tokens of the prompt that tell a decoder how its text goes on."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step added to a generation."""

    token_id: int
    text: str


@dataclass(frozen=True)
class Model:
    """What is served."""

    id: str
    tokenizer: Tokenizer
    layer_ids: tuple[int, ...]
    """r_i numbers, in the order of the file's columns."""
    final_norm: bool
    stop_token_ids: frozenset[int]
    vocab_size: int
    max_tokens: int
    """Tokens that a prompt and what it generates, but the last one, may have together."""
    generates: bool
    schema: SampleFileSchema
    """Of the files."""

    def require(self, model_id: str | None) -> None:
        """Raises `ModelNotFound` if a request names another model."""
        if model_id not in (None, self.id):
            raise ModelNotFound(f"this server serves {self.id!r} only", param="model")


class Extractor:
    """Makes and runs extractions. Lives in the event loop."""

    def __init__(self, model: Model, engine: FileEngine, storage: Storage) -> None:
        self.model = model
        self.engine = engine
        self.storage = storage
        self._ids = count()

    def prepare(
        self, prompt: TokenIds, max_tokens: int, asked: GenerationRequest, handle: str, *, watch: bool
    ) -> Extraction:
        """An extraction that has not begun.

        Args:
            prompt: ids [S].
            max_tokens: tokens to generate.
            asked: everything else.
            handle: names the file, if the client does not.
            watch: whether deltas are wanted while it runs.

        Raises:
            BadRequest: the window or the path cannot be.
        """
        wants = asked.wants
        if wants.hidden_states_path is None:
            place = self.storage.own_place(handle)
        else:
            place = self.storage.chosen_place(wants.hidden_states_path)
        positions, position_range = _positions(wants, len(prompt), max_tokens)
        target = SampleTarget(
            self.storage, place, self.model.schema, has_output_tokens=wants.include_output_tokens and max_tokens > 0
        )
        request = Request(
            request_id=next(self._ids),
            prompt_token_ids=prompt,
            positions=positions,
            position_range=position_range,
            max_tokens=max_tokens,
            sampling=_sampling(asked),
            stop_token_ids=self._stop_token_ids(asked),
        )
        return Extraction(self.engine, request, target, self._text(prompt, asked), watch=watch, stops=asked.stop)

    def _stop_token_ids(self, asked: GenerationRequest) -> frozenset[int]:
        own = frozenset() if asked.ignore_eos else self.model.stop_token_ids
        return own | frozenset(asked.stop_token_ids or ())

    def _text(self, prompt: TokenIds, asked: GenerationRequest) -> GeneratedText:
        context = prompt[-_CONTEXT_TOKENS:].tolist()
        stream = self.model.tokenizer.text_stream(context, skip_special_tokens=asked.skip_special_tokens)
        stops = StopStrings(asked.stop, include=asked.include_stop_str_in_output)
        return GeneratedText(stream, stops, self._stop_token_ids(asked))


class Extraction:
    """One prompt, and what becomes of it."""

    def __init__(
        self,
        engine: FileEngine,
        request: Request,
        target: SampleTarget,
        text: GeneratedText,
        *,
        watch: bool,
        stops: Sequence[str],
    ) -> None:
        self.target = target
        self.file: SampleFile | None = None
        """Set when it is published."""
        self.text = ""
        """All of it, once the file is published."""
        self.is_delivered = False
        """Whether the client was told of the file, which is its own from then on."""
        self.on_delta: Callable[[Delta], None] | None = None
        """Takes deltas, in the event loop."""
        self._engine = engine
        self._generated = text
        self._parts: list[str] = []
        is_watched = request.generates and (watch or bool(stops))
        self._is_watched = is_watched
        self._request = replace(request, on_token=self._take) if is_watched else request
        self._watch = watch

    @property
    def prompt(self) -> TokenIds:
        """Ids [S], as they were sent."""
        return self._request.prompt_token_ids

    @property
    def first_state(self) -> int:
        """Position of the first state in the file."""
        position_range = self._request.position_range
        return 0 if position_range is None else position_range.start

    @property
    def finish_reason(self) -> str:
        """Why it ended, in OpenAI's words."""
        return "stop" if self._generated.is_stopped else "length"

    @property
    def stop_reason(self) -> str | int | None:
        """The stop string, or the id, that ended it."""
        return self._generated.stop_reason or self._generated.stop_token_id

    async def run(self) -> None:
        """Until the file is published.

        Raises:
            ApiError: whatever became of it instead.
        """
        try:
            self.file = await self._engine.submit_to(self._request, self.target)
        except ApiError:
            raise
        except RequestRefused as error:
            raise BadRequest(str(error)) from error
        except SampleQuarantined as error:
            raise Unprocessable(str(error)) from error
        except EngineStopped as error:
            raise Unavailable("the engine does not run") from error
        except (OSError, WriteError, RuntimeError, ValueError) as error:
            raise InternalError(f"the request failed: {type(error).__name__}") from error
        if not self._is_watched:
            self._parts = [self._generated.add(token_id) for token_id in self.file.generated_ids.tolist()]
        self._parts.append(self._generated.flush())
        self.text = "".join(self._parts)

    @property
    def rest(self) -> str:
        """The text that no delta has brought."""
        return self._parts[-1]

    def _take(self, token_id: int) -> bool:
        """A sampled id, in the engine's thread; gives whether it is the last one."""
        text = self._generated.add(token_id)
        self._parts.append(text)
        if self._watch:
            delta = Delta(token_id, text)
            self._engine.inbox.post(lambda: self._tell(delta))
        return self._generated.is_stopped

    def _tell(self, delta: Delta) -> None:
        if self.on_delta is not None:
            self.on_delta(delta)


def _positions(wants: KVTransferParams, num_prompt: int, max_tokens: int) -> tuple[PositionsKind, range | None]:
    """Which positions the engine keeps."""
    num_states = num_prompt + max(max_tokens, 1) - 1 if wants.include_output_tokens else num_prompt
    start = wants.hidden_states_start
    end = num_states if wants.hidden_states_end is None else wants.hidden_states_end
    if start >= num_states:
        raise BadRequest(
            f"must be less than {num_states}, the tokens that have states here; got {start}",
            param="kv_transfer_params.hidden_states_start",
        )
    is_whole = start == 0 and end >= num_states and (wants.include_output_tokens or max_tokens <= 1)
    if is_whole:
        return PositionsKind.ALL, None
    return PositionsKind.WINDOW, range(start, min(end, num_states))


def _sampling(asked: GenerationRequest) -> Sampling:
    """Without a seed every request draws its own; with one, equal requests draw the same."""
    seed = int.from_bytes(os.urandom(8), "little") if asked.seed is None else asked.seed % (1 << 64)
    return Sampling(
        temperature=1.0 if asked.temperature is None else asked.temperature,
        top_p=1.0 if asked.top_p is None else asked.top_p,
        seed=seed,
        stream=0,
    )
