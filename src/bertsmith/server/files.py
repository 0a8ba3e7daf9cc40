"""The files of the page, held in memory: nothing else of the disk can be asked for."""

import mimetypes
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from bertsmith.files import digest_file
from bertsmith.server.refusal import refused

PAGE = Path(__file__).parent / "page"
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".woff2": "font/woff2"}


class PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    kind: str
    tag: str


def read_page(folder: Path = PAGE) -> dict[str, PageFile]:
    """The files below a folder by their path in it; none where there is no folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            text = kind.startswith("text/") or kind.endswith(("json", "xml"))
            name = path.relative_to(folder).as_posix()
            found[name] = PageFile(
                path.read_bytes(), f"{kind}; charset=utf-8" if text else kind, f'"{digest_file(path)[:32]}"'
            )
    return found


def page_router(folder: Path = PAGE) -> APIRouter:
    """GET / and /page/..., which are not part of the OpenAPI document."""
    files = read_page(folder)
    router = APIRouter(include_in_schema=False)

    def reply(request: Request, name: str) -> Response:
        file = files.get(name)
        if file is None:
            return refused(404, f"there is no file {name[:80]!r} of the page")
        headers = {"etag": file.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.kind)

    @router.get("/")
    async def page(request: Request) -> Response:
        return reply(request, "index.html")

    @router.get("/page/{name:path}")
    async def file(request: Request, name: str) -> Response:
        return reply(request, name)

    return router
