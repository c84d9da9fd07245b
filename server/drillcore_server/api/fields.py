"""Kinds of fields that requests have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

TokenIds = NDArray[np.int64]
Prompts = tuple[str | TokenIds, ...]

MAX_STOPS = 16
_MAX_ID = 2**63 - 1
_IDS_SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        _IDS_SCHEMA,
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "array", "items": _IDS_SCHEMA, "minItems": 1},
    ]
}


class StrictModel(BaseModel):
    """A part of a request: types as they are, no field that is not known, finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)


@dataclass(frozen=True)
class NotOffered:
    """Marks a field of other servers that may be given only where it changes nothing, with one of some values."""

    neutral: tuple[object, ...]

    def __init__(self, *neutral: object) -> None:
        object.__setattr__(self, "neutral", neutral)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Any value is read; only a neutral one passes."""
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The neutral values."""
        return {"enum": list(self.neutral)}

    def _check(self, value: object) -> object:
        if not any(type(value) is type(one) and value == one for one in self.neutral):
            raise PydanticCustomError("not_offered", "is not offered by this server: leave it out")
        return value


def read_prompts(value: object) -> Prompts:
    """The prompts of a field that takes a text, token ids, or a list of either."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise _prompt_error("must be a string, a list of token ids, or a list of either, and not empty")
    if isinstance(value[0], int):
        return (_token_ids(value),)
    if all(isinstance(item, str) for item in value):
        return tuple(value)
    if all(isinstance(item, list) for item in value):
        return tuple(map(_token_ids, value))
    raise _prompt_error("must have items of one kind: token ids, strings, or lists of token ids")


def _token_ids(ids: list[object]) -> TokenIds:
    """Ids [S], S >= 1: which of them the model has is for the engine to say."""
    if set(map(type, ids)) != {int}:
        raise _prompt_error("must have at least one token id in each list, and only integers")
    try:
        token_ids = np.array(ids, dtype=np.int64)
    except OverflowError:
        raise _prompt_error("must have token ids of 64 bits") from None
    if token_ids.min() < 0:
        raise _prompt_error("must have token ids of 0 or more")
    return token_ids


def _prompt_error(message: str) -> PydanticCustomError:
    return PydanticCustomError("prompt", message)


def _stops(value: object) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MAX_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise PydanticCustomError("stop", f"must be a string or a list of at most {MAX_STOPS}, none of them empty")
    return tuple(stops)


PromptField = Annotated[Any, PlainValidator(read_prompts), WithJsonSchema(_PROMPT_SCHEMA)]
StopField = Annotated[
    Any,
    PlainValidator(_stops),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "null"},
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": MAX_STOPS},
            ]
        }
    ),
]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
TokenId = Annotated[int, Field(ge=0, le=_MAX_ID)]
