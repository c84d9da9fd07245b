"""`/v1/hidden_states/{handle}`: files over HTTP, for clients that do not see the storage."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from drillcore_server.api.answers import json_answer
from drillcore_server.api.openapi import answers, errors
from drillcore_server.api.services import services_of
from drillcore_server.api.storage import Storage, no_such_file
from drillcore_server.api.views import Deleted
from drillcore_server.api.watched_answer import WatchedAnswer

MEDIA_TYPE: Final = "application/octet-stream"
_PART_BYTES: Final = 1 << 20

router = APIRouter(tags=["hidden states"])
_BYTES: Final[dict[str, Any]] = {
    "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    "description": "The file.",
}


@router.get("/v1/hidden_states/{handle}", summary="Read a file", responses={**errors(), 200: _BYTES})
async def read_hidden_states(handle: str, request: Request) -> Response:
    """The safetensors file, as it stands on the storage."""
    services = services_of(request)
    fd, num_bytes = await asyncio.to_thread(_open, services.extractor.storage, handle)

    async def close() -> None:
        os.close(fd)

    headers = {"Content-Length": str(num_bytes), "Cache-Control": "no-store"}
    return WatchedAnswer(_parts(fd, num_bytes), media_type=MEDIA_TYPE, headers=headers, on_end=close)


@router.delete("/v1/hidden_states/{handle}", summary="Delete a file", responses=answers(Deleted))
async def delete_hidden_states(handle: str, request: Request) -> Response:
    """Deletes the file; whoever has it open can read on."""
    services = services_of(request)
    storage = services.extractor.storage
    if not await asyncio.to_thread(lambda: storage.remove(storage.place_of(handle))):
        raise no_such_file(handle)
    return json_answer(Deleted(id=handle))


def _open(storage: Storage, handle: str) -> tuple[int, int]:
    fd = storage.open_file(storage.place_of(handle))
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise no_such_file(handle)
    return fd, status.st_size


async def _parts(fd: int, num_bytes: int) -> AsyncIterator[bytes]:
    for start in range(0, num_bytes, _PART_BYTES):
        yield await asyncio.to_thread(os.pread, fd, min(_PART_BYTES, num_bytes - start), start)
