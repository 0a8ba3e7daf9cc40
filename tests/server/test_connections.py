"""Excess connections: how they are refused, what they may still request, and when they are aborted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bertsmith import Model
from bertsmith.app.server.connections import EXTRA, ConnectionLimit
from bertsmith.app.server.prometheus import Metrics
from server import asgi
from server.asgi import Client

JSON = {"content-type": "application/json"}


class Transport(asyncio.Transport):
    """A connection without a client."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def connect(limit: ConnectionLimit) -> tuple[asyncio.Protocol, Transport, bool]:
    connection, transport = asyncio.Protocol(), Transport()
    return connection, transport, limit.add(connection, transport)


@pytest.mark.parametrize(("limit", "room"), [(1, 1), (2, 1), (4, 2), (512, 256)])
def test_the_first_are_served_some_are_refused_and_the_oldest_of_these_is_aborted(limit: int, room: int) -> None:
    metrics = Metrics()
    connections = ConnectionLimit(limit, metrics)
    result = [connect(connections) for _ in range(limit + room + 3)]
    assert [is_served for _, _, is_served in result] == [True] * limit + [False] * (room + 3)
    assert [transport.is_aborted for _, transport, _ in result] == [False] * limit + [True] * 3 + [False] * room
    text = metrics.text().decode()
    assert f"bertsmith_connections {float(limit + room)}" in text
    assert 'bertsmith_refused_connections_total{how="aborted"} 3.0' in text


def test_a_closed_connection_makes_room() -> None:
    metrics = Metrics()
    limit = ConnectionLimit(2, metrics)
    first, _, second, third = (connect(limit)[0] for _ in range(4))
    limit.remove(second)
    assert not connect(limit)[2], "two are served"
    limit.remove(first)
    limit.remove(first)
    assert connect(limit)[2]
    assert not connect(limit)[2]
    limit.remove(third)  # was aborted
    assert "bertsmith_connections 3.0" in metrics.text().decode()


def serve(models: dict[str, Model], script: Callable[[Client], Awaitable[Any]], *key: str) -> None:
    """Runs a script with a client on an excess connection."""
    limits = {"read_seconds": 0.3, "max_body": 1000, "max_connections": 1234}
    asgi.serve(models, script, *key, state={EXTRA: True}, **limits)


def test_an_excess_connection_is_refused_in_the_common_format(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        for reply in (await client.post("/fill", {"texts": ["the [MASK]"]}), await client.get("/absent")):
            assert (reply.status, reply.json["error"]["type"]) == (503, "overloaded_error")
            assert reply.error == "the limit of 1,234 connections is reached; try again in 5 s"
            assert (reply.headers["retry-after"], reply.headers["connection"]) == ("5", "close")
            assert "content-security-policy" in reply.headers
        counted = (await client.get("/metrics")).body.decode()
        assert 'bertsmith_requests_total{route="/fill",status="503"} 1.0' in counted
        assert 'bertsmith_requests_total{route="other",status="503"} 1.0' in counted
        assert 'bertsmith_refused_connections_total{how="refused"} 2.0' in counted
        assert "bertsmith_tokens_total{" not in counted, "no model was asked"

    serve(models, script)


def test_monitoring_is_answered_at_any_number_of_connections(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        for path, status in (("/health", 200), ("/ready", 200), ("/metrics", 401), ("/models", 503)):
            reply = await client.get(path)
            assert (reply.status, reply.headers["connection"]) == (status, "close")

    serve(models, script, "0123456789abcdef")


def test_a_body_is_read_before_it_is_refused_so_that_the_refusal_is_read(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        assert (await client.send("POST", "/fill", [b"x" * 900] * 5, JSON)).status == 503
        assert client.unread == []
        assert (await client.send("POST", "/fill", [b"x" * 900] * 50, JSON)).status == 503
        assert len(client.unread) == 50 - 9, "not without end"
        assert (await client.send("POST", "/fill", [b"x"], {**JSON, "expect": "100-continue"})).status == 503
        assert client.unread == [b"x"], "nobody asked for it"

    serve(models, script)


def test_a_body_that_never_ends_is_refused_in_time(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        # The last chunk is not the end of the body, but nothing follows.
        assert (await client.send("POST", "/fill", [b"x"], JSON, ends=False)).status == 503

    serve(models, script)
