"""The engine for asyncio users of this process: each request's sample comes back as a tensor."""

from __future__ import annotations

import torch

from drillcore_server.connector.list_sink import ExtractedSample, InProcessSink
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.engine import Engine
from drillcore_server.engine.engine_thread import EngineThread
from drillcore_server.engine.offline import state_shape
from drillcore_server.models.decoder import Decoder


class AsyncEngine(EngineThread[ExtractedSample]):
    """See `EngineThread`."""

    def __init__(
        self,
        decoder: Decoder,
        plan: CapturePlan,
        config: EngineConfig,
        *,
        store_dtype: torch.dtype | None = None,
    ) -> None:
        """See `Engine`."""
        sink = InProcessSink(state_shape(decoder, plan, store_dtype), self._take_sample, self.reject)
        super().__init__(Engine(decoder, plan, config, sink, store_dtype=store_dtype))

    def _take_sample(self, sample: ExtractedSample) -> None:
        self.settle(sample.end.row, sample)
