"""The engine: scheduler, KV cache manager, input batch, model runner, hidden-state drafter.

`Engine` serves a lazy source of requests into a sink (an extraction job); `AsyncEngine` serves asyncio users of this
process; `extract` is one call for a list of prompts.
"""

from drillcore_server.engine.async_engine import AsyncEngine
from drillcore_server.engine.caches import hidden_block_bytes, kv_block_bytes
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.engine import Engine
from drillcore_server.engine.errors import (
    EngineError,
    EngineStalled,
    EngineStopped,
    RequestAborted,
    RequestRefused,
    RequestTooLarge,
    SampleQuarantined,
)
from drillcore_server.engine.offline import extract, state_shape
from drillcore_server.engine.request import Request, Sampling

__all__ = [
    "AsyncEngine",
    "CapturePlan",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineStalled",
    "EngineStopped",
    "Request",
    "RequestAborted",
    "RequestRefused",
    "RequestTooLarge",
    "SampleQuarantined",
    "Sampling",
    "extract",
    "hidden_block_bytes",
    "kv_block_bytes",
    "state_shape",
]
