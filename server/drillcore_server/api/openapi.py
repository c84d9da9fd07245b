"""What the OpenAPI document says of routes that read their bodies themselves."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from drillcore_server.api.answers import JSON, ErrorBody
from drillcore_server.api.protocol import ChatRequest, CompletionRequest

_REF: Final = "#/components/schemas/{model}"
_REQUESTS: Final = (CompletionRequest, ChatRequest)
_ERRORS: Final = {
    400: "A field is wrong: `param` names it.",
    401: "No API key, or another one.",
    404: "No such model or file.",
    408: "The body did not come in time.",
    413: "The body is too long.",
    415: "The body is not declared to be JSON.",
    422: "The model gives no usable states for this prompt.",
    429: "The queue is full: try again after `Retry-After` seconds.",
    500: "An error in the server.",
    503: "The server is ending.",
    507: "The storage is full.",
}


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route that reads a `model`."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}


def answers(success: type[BaseModel], *, streams: bool = False) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route."""
    found: dict[int | str, dict[str, Any]] = {200: {"model": success, "description": "As asked."}}
    if streams:
        found[200]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    return found | errors()


def errors() -> dict[int | str, dict[str, Any]]:
    """What any route may answer instead."""
    return {code: {"model": ErrorBody, "description": text} for code, text in _ERRORS.items()}


def install_document(app: FastAPI) -> None:
    """Has the document hold the requests too."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            _, schemas = models_json_schema([(model, "validation") for model in _REQUESTS], ref_template=_REF)
            made["components"]["schemas"].update(schemas["$defs"])
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
