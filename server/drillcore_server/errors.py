"""Errors of the server.

ShardError      ends a shard with a reason of `drillcore_spec.reasons` and its exit code
"""

from __future__ import annotations

from drillcore_spec.reasons import Reason


class ShardError(Exception):
    """A cause from outside (job, data, model, volume, cluster) that ends this shard.

    The message says what was expected, what was got, in which object, and what to do. It is shown to the
    user as it is, without a traceback.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    @property
    def exit_code(self) -> int:
        """The exit code of the server for this error."""
        return self.reason.exit_code
