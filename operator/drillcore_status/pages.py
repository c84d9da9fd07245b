"""The status page and the API's reference: files of this package, served as they are.

No build step and no address outside: the files are plain modules that the browser loads from here.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Response

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def pages_router() -> APIRouter:
    """`/`, `/docs` and the files that they need; nothing else of the file system can be named."""
    router = APIRouter(include_in_schema=False)
    for entry in files("drillcore_status").joinpath("page").iterdir():
        extension = entry.name.rpartition(".")[2]
        if extension in _TYPES:
            _serve(router, _path(entry.name), entry.read_bytes(), _TYPES[extension])
    return router


def _path(file_name: str) -> str:
    return {"index.html": "/", "docs.html": "/docs"}.get(file_name, f"/page/{file_name}")


def _serve(router: APIRouter, path: str, content: bytes, media_type: str) -> None:
    async def read() -> Response:
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    router.add_api_route(path, read, methods=["GET", "HEAD"])
