"""Errors of the engine.

EngineError
├── RequestRefused         a request that was not queued, such as one whose id is in use
│   └── RequestTooLarge    it can never be served with this configuration; the message has the numbers
├── RequestAborted         what awaiting an aborted request raises
├── SampleQuarantined      what awaiting a request with broken states raises
├── EngineStalled          requests are left, and nothing can move: a fault of ours
└── EngineStopped          the engine's thread has ended
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of the engine's errors."""


class RequestRefused(EngineError):
    """The request was not queued; the message says why."""


class RequestTooLarge(RequestRefused):
    """The request can never be served with this configuration."""


class RequestAborted(EngineError):
    """The request was aborted before its sample was complete."""


class SampleQuarantined(EngineError):
    """The request's states are not usable: non-finite, or zero where they cannot be."""


class EngineStalled(EngineError):
    """Requests are left, but no step, copy or sink can bring them further."""


class EngineStopped(EngineError):
    """The engine takes no requests any more."""
