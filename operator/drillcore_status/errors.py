"""What a request may end with, as the Kubernetes API names it.

ApiError
├── BadRequest        400: the request is not of the form that is expected
├── Unauthorized      401: no token, or one that is not good here
├── Forbidden         403: the token's owner may not do this
├── NotFound          404: there is no such job
├── TooLarge          413: the body is longer than any message of ours
├── TooManyRequests   429: later
└── Unavailable       503: the cluster cannot be asked now; the message says what is missing
"""

from __future__ import annotations

from typing import ClassVar


class ApiError(Exception):
    """Base of everything that becomes a Kubernetes `Status` with code and reason."""

    code: ClassVar[int]
    reason: ClassVar[str]

    def __init__(self, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        """When to try again; None: unknown, or never."""


class BadRequest(ApiError):
    """The request is not of the form that is expected."""

    code = 400
    reason = "BadRequest"


class Unauthorized(ApiError):
    """There is no token, or it is not good here. The message never says why: it would help a guesser."""

    code = 401
    reason = "Unauthorized"


class Forbidden(ApiError):
    """The token's owner may not do this; the message is the same whether the job exists or not."""

    code = 403
    reason = "Forbidden"


class NotFound(ApiError):
    """There is no such job. Said only to whoever may know it."""

    code = 404
    reason = "NotFound"


class TooLarge(ApiError):
    """The body is longer than any message of ours."""

    code = 413
    reason = "RequestEntityTooLarge"


class TooManyRequests(ApiError):
    """More at once than this process serves."""

    code = 429
    reason = "TooManyRequests"


class Unavailable(ApiError):
    """The cluster cannot be asked now, or does not let us ask; the message says what to do."""

    code = 503
    reason = "ServiceUnavailable"
