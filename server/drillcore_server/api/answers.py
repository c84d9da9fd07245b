"""Errors as OpenAI error objects, whatever raised them."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from drillcore_server.api.errors import ApiError, BadRequest, InternalError, MethodNotAllowed, NotFound

logger = logging.getLogger(__name__)

JSON: Final = "application/json"
CLIENT_LEFT: Final = 499
"""nginx's code, for our own metrics: nobody reads it."""


class ErrorObject(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    """The field of the request that is wrong."""
    code: str | None


class ErrorBody(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorObject


def json_answer(content: Any) -> Response:
    """A success."""
    return Response(to_json(content), media_type=JSON)


def error_object(error: ApiError) -> dict[str, Any]:
    """The body of one of our errors."""
    return {"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}}


def error_answer(error: ApiError) -> Response:
    """The answer for one of our errors."""
    headers: dict[str, str] = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    return Response(to_json(error_object(error)), error.status, headers, JSON)


def install_error_handlers(app: FastAPI) -> None:
    """Makes every answer that is not a success an error object."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _router_error)
    app.add_exception_handler(ClientDisconnect, _client_left)
    app.add_exception_handler(Exception, _internal)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_answer(error)


async def _router_error(request: Request, error: Exception) -> Response:
    """What the router itself refuses."""
    assert isinstance(error, HTTPException)
    method, path = request.method, request.url.path[:200]
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            return error_answer(NotFound(f"there is no route {method} {path}"))
        case HTTPStatus.METHOD_NOT_ALLOWED:
            answer = error_answer(MethodNotAllowed(f"{path} has no method {method}"))
            answer.headers.update(error.headers or {})
            return answer
    return error_answer(BadRequest(str(error.detail)))


async def _client_left(request: Request, error: Exception) -> Response:
    """The client left before its request was read."""
    return Response(status_code=CLIENT_LEFT)


async def _internal(request: Request, error: Exception) -> Response:
    """Tells the log, not the caller."""
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_answer(InternalError("an error in the server; its log says which"))
