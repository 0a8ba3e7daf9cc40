"""The request queue: what is batched, what is dropped, and that nothing is lost or waits forever."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from server import asgi
from server.asgi import Client, Reply, sample, until
from server.models import FakeModel


def serve(model: FakeModel, script: Callable[[Client], Awaitable[Any]], **limits: Any) -> Any:
    """The result of a script with a client, on a server with one model."""
    return asgi.serve({"fake": model.as_model()}, script, **limits)


def embed(client: Client, *texts: str) -> Awaitable[Reply]:
    return client.post("/v1/embeddings", {"input": list(texts)})


def vectors(reply: Reply) -> list[float]:
    assert reply.status == 200, reply
    return [item["embedding"][0] for item in reply.json["data"]]


async def begun(model: FakeModel) -> None:
    """Waits until the model has started on a batch."""
    await until(lambda: model.began.acquire(blocking=False))


async def behind_a_closed_door(
    client: Client, model: FakeModel, requests: list[tuple[str, ...]]
) -> list["asyncio.Future[Reply]"]:
    """Requests that all arrived while the model was busy with the first of them."""
    model.let.clear()
    asked = [asyncio.ensure_future(embed(client, *requests[0]))]
    await begun(model)
    asked += [asyncio.ensure_future(embed(client, *texts)) for texts in requests[1:]]
    await until(lambda: waiting(client) >= sum(map(len, requests[1:])))
    return asked


def waiting(client: Client) -> float:
    return sample(client, 'bertsmith_waiting_texts{model="fake"}')


def aborted(client: Client) -> float:
    return sample(client, 'bertsmith_dropped_requests_total{model="fake",reason="aborted"}')


def test_an_idle_model_starts_at_once_and_later_requests_are_batched() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        asked = await behind_a_closed_door(client, model, [("a",), ("bb",), ("ccc", "d"), ("ee",)])
        model.let.set()
        assert [vectors(await future) for future in asked] == [[1], [2], [3, 1], [2]]

    serve(model, script)
    assert model.calls == [["a"], ["bb", "ccc", "d", "ee"]]


def test_a_batch_is_as_large_as_the_budget_of_tokens() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        asked = await behind_a_closed_door(client, model, [("a",), ("bbb", "ccc"), ("ddd",), ("e" * 20,), ("f",)])
        model.let.set()
        assert [vectors(await future) for future in asked] == [[1], [3, 3], [3], [20], [1]]

    serve(model, script, batch_tokens=7)
    # A row is never longer than the 8 tokens that the model reads, so a text of 20 counts 8: more than the budget.
    assert model.calls == [["a"], ["bbb", "ccc"], ["ddd"], ["e" * 20], ["f"]]


def test_a_large_request_does_not_delay_small_ones() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        large = tuple("x" * 4 for _ in range(6))
        asked = await behind_a_closed_door(client, model, [("a",), large, ("bb",), ("cc",)])
        model.let.set()
        assert [vectors(await future) for future in asked] == [[1], [4] * 6, [2], [2]]

    serve(model, script, batch_tokens=8)
    assert model.calls == [["a"], ["xxxx"] * 2, ["bb", "cc", "xxxx"], ["xxxx"] * 2, ["xxxx"]]


def test_too_many_waiting_texts_get_429_with_retry_after() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        asked = await behind_a_closed_door(client, model, [("a",), ("b", "c"), ("d",)])
        refused = await embed(client, "e", "f")
        assert refused.status == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert "try again in" in refused.error
        fits = asyncio.ensure_future(embed(client, "g"))
        model.let.set()
        assert [vectors(await future) for future in (*asked, fits)] == [[1], [1, 1], [1], [1]]
        assert vectors(await embed(client, *"abcdefg")) == [1] * 7  # where nothing waits, one request may be larger

    serve(model, script, max_waiting=4)


def test_abandoned_requests_are_never_computed() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        other = Client(client.app)
        model.let.clear()
        first = asyncio.ensure_future(embed(client, "first"))
        await begun(model)
        lost = asyncio.ensure_future(embed(other, "lost", "lost"))
        kept = asyncio.ensure_future(embed(client, "kept"))
        await until(lambda: waiting(client) == 3)
        other.gone.set()
        await lost
        assert waiting(client) == 1
        model.let.set()
        assert vectors(await first) == [5]
        assert vectors(await kept) == [4]
        assert sample(client, 'bertsmith_dropped_requests_total{model="fake",reason="client_gone"}') == 1

    serve(model, script)
    assert model.calls == [["first"], ["kept"]]


def test_a_client_that_disconnects_drops_the_rest_of_its_texts() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        [asked] = await behind_a_closed_door(client, model, [("xxxx",) * 6])
        client.gone.set()
        assert (await asked).body == b""
        model.let.set()
        assert vectors(await embed(Client(client.app), "y")) == [1]
        assert aborted(client) == 1

    serve(model, script, batch_tokens=8)
    assert model.calls == [["xxxx"] * 2, ["y"]]


async def computed_together(
    model: FakeModel, asked: list[tuple[Client, tuple[str, ...]]]
) -> list["asyncio.Future[Reply]"]:
    """Requests that the model has started on as one batch; it continues when allowed."""
    client = asked[0][0]
    model.let.clear()
    model.one_by_one = True
    before = asyncio.ensure_future(embed(client, "before"))
    await begun(model)
    replies = [asyncio.ensure_future(embed(future, *texts)) for future, texts in asked]
    await until(lambda: waiting(client) == sum(len(texts) for _, texts in asked))
    model.let.set()
    await before
    await begun(model)
    model.one_by_one = False
    return replies


def test_computation_stops_when_all_clients_are_gone() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        others = [Client(client.app) for _ in range(2)]
        lost = await computed_together(model, [(other, ("lost", "lost")) for other in others])
        for other in others:
            other.gone.set()
        await asyncio.gather(*lost)
        model.let.set()
        assert vectors(await embed(client, "next")) == [4]
        assert aborted(client) == 2

    serve(model, script)
    assert model.calls == [["before"], ["lost"] * 4, ["next"]]
    assert model.passes == ["before", "next"]


def test_a_batch_continues_while_one_client_waits() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        other = Client(client.app)
        kept, lost = await computed_together(model, [(client, ("kept",)), (other, ("lost",))])
        other.gone.set()
        await lost
        model.let.set()
        assert vectors(await kept) == [4]
        assert aborted(client) == 0, "it was computed all the same"

    serve(model, script)
    assert model.passes == ["before", "kept", "lost"]


def test_after_an_error_only_wanted_requests_are_retried() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        other = Client(client.app)
        wrong, lost = await computed_together(model, [(client, ("wrong",)), (other, ("lost",))])
        other.gone.set()
        await lost
        model.let.set()
        assert (await wrong).status == 422
        assert aborted(client) == 1

    serve(model, script)
    assert model.calls == [["before"], ["wrong", "lost"], ["wrong"]]


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("names", "/tag", {"texts": ["the film " * 5000]}),  # is read in many windows, a few per pass
        (
            "summaries",
            "/predict",
            {"texts": ["the film"], "beam": 64, "min_target_length": 20, "max_target_length": 20},
        ),
    ],
)
def test_a_stopping_server_waits_for_one_pass_and_not_for_a_whole_abandoned_text(
    models: dict[str, Any], name: str, path: str, body: dict[str, Any]
) -> None:
    model, passes, let = models[name], [], threading.Event()

    def wait(*_: Any) -> None:
        passes.append(1)
        assert let.wait(120), "somebody lets the model work"

    async def script(client: Client) -> None:
        asked = asyncio.ensure_future(client.post(path, body))
        await until(lambda: passes)
        client.gone.set()
        assert (await asked).body == b""
        let.set()

    hook = model.hooked[-1].register_forward_pre_hook(wait)
    try:
        asgi.serve({name: model}, script)
    finally:
        hook.remove()
    assert len(passes) == 1


def test_a_timeout_says_whether_the_model_had_started() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        model.let.clear()
        begins = asyncio.ensure_future(embed(client, "begins"))
        await begun(model)
        waits = asyncio.ensure_future(embed(client, "waits"))
        slow, late = await begins, await waits
        assert (slow.status, late.status) == (504, 503)
        assert "fewer or shorter texts" in slow.error
        assert "try again later" in late.error
        assert late.headers["retry-after"]
        model.let.set()
        assert vectors(await embed(client, "next")) == [4]

    serve(model, script, request_seconds=0.3)
    assert model.calls == [["begins"], ["next"]]


def test_an_error_in_one_request_affects_only_that_one() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        asked = await behind_a_closed_door(client, model, [("a",), ("bb",), ("ok", "wrong"), ("cc",)])
        model.let.set()
        first, second, third, fourth = [await future for future in asked]
        assert [vectors(future) for future in (first, second, fourth)] == [[1], [2], [2]]
        assert third.status == 422
        assert third.error == "expected a right text; found a wrong one; write another"

    serve(model, script)


def test_an_error_in_a_later_part_of_a_request_says_where_counting_starts() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        reply = await embed(client, "xxxx", "xxxx", "yyy", "wrong")
        assert reply.status == 422
        assert reply.error.startswith("counted from number 3 of the request: expected a right text")
        assert waiting(client) == 0

    serve(model, script, batch_tokens=8)


def test_an_internal_error_is_a_500_in_the_common_format_and_the_server_continues() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        asked = await behind_a_closed_door(client, model, [("a",), ("broken",), ("bb",)])
        model.let.set()
        assert vectors(await asked[0]) == [1]
        for future in asked[1:]:  # they were computed together
            with pytest.raises(ZeroDivisionError):  # which the server process writes to its log
                await future
        assert sample(client, 'bertsmith_requests_total{route="/v1/embeddings",status="500"}') == 2
        assert vectors(await embed(client, "next")) == [4]

    serve(model, script)


def test_requests_of_other_options_or_abilities_are_not_mixed(models: dict[str, Any]) -> None:
    gaps = [("/fill", {"texts": ["the [MASK]"], "top": top}) for top in (1, 2, 3, 2)]
    others = [("/v1/embeddings", {"input": ["the"]}), ("/next", {"pairs": [["the", "film"]]})]
    replies = asgi.replies_to({"novels": models["novels"]}, *gaps, *others)
    assert [reply.status for reply in replies] == [200] * 6
    counts = [len(reply.json["predictions"][0]["gaps"][0]) for reply in replies[:4]]
    assert counts == [1, 2, 3, 2]


def test_the_tokens_of_a_request_are_limited() -> None:
    model = FakeModel()

    async def script(client: Client) -> None:
        refused = await embed(client, "x" * 6, "y" * 5)
        assert refused.status == 413
        assert refused.error == "the request has 11 tokens; the limit is 10; split it"
        assert vectors(await embed(client, "x" * 5, "y" * 5)) == [5, 5]

    serve(model, script, max_tokens=10)
    assert model.calls == [["xxxxx", "yyyyy"]]


def test_many_clients_each_get_their_own_answers() -> None:
    model = FakeModel()

    async def one_client(client: Client, number: int) -> None:
        for turn in range(10):
            texts = ["z" * (1 + (number + turn + position) % 7) for position in range(1 + number % 3)]
            assert vectors(await embed(client, *texts)) == [len(text) for text in texts]

    async def script(client: Client) -> None:
        await asyncio.gather(*(one_client(client, number) for number in range(64)))

    serve(model, script, batch_tokens=64)
    assert sum(map(len, model.calls)) == sum(10 * (1 + number % 3) for number in range(64))
    assert len(model.calls) < 640, "requests were merged"
