"""What can go wrong between the operator and its surroundings.

OperatorError
├── SettingsError     the process was started with settings that it cannot use
├── WatchEnded        a watch of kopf ended, or never began
├── KopfStuck         kopf does not end
└── ClusterError      an API call that did not succeed
    ├── NotFound      404
    ├── Conflict      409: somebody else was faster; read again
    ├── Refused       400, 403, 422: the same request will be refused again
    ├── Unreadable    an object that this version does not understand; others are served on
    ├── Throttled     429: try again after `retry_after_s`
    └── Unavailable   no answer, 5xx, or 401 while credentials rotate: try again later
"""

from __future__ import annotations


class OperatorError(Exception):
    """Base of everything that this package raises."""


class SettingsError(OperatorError):
    """Settings that the operator cannot start with; the message names the variable and what it may be."""


class WatchEnded(OperatorError):
    """A watch of kopf ended, or never began: it is started anew."""


class KopfStuck(OperatorError):
    """kopf does not end: the process does, and the kubelet starts it anew."""


class ClusterError(OperatorError):
    """An API call that did not succeed; the class says what to do about it."""


class NotFound(ClusterError):
    """There is no such object."""


class Conflict(ClusterError):
    """The object is there already, or is another one than expected."""


class Refused(ClusterError):
    """The API server will not do it."""

    def __init__(self, message: str, *, is_invalid: bool) -> None:
        super().__init__(message)
        self.is_invalid = is_invalid
        """The object is malformed, as opposed to not allowed by a right, a quota, a policy or a webhook."""


class Unreadable(ClusterError):
    """An object that this version does not understand, such as a status of a later one."""


class Throttled(ClusterError):
    """The API server asks for a pause."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(ClusterError):
    """The API server did not answer, or answered that it cannot now."""
