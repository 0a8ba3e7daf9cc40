"""The documents for browsers: the web page, served from memory, the OpenAPI document, and its HTML rendering."""

import html
import json
import mimetypes
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from bertsmith.app.server.gate import ICON_PATHS
from bertsmith.app.server.refusal import json_response, refused
from bertsmith.base.storage.files import digest_file

PAGE = Path(__file__).parent / "page"
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
_STYLE_SECONDS = 3600
_REFERENCE = "#/components/schemas/"
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 52rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
code, pre { font: 0.9em/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 1rem 0.25rem 0; }
"""


class PageFile(NamedTuple):
    """A file of the web page."""

    content: bytes
    kind: str
    tag: str


def read_page(folder: Path = PAGE) -> dict[str, PageFile]:
    """The files below a folder, by relative path; empty if the folder does not exist."""
    result = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            text = kind.startswith("text/") or kind.endswith(("json", "xml"))
            name = path.relative_to(folder).as_posix()
            result[name] = PageFile(
                path.read_bytes(), f"{kind}; charset=utf-8" if text else kind, f'"{digest_file(path)[:32]}"'
            )
    return result


def page_router(folder: Path = PAGE) -> APIRouter:
    """GET /, /page/... and the icon, served from memory; no other file on the disk can be requested."""
    files = read_page(folder)
    router = APIRouter(include_in_schema=False)

    def reply(request: Request, name: str) -> Response:
        file = files.get(name)
        if file is None:
            return refused(404, f"the page has no file {name[:80]!r}")
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

    @router.get(ICON_PATHS[0])
    @router.get(ICON_PATHS[1])
    @router.get(ICON_PATHS[2])
    async def icon(request: Request) -> Response:
        return reply(request, "icon.svg")

    return router


def document_router(
    app: FastAPI,
    bodies: Sequence[type[BaseModel]],
    *,
    has_key: bool,
    open_paths: Collection[str],
    changing: Collection[str] = (),
) -> APIRouter:
    """GET /openapi.json and /docs: the requests and replies of all routes.

    Args:
        app: the application with its routes.
        bodies: the schemas of bodies that routes read themselves.
        has_key: whether requests must send an API key.
        open_paths: the paths that need no key.
        changing: the paths that always need one.
    """
    router = APIRouter(include_in_schema=False)

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = with_bodies(app, bodies, open_paths if has_key else None, changing)
        return app.openapi_schema

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return json_response(document())

    @router.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(page_of(document(), has_key))

    @router.get("/docs.css")
    async def style() -> Response:
        return Response(STYLE, headers={"cache-control": f"max-age={_STYLE_SECONDS}"}, media_type="text/css")

    return router


def with_bodies(
    app: FastAPI,
    bodies: Sequence[type[BaseModel]],
    open_paths: Collection[str] | None,
    changing: Collection[str] = (),
) -> dict[str, Any]:
    """The OpenAPI document of an application, with the schemas of bodies that its routes read themselves.

    Args:
        open_paths: the paths that need no key while all others do; None if no key is needed.
        changing: the paths that need a key in any case.
    """
    document = get_openapi(
        title=app.title, version=app.version, summary=app.summary, description=app.description, routes=app.routes
    )
    _, schemas = models_json_schema([(body, "validation") for body in bodies], ref_template=_REFERENCE + "{model}")
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas["$defs"])
    if open_paths is not None or changing:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path in document["paths"].keys() & set(changing):
        for operation in document["paths"][path].values():
            operation["security"] = [{"key": []}]
    if open_paths is not None:
        document["security"] = [{"key": []}]
        for path in document["paths"].keys() & set(open_paths):
            for operation in document["paths"][path].values():
                operation["security"] = []
    return document


def page_of(document: Mapping[str, Any], has_key: bool) -> str:
    """An HTML page of the routes in an OpenAPI document, each with its body, its reply and an example."""
    schemas = document["components"]["schemas"]
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{html.escape(document['info']['title'])}: API</title><link rel='stylesheet' href='docs.css'></head>",
        f"<body><h1>{html.escape(document['info']['title'])}</h1><p>{html.escape(document['info']['description'])}</p>",
        "<p>Machine-readable: <a href='openapi.json'>openapi.json</a>. <a href='./'>Try it</a>.</p>",
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts += _route(method.upper(), path, operation, schemas, has_key)
    return "\n".join([*parts, "</body></html>\n"])


def _route(
    method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any], has_key: bool
) -> Iterable[str]:
    yield f"<h2><code>{method} {html.escape(path)}</code></h2><p>{html.escape(operation.get('summary', ''))}</p>"
    body = operation.get("requestBody")
    if body is not None:
        schema = _resolved(body["content"]["application/json"]["schema"], schemas)
        yield from _fields("Body", schema, schemas)
        command = f"curl -s http://HOST:PORT{path}" + (
            " -H 'authorization: Bearer KEY'" if has_key or operation.get("security") else ""
        )
        example = json.dumps(EXAMPLES.get(path, {}), ensure_ascii=False)
        command += f" \\\n  -H 'content-type: application/json' \\\n  -d '{example}'"
        yield f"<pre>{html.escape(command)}</pre>"
    content = operation["responses"].get("200", {}).get("content", {})
    if "schema" in content.get("application/json", {}):
        reply = content["application/json"]["schema"]
        for choice in reply.get("anyOf", [reply]):
            if "properties" in (schema := _resolved(choice, schemas)):
                yield from _fields("Reply", schema, schemas)
            else:
                yield f"<p>Reply: <code>{html.escape(_kind(choice, schemas))}</code></p>"


def _fields(title: str, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterable[str]:
    required = schema.get("required", ())
    yield f"<p>{title}: {html.escape(schema.get('description', ''))}</p><table>"
    for name, field in schema.get("properties", {}).items():
        optional = "" if name in required or title == "Reply" else " (optional)"
        description = field.get("description", "")
        if field.get("default") is not None:
            description = f"{description}; default: {json.dumps(field['default'])}".removeprefix("; ")
        cells = (f"<code>{html.escape(name)}</code>{optional}", f"<code>{html.escape(_kind(field, schemas))}</code>")
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in (*cells, html.escape(description))) + "</tr>"
    yield "</table>"


def _kind(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int = 0) -> str:
    """A schema in short form, such as [[string, string]]."""
    schema = _resolved(schema, schemas)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_kind(choice, schemas, depth) for choice in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " | ".join(map(json.dumps, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        inner = schema.get("prefixItems") or [schema.get("items", {})]
        return f"[{', '.join(_kind(item, schemas, depth) for item in inner)}]"
    if "properties" in schema and depth < 3:
        fields = (f"{name}: {_kind(value, schemas, depth + 1)}" for name, value in schema["properties"].items())
        return f"{{{', '.join(fields)}}}"
    return str(schema.get("type", "any"))


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return schema if reference is None else schemas[reference.removeprefix(_REFERENCE)]


EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "/v1/embeddings": {"model": "MODEL", "input": ["a text", "another"]},
    "/predict": {"texts": ["Buy these pills", "The minutes of the meeting"]},
    "/classify": {"texts": ["I was charged twice"], "labels": {"billing": "invoices and payments", "hardware": ""}},
    "/tag": {"texts": ["Jim Henson lived in New York"]},
    "/answer": {"questions": [{"question": "Who lived there?", "context": "Jim Henson lived in New York."}]},
    "/resolve": {"pronouns": [{"text": "Anna saw that she had won.", "pronoun": [14, 17], "candidates": [[0, 4]]}]},
    "/fill": {"texts": ["The man went to the [MASK]."]},
    "/complete": {"texts": ["The man went to"], "tokens": 5},
    "/v1/completions": {"prompt": "The man went to", "max_tokens": 5},
    "/perplexity": {"texts": ["The man went to the store."]},
    "/next": {"pairs": [["The man went to the store.", "He bought milk."]]},
    "/rerank": {"query": "who was Jim Henson", "passages": ["a puppeteer", "a river"]},
    "/search": {"query": "a broken gate", "top": 3},
    "/index/add": {"rows": [{"id": "a1", "text": "The gate was mended."}]},
    "/index/remove": {"ids": ["a1"]},
    "/embed": {"inputs": ["a text", "another"], "normalize": True},
    "/": {"inputs": "a text"},
    "/v1/rerank": {"query": "who was Jim Henson", "documents": ["a puppeteer", {"text": "a river"}], "top_n": 1},
    "/v2/rerank": {"query": "who was Jim Henson", "documents": ["a puppeteer", "a river"], "top_n": 1},
    "/tokenize": {"texts": ["unaffable"]},
    "/codes/predict": {"subjects": [{"visits": [{"codes": {"diagnosis": ["flu"]}}]}], "top": 3},
    "/codes/anomalies": {"subjects": [{"visits": [{"codes": {"diagnosis": ["flu"], "medication": ["tea"]}}]}]},
    "/codes/embed": {"subjects": [{"subject": "p1", "visits": [{"codes": {"diagnosis": ["flu"]}}]}]},
    "/codes/fill": {"segments": [{"text": "[MASK] the [MASK]", "codes": ["0.1", "0.2"]}]},
    "/codes/match": {"text": "cut the onion", "segments": [{"codes": ["0.1"]}, {"codes": ["0.2"]}]},
    "/codes/next": {"segments": [{"codes": ["0.1", "0.2"]}], "top": 3},
    "/memory/answer": {"stories": [{"facts": ["Mary went to the kitchen."], "question": "Where is Mary?"}]},
    "/attention": {"text": "The man went home.", "pair": "He slept."},
}
