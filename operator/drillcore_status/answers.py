"""Errors as Kubernetes `Status` objects, whatever raised them."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from drillcore_status.errors import ApiError, BadRequest, NotFound
from drillcore_status.views import Status, StatusCause, StatusDetails

_LOG = logging.getLogger(__name__)

_REASONS = {
    BadRequest.code: BadRequest.reason,
    NotFound.code: NotFound.reason,
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "UnsupportedMediaType",
}
"""Kubernetes' reason for each code that the router itself answers with."""


def install_error_handlers(app: FastAPI) -> None:
    """Makes every answer that is not a success a `Status`."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _router_error)
    app.add_exception_handler(Exception, _internal)


def status_of(error: ApiError) -> Status:
    """One of our errors as a `Status`."""
    wait_s = error.retry_after_s
    details = None if wait_s is None else StatusDetails(retry_after_seconds=wait_s)
    return Status(message=error.message, reason=error.reason, code=error.code, details=details)


def error_response(error: ApiError) -> JSONResponse:
    """The answer for one of our errors."""
    headers: dict[str, str] = {}
    if error.code == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(error.retry_after_s)
    return _response(status_of(error), headers)


async def _api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Names each field and what was expected; never repeats what was sent."""
    assert isinstance(error, RequestValidationError)
    causes = tuple(
        StatusCause(field=".".join(map(str, problem["loc"])), message=str(problem["msg"])) for problem in error.errors()
    )
    message = "; ".join(f"{cause.field}: {cause.message}" for cause in causes)
    code = HTTPStatus.UNPROCESSABLE_ENTITY
    return _response(Status(message=message, reason="Invalid", code=code, details=StatusDetails(causes=causes)))


async def _router_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ApiError):  # raised while the body was read
        return error_response(error.__cause__)
    reason = _REASONS.get(error.status_code, "Unknown")
    status = Status(message=str(error.detail), reason=reason, code=error.status_code)
    return _response(status, dict(error.headers or {}))


async def _internal(request: Request, error: Exception) -> JSONResponse:
    """Tells the log, not the caller."""
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    message = "an error in the job-status API; its log says which"
    return _response(Status(message=message, reason="InternalError", code=HTTPStatus.INTERNAL_SERVER_ERROR))


def _response(status: Status, headers: dict[str, str] | None = None) -> JSONResponse:
    content = status.model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, status_code=status.code, headers=headers)
