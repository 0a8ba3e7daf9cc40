"""The memory of answers: bounded per request before anything is computed, and held until the reply is sent."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bertsmith import Model
from bertsmith.library import attention
from bertsmith.server import answer_size
from bertsmith.server.app import create_app
from bertsmith.server.connections import ABORT
from bertsmith.server.held import HeldMemory, Lease
from bertsmith.server.prometheus import Metrics
from bertsmith.server.queue import Work, WorkQueue
from bertsmith.server.settings import ServerSettings
from bertsmith.text import vocabulary
from server.asgi import Client, running


def serve(models: dict[str, Model], script: Callable[[Client], Awaitable[Any]], **limits: Any) -> Any:
    async def run() -> Any:
        async with asyncio.timeout(60), running(create_app(models, ServerSettings(**limits))) as client:
            found = await script(client)
            assert client.app.service.held.count == 0, "nothing stays held"
            return found

    return asyncio.run(run())


def memory_of(value: Any) -> int:
    """The bytes of an object and of what it refers to."""
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(memory_of(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return sys.getsizeof(value) + sum(map(memory_of, value))
    return sys.getsizeof(value) + (memory_of(vars(value)) if hasattr(value, "__dict__") else 0)


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/fill", {"texts": ["[MASK] " * 60] * 50, "top": 20}),
    ("/predict", {"texts": ["a"] * 500, "model": "topics"}),
    ("/predict", {"questions": [{"context": "a", "endings": ["b"] * 50}] * 9}),
    ("/tag", {"texts": ["." * 900] * 3}),
    ("/tag", {"texts": [["\x01"] * 500]}),
    ("/answer", {"questions": [{"question": "a", "context": "\x01 " * 150 + "\u00e9" * 500}] * 3, "n_best": 100}),
    ("/next", {"pairs": [["\x01", "\x01"]] * 500}),
    ("/rerank", {"query": "a", "passages": ["a"] * 500}),
    ("/tokenize", {"texts": ["." * 3000]}),
    ("/attention", {"text": "the " * 60}),
    ("/v1/embeddings", {"input": ["a"] * 500}),
    ("/v1/embeddings", {"input": ["a"] * 500, "encoding_format": "base64"}),
]


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_the_bound_of_a_route_covers_its_large_replies(
    models: dict[str, Model], path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    works: list[Work] = []
    put = WorkQueue.put

    def recorded(*given: Any) -> Work:
        works.append(put(*given))
        return works[-1]

    monkeypatch.setattr(WorkQueue, "put", recorded)
    reply = serve(models, lambda client: client.post(path, body))
    assert reply.status == 200, reply
    (work,) = works
    answers = work.answers[0].weights.nbytes if path == "/attention" else memory_of(list(work.answers))
    assert 2 * len(reply.body) + answers <= work.size.of(reply.json["usage"]["tokens_in"])


def test_answers_that_would_take_too_much_memory_are_refused_before_they_are_computed(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        many = {"texts": ["[MASK] " * 60] * 40, "top": 1000}
        reply = await client.post("/fill", many)
        assert reply.status == 413
        assert "the answers could take" in reply.error
        assert "the limit is 5,000,000; lower top, or split it" in reply.error
        assert (await client.post("/fill", {**many, "top": 1})).status == 200
        vectors = await client.post("/v1/embeddings", {"input": ["a"] * 3000, "model": "novels"})
        assert vectors.error.endswith("; split it, or ask for the encoding_format base64")
        counted = (await client.get("/metrics")).body.decode()
        assert 'bertsmith_texts_total{ability="fill",model="novels"} 40.0' in counted

    serve(models, script, max_held=10_000_000, max_texts=3000)


def test_the_answers_of_open_requests_are_limited_together_and_small_ones_are_always_answered(
    models: dict[str, Model],
) -> None:
    async def script(client: Client) -> None:
        other = Lease(client.app.service.held)
        other.add(4_000_000)
        large = {"texts": ["[MASK] " * 60] * 20, "top": 5}
        reply = await client.post("/fill", large)
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        assert reply.error == "too many large replies are in progress; try again in 1 s"
        assert (await client.post("/fill", {"texts": ["[MASK]"]})).status == 200
        other.end()
        assert (await client.post("/fill", large)).status == 200

    serve(models, script, max_held=8_000_000)


def test_a_reply_counts_as_held_until_the_client_has_it(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        held = []
        service = client.app.service
        app = client.app

        class Slow:
            service = app.service

            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                async def slowly(message: Any) -> None:
                    if message["type"] == "http.response.body":
                        held.append((len(message["body"]), service.held.count))
                    await send(message)

                await app(scope, receive, slowly)

        reply = await Client(Slow()).post("/v1/embeddings", {"input": ["a"] * 2000, "model": "novels"})  # type: ignore[arg-type]
        assert reply.status == 200
        assert len(held) == -(-len(reply.body) // 262_144) > 1, "in pieces"
        assert max(size for size, _ in held) == 262_144
        assert all(count > 2 * len(reply.body) for _, count in held)

    serve(models, script)


def test_a_client_that_reads_too_slowly_is_disconnected_and_its_memory_released(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        sent, gone = [], asyncio.Event()

        class Slow:
            service = client.app.service

            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                async def slowly(message: Any) -> None:
                    if message["type"] == "http.response.body":
                        assert not gone.is_set(), "nothing is sent to a connection that was aborted"
                        sent.append(len(message["body"]))
                        await asyncio.sleep(0.05)
                    await send(message)

                async def receive_or_gone() -> Any:
                    if len(sent):
                        await gone.wait()
                        return {"type": "http.disconnect"}
                    return await receive()

                await client.app(scope, receive_or_gone, slowly)
                assert gone.is_set(), "the reply was not finished"
                raise ConnectionAbortedError

        slow = Client(Slow(), {ABORT: gone.set})  # type: ignore[arg-type]
        with pytest.raises(ConnectionAbortedError):
            await slow.post("/v1/embeddings", {"input": ["a"] * 2000, "model": "novels"})
        assert client.app.service.held.count == 0

    serve(models, script, write_seconds=0.1, write_rate=2**40)


def test_a_client_that_reads_at_the_minimum_rate_gets_its_reply(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        reply = await client.post("/v1/embeddings", {"input": ["a"] * 2000, "model": "novels"})
        assert len(reply.json["data"]) == 2000

    serve(models, script, write_seconds=0.001, write_rate=1000)


def test_two_threads_cannot_both_hold_the_last_bytes() -> None:
    barrier = threading.Barrier(2)

    class Watched(HeldMemory):
        """Readers of the count wait for each other for a moment."""

        found = 0

        @property
        def count(self) -> int:
            found = self.found
            with contextlib.suppress(threading.BrokenBarrierError):
                barrier.wait(0.2)
            return found

        @count.setter
        def count(self, value: int) -> None:
            self.found = value

    memory = Watched(ServerSettings(max_held=1_000_000), Metrics())
    admitted: list[bool] = []
    threads = [threading.Thread(target=lambda: admitted.append(Lease(memory).try_hold(500_000))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(admitted) == [False, True]
    assert memory.found == 500_000


def test_the_bounds_use_the_constants_of_the_library() -> None:
    assert answer_size.MOST_TOKENS == attention.MOST_TOKENS
    assert answer_size.MASK == vocabulary.MASK


def test_a_lease_that_is_over_holds_nothing_more() -> None:
    memory = HeldMemory(ServerSettings(max_held=1000), Metrics())
    lease = Lease(memory)
    assert lease.try_hold(900), "small answers always are"
    assert memory.count == 900
    lease.release()
    assert memory.count == 0
    lease.add(5)
    lease.end()
    lease.add(7)
    assert lease.try_hold(7)
    assert memory.count == 0
