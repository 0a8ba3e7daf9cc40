"""The names that a server answers to: its own by default, so that no web page can reach it under a name of its own."""

import socket

import pytest

from bertsmith import Model
from bertsmith.app.server.host_header import AllowedHosts, hosts_of
from bertsmith.base.core.errors import ConfigError
from server.asgi import Client, serve

KEY = "0123456789abcdef0123"
LOCAL = ["localhost", "LOCALHOST:8000", "localhost.", "127.0.0.1", "127.0.0.1:8000", "127.9.9.9", "[::1]", "[::1]:80"]
FOREIGN = ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:8000", "", ":80", "a b"]
FOREIGN += ["localhost:80:90", "[localhost", "[::1", "::1", "user@localhost", "localhost,evil.example", "localhost/"]


@pytest.mark.parametrize("bound", ["127.0.0.1", "localhost", "::1"])
def test_a_local_server_answers_to_loopback_names_only(bound: str) -> None:
    allowed = hosts_of(bound)
    assert [name for name in LOCAL if not allowed.allows(name)] == []
    more = [*FOREIGN, socket.gethostname(), "192.168.1.5", "8.8.8.8"]
    assert [name for name in more if allowed.allows(name)] == []


def test_a_server_for_other_machines_answers_to_its_addresses_and_name() -> None:
    allowed = hosts_of("0.0.0.0")
    assert [
        name for name in [*LOCAL, socket.gethostname(), "192.168.1.5:8000", "[fe80::1]"] if not allowed.allows(name)
    ] == []
    assert [name for name in FOREIGN if allowed.allows(name)] == []
    assert hosts_of("models.example").allows("models.example:80")


def test_more_names_can_be_allowed() -> None:
    allowed = hosts_of("127.0.0.1", ["Models.example.org", "192.168.1.5"])
    assert allowed.allows("models.example.org:443")
    assert allowed.allows("192.168.1.5")
    assert not allowed.allows("example.org")
    assert all(map(hosts_of("127.0.0.1", ["*"]).allows, FOREIGN))
    for wrong in ("http://a", "a:80", "a b", "", "*.example.org"):
        with pytest.raises(ConfigError, match=r"expected a host name or an address without a port, or \*"):
            hosts_of("127.0.0.1", [wrong])


def test_a_foreign_name_is_refused_on_every_route_and_before_the_key(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        for path in ("/", "/health", "/models", "/page/app.js", "/absent"):
            reply = await client.get(path, {"host": "evil.example"})
            assert (reply.status, reply.json["error"]["type"]) == (421, "invalid_request_error")
            assert reply.error == (
                "expected a host name of this server; found 'evil.example'; allow it with --allow-host"
            )
        assert (await client.post("/fill", {"texts": ["[MASK]"]}, {"host": "evil.example"})).status == 421
        assert (await client.get("/health", {"host": "localhost:8000"})).status == 200
        assert (await client.get("/health")).status == 200, "a client of HTTP/1.0 sends none"

    serve(models, script, KEY)


def test_any_name_can_be_answered(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        assert (await client.get("/health", {"host": "anything.example"})).status == 200

    serve(models, script, None, AllowedHosts(["*"]))


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (f"Bearer {KEY}", 200),
        (f"bearer {KEY}", 200),
        (f"BEARER  {KEY} ", 200),
        (f"Basic {KEY}", 401),
        (f"Bearer{KEY}", 401),
        (f"bearer {KEY.upper()}", 401),
        ("bearer", 401),
        (KEY, 401),
    ],
)
def test_the_scheme_of_the_key_may_be_in_any_case_but_not_the_key(
    models: dict[str, Model], said: str, status: int
) -> None:
    async def script(client: Client) -> None:
        assert (await client.get("/models", {"authorization": said})).status == status

    serve(models, script, KEY)


@pytest.mark.parametrize(
    "path", ["/", "/health", "/ready", "/models", "/v1/models", "/metrics", "/docs", "/docs.css", "/openapi.json"]
)
def test_head_gets_the_headers_of_get_without_the_body(models: dict[str, Model], path: str) -> None:
    async def script(client: Client) -> None:
        full, head = await client.get(path), await client.send("HEAD", path)
        assert (head.status, head.body) == (full.status, b"")
        for name in ("content-type", "x-content-type-options", *(["content-length"] if path != "/metrics" else ())):
            assert head.headers[name] == full.headers[name]

    serve(models, script)


def test_head_of_a_route_for_bodies_is_refused_like_get(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        head = await client.send("HEAD", "/fill")
        assert (head.status, head.headers["allow"], head.body) == (405, "POST", b"")
        assert (await client.send("HEAD", "/absent")).status == 404
        assert (await client.send("DELETE", "/models")).headers["allow"] == "GET, HEAD"

    serve(models, script)
