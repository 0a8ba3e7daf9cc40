"""The memory of answers: bounded per request before anything is computed, and held until the reply is sent."""

import asyncio
import contextlib
import dataclasses
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertsmith import Model, load
from bertsmith.app.library import attention
from bertsmith.app.server import answer_size, schemas
from bertsmith.app.server.answer_size import _CODE
from bertsmith.app.server.connections import ABORT
from bertsmith.app.server.held import HeldMemory, Lease
from bertsmith.app.server.prometheus import Metrics
from bertsmith.app.server.queue import Work, WorkQueue
from bertsmith.app.server.settings import ServerSettings
from bertsmith.tasks.specs.settings import AnswerSettings, TaskSettings
from bertsmith.text.tokenizers import encoded, fast, vocabulary, wordpiece
from server import asgi
from server.asgi import Client
from server.models import write_task_model
from tasks.task_samples import SPECS


def serve(models: dict[str, Model], script: Callable[[Client], Awaitable[Any]], **limits: Any) -> Any:
    async def watched(client: Client) -> Any:
        outcome = await script(client)
        assert client.app.service.held.count == 0, "nothing stays held"
        return outcome

    return asgi.serve(models, watched, **limits)


def memory_of(value: Any) -> int:
    """The bytes of an object and of what it refers to."""
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(memory_of(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return sys.getsizeof(value) + sum(map(memory_of, value))
    return sys.getsizeof(value) + (memory_of(vars(value)) if hasattr(value, "__dict__") else 0)


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/fill", {"texts": ["[MASK] " * 60] * 50, "top": 20}),
    ("/complete", {"texts": ["the"] * 50, "top": 40, "tokens": 20}),
    ("/complete", {"texts": ["\x01" * 9] * 500, "top": 1}),
    ("/v1/completions", {"prompt": ["a"] * 50}),
    ("/v1/completions", {"prompt": ["a"] * 50, "model": "stories"}),
    ("/perplexity", {"texts": ["a"] * 500}),
    ("/predict", {"texts": ["a"] * 500, "model": "topics"}),
    (
        "/classify",
        {"texts": ["a"] * 500, "labels": ["\x01" * 9, "film", "anna", "\u00e9"], "multi_label": True, "threshold": 0},
    ),
    ("/classify", {"texts": ["a"] * 500, "labels": {"film": "a " * 90, "anna": ""}, "threshold": 1}),
    ("/predict", {"texts": ["\x01." * 9 + " a. " * 300] * 5, "model": "extracts"}),
    ("/predict", {"questions": [{"context": "a", "endings": ["b"] * 50}] * 9}),
    ("/tag", {"texts": ["." * 900] * 3}),
    ("/tag", {"texts": [["\x01"] * 500]}),
    ("/answer", {"questions": [{"question": "a", "context": "\x01 " * 150 + "\u00e9" * 500}] * 3, "n_best": 100}),
    ("/resolve", {"pronouns": [{"text": "a b", "pronoun": [0, 1], "candidates": [[2, 3]]}] * 500}),
    (
        "/resolve",
        {
            "pronouns": [
                {
                    "text": "a " * 30,
                    "pronoun": [0, 1],
                    "candidates": [[n, m] for n in range(2, 40, 2) for m in range(n + 1, 50)],
                }
            ]
            * 3
        },
    ),
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

    def recorded(*arguments: Any) -> Work:
        works.append(put(*arguments))
        return works[-1]

    monkeypatch.setattr(WorkQueue, "put", recorded)
    reply = serve(models, lambda client: client.post(path, body))
    assert reply.status == 200, reply
    (work,) = works
    answers = work.answers[0].weights.nbytes if path == "/attention" else memory_of(list(work.answers))
    assert 2 * len(reply.body) + answers <= work.size.of(reply.json["usage"]["tokens_in"])


@pytest.mark.parametrize("n_best", [1, 100])
@pytest.mark.parametrize("context", ["the man " * 200, "b" * 30 + " the" * 30])
def test_the_bound_covers_a_model_that_keeps_hundreds_of_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_best: int, context: str
) -> None:
    spec = dataclasses.replace(SPECS["answer or none"], settings=TaskSettings(max_length=64, stride=40, n_best=500))
    model = load(write_task_model(tmp_path / "model", spec), device="cpu")
    assert model.max_answers == 500
    body = {"questions": [{"question": "a", "context": context}] * 3, "n_best": n_best}
    test_the_bound_of_a_route_covers_its_large_replies({"model": model}, "/answer", body, monkeypatch)


@pytest.mark.parametrize("texts", [["." * 300] * 3, ["\x01".join("abc") * 60], [["film"] * 200]])
def test_the_bound_covers_a_model_that_takes_every_span_for_an_entity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: list[Any]
) -> None:
    settings = dataclasses.replace(SPECS["nested"].settings, overlap="any", entity_words=4)
    spec = dataclasses.replace(SPECS["nested"], settings=settings, threshold=0.0)
    model = load(write_task_model(tmp_path / "model", spec), device="cpu")
    test_the_bound_of_a_route_covers_its_large_replies({"model": model}, "/tag", {"texts": texts}, monkeypatch)


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

        reply = await Client(Slow()).post("/v1/embeddings", {"input": ["a"] * 2000, "model": "novels"})
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

        slow = Client(Slow(), {ABORT: gone.set})
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

        stored = 0

        @property
        def count(self) -> int:
            stored = self.stored
            with contextlib.suppress(threading.BrokenBarrierError):
                barrier.wait(0.2)
            return stored

        @count.setter
        def count(self, value: int) -> None:
            self.stored = value

    memory = Watched(ServerSettings(max_held=1_000_000), Metrics())
    admitted: list[bool] = []
    threads = [threading.Thread(target=lambda: admitted.append(Lease(memory).try_hold(500_000))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(admitted) == [False, True]
    assert memory.stored == 500_000


def test_the_page_about_serving_tells_the_bounds() -> None:
    """Each row of its table for a BERT-base: the bytes that one more of something takes, and the largest request."""
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8").split("## How large")[1]
    special = SimpleNamespace(mask=answer_size.MASK)
    base: Any = SimpleNamespace(
        width=768,
        labels=("yes", "no"),
        max_answers=TaskSettings().n_best,
        max_entities=(0, 0, False),
        tokenizer=SimpleNamespace(vocabulary=SimpleVocabulary(special)),
        attention_maps=12 * 12,
    )
    records: Any = SimpleNamespace(labels=("kitchen",), details=("a" * 6,) * 50, width=128, numbers=150)
    limits = ServerSettings()
    texts, characters, tokens = limits.max_texts, limits.max_characters, limits.max_tokens

    def more(sizes: Callable[[int], answer_size.AnswerSize]) -> int:
        return sizes(2).fixed - sizes(1).fixed

    def millions(size: answer_size.AnswerSize) -> str:
        return f"{size.of(tokens) / 1e6:.{0 if size.of(tokens) >= 2e6 else 1}f} MB |"

    attention = answer_size.weights(base)
    weights = 12 * 12 * answer_size.MOST_TOKENS**2
    question = [("", "a" * characters)]
    rows = {
        "| `/predict` | labels": (
            f"{millions(answer_size.labels(base, texts))}",
            f"{texts:,} texts of 2 labels",
        ),
        "| `/classify`": (
            f"{more(lambda n: answer_size.of_labels([''] * n, 1)) - 4 * 2} bytes and four times the name",
            f"{texts:,} texts, 20 names of 8 letters: {millions(answer_size.of_labels(['a' * 8] * 20, texts))}",
        ),
        "| `/predict` with": (
            f"{texts:,} endings",
            millions(answer_size.endings([("", ["a" * (characters // texts)] * 2)] * (texts // 2))),
        ),
        "| `/predict` of a model that chooses": (
            f"{answer_size.extracts([]).per_token} bytes per token",
            f"{tokens:,} tokens: {millions(answer_size.extracts(['']))}",
        ),
        "| `/tag`": (f"{answer_size.words(base, []).per_token - 4 * 5} bytes", f"{tokens:,} tokens"),
        "| `/answer`": (
            f"{answer_size.MOST_CANDIDATES}",
            f"{more(lambda n: answer_size.answers(base, [('', '')], n)) - 4 * 2} per candidate shown",
            f"{characters:,} characters, 3 candidates: {millions(answer_size.answers(base, question, 3))}",
        ),
        "| `/resolve`": (
            f"{answer_size.mentions([{'text': '', 'candidates': []}]).fixed - 6 * 2:,} bytes per pronoun",
            f"2 candidates: {millions(answer_size.mentions([{'text': 'a' * characters, 'candidates': [0, 1]}]))}",
        ),
        "| `/fill`": (f"{more(lambda n: answer_size.candidates(base, [answer_size.MASK], n))} bytes per candidate",),
        "| `/next`": (
            f"{more(lambda n: answer_size.echoes((), n))} bytes per pair",
            millions(answer_size.echoes(["a" * characters], texts)),
        ),
        "| `/codes/predict`": (f"{_CODE} bytes and three times",),
        "| `/codes/anomalies`": (f"{_CODE} bytes and three times",),
        "| `/codes/embed`": (f"width 128: {millions(answer_size.vectors_of_subjects(records, [{}] * texts))}",),
        "| `/codes/fill`": (f"{more(lambda n: answer_size.fillings(base, [{'text': answer_size.MASK}], n)):,} bytes",),
        "| `/codes/match`": (f"{texts:,} segments: {millions(answer_size.echoes((), texts))}",),
        "| `/codes/next`": (f"{more(lambda n: answer_size.next_codes(records, 1, n)) - 3 * 8} bytes",),
        "| `/memory/answer`": (
            f"{more(lambda n: answer_size.stories(records, [{'facts': [''] * n}])) - 3 * 2} bytes per fact",
            f"50 facts: {millions(answer_size.stories(records, [{'facts': ['a' * 25] * 50}] * texts))}",
        ),
        "| `/rerank`, ": (
            f"{more(lambda n: answer_size.scores(base, n)) - 4 * 768} bytes per passage, 4 per number of its vector",
            f"{texts - 1:,} passages: {millions(answer_size.scores(base, texts - 1))}",
        ),
        "| `/search`": (
            f"{answer_size.found_texts([ranked_texts(1, 0)]).fixed} bytes per text",
            f"{answer_size.found_texts([ranked_texts(0, 1)]).fixed} per byte",
            f"10 texts of 500 bytes: {millions(answer_size.found_texts([ranked_texts(10, 5000)] * texts))}",
        ),
        "| `/tokenize`": (
            f"{answer_size.pieces([]).per_token} bytes per token",
            f"{tokens:,} tokens: {millions(answer_size.pieces([''] * texts))}",
        ),
        "| `/attention`": (
            f"{attention.per_token // (weights // answer_size.MOST_TOKENS)} bytes per weight",
            f"{weights / 1e6:.1f} million weights: {millions(attention)}",
        ),
        "| `/v1/embeddings`, ": (
            f"{more(lambda n: answer_size.vectors(base, n, packed=False)) // 768} bytes per number",
            f"{more(lambda n: answer_size.vectors(base, n, packed=True)) // 768} in base64",
            f"{texts:,} texts: {millions(answer_size.vectors(base, texts, packed=False))}",
        ),
    }
    for begin, told in rows.items():
        (line,) = (line for line in page.splitlines() if line.startswith(begin))
        for part in told:
            assert part in line


def ranked_texts(places: int, size: int) -> Any:
    """The answer to a query with texts of an index of that many bytes in all."""
    return SimpleNamespace(ranking=SimpleNamespace(places=[range(places)]), size=size)


class SimpleVocabulary:
    """As many pieces as the vocabulary of BERT-base."""

    def __init__(self, special: Any) -> None:
        self.special = special

    def __len__(self) -> int:
        return 30_522


def test_the_bounds_use_the_constants_of_the_library() -> None:
    assert [field.name for field in dataclasses.fields(AnswerSettings)] == list(schemas.ANSWER_SETTINGS)
    assert answer_size.MOST_TOKENS == attention.MOST_TOKENS
    assert answer_size.MASK == vocabulary.MASK


def test_a_lease_that_is_over_holds_nothing_more() -> None:
    memory = HeldMemory(ServerSettings(max_held=1000), Metrics())
    lease = Lease(memory)
    assert lease.try_hold(900), "small answers always are"
    lease.add(5)
    assert memory.count == 905
    lease.end()
    assert memory.count == 0
    lease.add(7)
    assert lease.try_hold(7)
    assert memory.count == 0


def test_words_that_a_tokenizer_keeps_are_bounded_but_not_held(models: dict[str, Model]) -> None:
    tokenizer = models["novels"].tokenizer
    for cache in (tokenizer._memo, tokenizer._offsets._memo):
        assert cache._most_bytes == encoded.MOST_BYTES

    async def script(client: Client) -> None:
        for number in range(20):
            texts = [" ".join(f"x{number}y{n}" for n in range(40))]
            for route in ("/fill", "/tokenize"):
                assert (await client.post(route, {"texts": ["[MASK] " + texts[0]]})).status == 200
            assert client.app.service.held.count == 0

    serve(models, script)
    assert 0 < tokenizer._memo.bytes <= encoded.MOST_BYTES


def test_the_page_and_the_help_say_what_is_not_held() -> None:
    field = next(field for field in dataclasses.fields(ServerSettings) if field.name == "max_held")
    assert "words that their tokenizers keep, are not counted" in str(field.metadata)
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    each = f"up to {encoded.MOST_BYTES >> 20} MiB of words and {encoded.MOST_BYTES >> 20} MiB of words with their"
    assert each in " ".join(page.split())
    together = f"once {wordpiece._SMALL:,} characters or {wordpiece._SMALL // 20:,} texts are encoded together"
    assert f"{together}, {fast._MOST_BYTES >> 20} MiB more" in " ".join(page.split())
