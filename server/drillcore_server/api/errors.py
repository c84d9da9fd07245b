"""What a request may end with, as OpenAI's API names it.

ApiError                      `{"error": {message, type, param, code}}`
├── BadRequest           400  a field is wrong; `param` names it
├── Unauthorized         401  no API key, or another one
├── NotFound             404  no such model, file or route
├── MethodNotAllowed     405  the route has other methods
├── RequestTimeout       408  the body did not come
├── TooLarge             413  the body is longer than this server reads
├── UnsupportedMedia     415  the body is no JSON
├── Unprocessable        422  the model gives no usable states for this prompt
├── QueueFull            429  later
├── InternalError        500  our own fault; the log says which
├── Unavailable          503  the server is ending, or its engine has failed
└── StorageFull          507  the storage has no room
"""

from __future__ import annotations

from typing import ClassVar


class ApiError(Exception):
    """Base of everything that becomes an OpenAI error object."""

    status: ClassVar[int]
    type: ClassVar[str]
    code: ClassVar[str | None] = None

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        """The field of the request that is wrong; None: none of them."""
        self.retry_after_s = retry_after_s
        """When to try again; None: unknown, or never."""


class BadRequest(ApiError):
    """A field is wrong."""

    status = 400
    type = "invalid_request_error"


class ContextLengthExceeded(BadRequest):
    """More tokens than a request may have."""

    code = "context_length_exceeded"


class Unauthorized(ApiError):
    """The message never says why: it would help a guesser."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class NotFound(ApiError):
    """There is no such thing."""

    status = 404
    type = "not_found_error"


class ModelNotFound(NotFound):
    """Another model than the one that is served."""

    code = "model_not_found"


class MethodNotAllowed(ApiError):
    """The route has other methods."""

    status = 405
    type = "invalid_request_error"


class RequestTimeout(ApiError):
    """The body did not come in time."""

    status = 408
    type = "invalid_request_error"


class TooLarge(ApiError):
    """The body is longer than this server reads."""

    status = 413
    type = "invalid_request_error"


class UnsupportedMedia(ApiError):
    """The body is declared to be something else than JSON."""

    status = 415
    type = "invalid_request_error"


class Unprocessable(ApiError):
    """The request is right, and the model gives no usable states for it."""

    status = 422
    type = "invalid_request_error"
    code = "states_not_usable"


class QueueFull(ApiError):
    """More at once than this server takes."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"


class InternalError(ApiError):
    """Our own fault."""

    status = 500
    type = "server_error"


class Unavailable(ApiError):
    """The server is ending, or its engine has failed."""

    status = 503
    type = "server_error"
    code = "unavailable"


class StorageFull(ApiError):
    """The storage has no room for the file."""

    status = 507
    type = "server_error"
    code = "storage_full"
