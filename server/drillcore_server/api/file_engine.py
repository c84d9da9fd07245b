"""The engine's thread over a sink of files."""

from __future__ import annotations

import asyncio

import torch

from drillcore_server.api.sample_target import Discarded, SampleFile, SampleTarget
from drillcore_server.api.settings import ServeSettings
from drillcore_server.connector.file_sink import FileSink
from drillcore_server.connector.list_sink import ExtractedSample
from drillcore_server.engine.capture_plan import CapturePlan
from drillcore_server.engine.config import EngineConfig
from drillcore_server.engine.engine import Engine
from drillcore_server.engine.engine_thread import EngineThread
from drillcore_server.engine.offline import state_shape
from drillcore_server.engine.request import Request
from drillcore_server.models.decoder import Decoder


class FileEngine(EngineThread[SampleFile]):
    """Each request's states go to the target that was submitted with it."""

    def __init__(
        self,
        decoder: Decoder,
        plan: CapturePlan,
        config: EngineConfig,
        settings: ServeSettings,
        *,
        store_dtype: torch.dtype | None = None,
    ) -> None:
        """See `Engine`."""
        self.sink: FileSink[SampleFile] = FileSink(
            state_shape(decoder, plan, store_dtype),
            self._write,
            self.settle,
            self.reject,
            num_threads=settings.num_writer_threads,
            max_held_bytes=settings.max_held_bytes,
        )
        self._targets: dict[int, SampleTarget] = {}
        super().__init__(Engine(decoder, plan, config, self.sink, store_dtype=store_dtype))

    async def __aexit__(self, *raised: object) -> None:
        """Stops the engine, then the writers once everything is written."""
        await super().__aexit__(*raised)
        await asyncio.to_thread(self.sink.close)

    def submit_to(self, request: Request, target: SampleTarget) -> asyncio.Future[SampleFile]:
        """See `submit`; done when the file is published."""
        future = self._accept(request)
        self._targets[request.request_id] = target
        future.add_done_callback(lambda _: self._targets.pop(request.request_id, None))
        self._begin(request)
        return future

    def _write(self, sample: ExtractedSample) -> SampleFile:
        target = self._targets.get(sample.end.row)
        if target is None:
            raise Discarded
        return target.write(sample)
