"""What can go wrong with the test cluster.

TestClusterError
├── MissingPiece     a binary or a right that this machine lacks: skip, or fail under CI
├── ProcessDied      a process of the cluster ended by itself
└── ApiError         the API server refused a request
"""

from __future__ import annotations

from typing import Any


class TestClusterError(Exception):
    """Base of everything that this package raises."""

    __test__ = False


class MissingPiece(TestClusterError):
    """This machine cannot run the test; the message says what is missing and how to get it."""


class ProcessDied(TestClusterError):
    """A process of the test cluster ended by itself; the message ends with the tail of its log."""


class ApiError(TestClusterError):
    """An answer of the API server that is not a success."""

    def __init__(self, method: str, path: str, status: dict[str, Any], code: int) -> None:
        self.code = code
        """HTTP status code."""
        self.reason: str = status.get("reason", "")
        """Machine-readable reason of the Status object, such as Invalid or Forbidden."""
        self.message: str = status.get("message", "")
        super().__init__(f"{method} {path}: {code} {self.reason}: {self.message}")
