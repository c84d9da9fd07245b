"""Answers in OpenAI's form, with vLLM's additions: token ids, and where the states are."""

from __future__ import annotations

from typing import Any

from drillcore_server.api.batch import Batch
from drillcore_server.api.extraction import Extraction, Model


def transfer_params(extraction: Extraction, model: Model) -> dict[str, Any]:
    """Where the states of one prompt are, and what they are."""
    assert extraction.file is not None, "a response is made when its files are published"
    return {
        "hidden_states_path": extraction.target.path,
        "handle": extraction.target.place.handle,
        "layer_ids": model.layer_ids,
        "final_norm": model.final_norm,
        "num_tokens": extraction.file.num_states,
        "hidden_states_start": extraction.first_state,
    }


def usage(batch: Batch) -> dict[str, int]:
    """Token counts of a request."""
    prompt, generated = batch.num_prompt_tokens, batch.num_generated_tokens
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


class ResponseForm:
    """What is the same in every part of one answer."""

    def __init__(self, model: Model, request_id: str, created_s: int, *, kind: str, with_token_ids: bool) -> None:
        self._model = model
        self._head = {"id": request_id, "object": kind, "created": created_s, "model": model.id}
        self.with_token_ids = with_token_ids
        """Whether ids are told."""

    def completion(self, batch: Batch) -> dict[str, Any]:
        """A whole completion."""
        choices = [{**self._choice(index, e), "text": e.text} for index, e in enumerate(batch.extractions)]
        return self._whole(batch, choices)

    def chat(self, batch: Batch) -> dict[str, Any]:
        """A whole chat completion."""
        extraction = batch.extractions[0]
        choice = self._choice(0, extraction)
        choice["message"] = {"role": "assistant", "content": extraction.text}
        answer = self._whole(batch, [choice])
        if self.with_token_ids:
            answer["prompt_token_ids"] = choice["prompt_token_ids"]
        return answer

    def part(self, choices: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """An event of a stream."""
        return {**self._head, "choices": choices, **fields}

    def last_choice(self, index: int, extraction: Extraction) -> dict[str, Any]:
        """What ends one choice of a stream, but for its text."""
        return {
            "index": index,
            "logprobs": None,
            "finish_reason": extraction.finish_reason,
            "stop_reason": extraction.stop_reason,
            "kv_transfer_params": transfer_params(extraction, self._model),
        }

    def prompt_ids(self, extraction: Extraction) -> dict[str, Any]:
        """The prompt's ids, if they were asked for."""
        return {"prompt_token_ids": extraction.prompt.tolist()} if self.with_token_ids else {}

    def token_ids(self, ids: list[int]) -> dict[str, Any]:
        """Generated ids, if they were asked for."""
        return {"token_ids": ids} if self.with_token_ids else {}

    def _whole(self, batch: Batch, choices: list[dict[str, Any]]) -> dict[str, Any]:
        params = choices[0]["kv_transfer_params"]
        return {**self._head, "choices": choices, "usage": usage(batch), "kv_transfer_params": params}

    def _choice(self, index: int, extraction: Extraction) -> dict[str, Any]:
        assert extraction.file is not None, "a response is made when its files are published"
        ids = extraction.file.generated_ids.tolist() if self.with_token_ids else []
        return self.last_choice(index, extraction) | self.prompt_ids(extraction) | self.token_ids(ids)
