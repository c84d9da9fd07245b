"""`/v1/models`, `/health` and `/metrics`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from drillcore_server.api.admission import RESTART_S
from drillcore_server.api.answers import json_answer
from drillcore_server.api.errors import Unavailable
from drillcore_server.api.metrics import CONTENT_TYPE
from drillcore_server.api.openapi import answers
from drillcore_server.api.services import services_of
from drillcore_server.api.views import Health, ModelCard, ModelList

router = APIRouter(tags=["process"])


@router.get("/v1/models", summary="The model that is served", responses=answers(ModelList))
async def list_models(request: Request) -> Response:
    """One model."""
    services = services_of(request)
    model = services.model
    card = ModelCard(
        id=model.id,
        created=services.started_s,
        max_model_len=model.max_tokens,
        layer_ids=list(model.layer_ids),
        final_norm=model.final_norm,
    )
    return json_answer(ModelList(data=[card]))


@router.get("/health", summary="Whether requests are served", responses=answers(Health))
async def health(request: Request) -> Response:
    """200 while they are; 503 when the server is ending or its engine has failed."""
    services = services_of(request)
    if not services.extractor.engine.is_alive:
        raise Unavailable("the engine does not run")
    if services.admission.is_draining:
        raise Unavailable("the server is ending", retry_after_s=RESTART_S)
    return json_answer(Health())


@router.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
async def read_metrics(request: Request) -> Response:
    """Counters and gauges of this server; none holds anything that a client typed."""
    services = services_of(request)
    return Response(services.metrics.exposition(), media_type=CONTENT_TYPE)
