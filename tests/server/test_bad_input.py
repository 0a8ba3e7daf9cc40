"""Any invalid request gets a one-sentence refusal, and the server continues."""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from bertsmith import Model
from bertsmith.app.server.index_routes import CHANGING, ROUTES
from server import asgi
from server.asgi import Client, Reply

JSON = {"content-type": "application/json"}
DEEP = b"[" * 100_000
LIMITS = {"max_texts": 8, "max_characters": 2000, "max_body": 20_000, "read_seconds": 0.3, "token_ids": True}


def serve(models: dict[str, Model], script: Callable[[Client], Awaitable[Any]], **limits: Any) -> Any:
    async def continues(client: Client) -> Any:
        outcome = await script(client)
        assert (await client.post("/fill", {"texts": ["the [MASK]"]})).status == 200, "the server continues"
        return outcome

    return asgi.serve(models, continues, **{**LIMITS, **limits})


BODIES: list[tuple[str, bytes | dict[str, Any], int, str]] = [
    ("/fill", b"", 400, "expected a body of JSON in UTF-8"),
    ("/fill", b"{", 400, "expected a body of JSON in UTF-8"),
    ("/fill", b'{"texts": ["a"]} and more', 400, "trailing characters"),
    ("/fill", b'{"texts": ["\xff\xfe"]}', 400, "expected a body of JSON in UTF-8"),
    ("/fill", b'{"texts": ["\\ud800"]}', 400, "hex escape"),
    ("/fill", b'{"texts": ["a\nb"]}', 400, "control character"),
    ("/fill", b'{"texts": ' + DEEP[:900], 400, "recursion limit"),
    ("/fill", b'{"texts": ' + b'{"a":' * 400, 400, "recursion limit"),
    ("/fill", b'{"texts": ' + b'{"a":' * 1100, 413, "expected a body of at most 1,032 lists, objects and keys;"),
    ("/fill", b"[]", 422, "expected an object; found an empty list; GET /docs shows the form"),
    ("/fill", b"null", 422, "expected an object; found null; GET /docs shows the form"),
    ("/fill", b"NaN", 422, "expected an object; found another number; GET /docs shows the form"),
    ("/fill", {}, 422, "expected the key 'texts'; found none; GET /docs shows the form"),
    ("/fill", {"texts": None}, 422, "texts: expected a list; found null; GET /docs shows the form"),
    ("/fill", {"texts": "one"}, 422, "texts: expected a list; found a text; GET /docs shows the form"),
    ("/fill", {"texts": []}, 422, "texts: expected a list of at least 1; found an empty list"),
    ("/fill", {"texts": [1]}, 422, "texts.0: expected a text; found 1; GET /docs shows the form"),
    ("/fill", {"texts": ["the"]}, 422, "write [MASK], in capitals, where a word is missing"),
    ("/fill", {"texts": ["[MASK] " * 70]}, 422, "expected at most 62 pieces, the most that the model reads, in text 1"),
    ("/fill", {"texts": ["[MASK]"], "top": 0}, 422, "top: expected at least 1; found 0; GET /docs shows the form"),
    ("/fill", {"texts": ["[MASK]"], "top": 10**400}, 422, "top: expected at most 1000; found another number"),
    ("/fill", {"texts": ["[MASK]"], "top": float("nan")}, 422, "top: expected a whole number; found another number"),
    ("/fill", {"texts": ["[MASK]"], "top": float("inf")}, 422, "top: expected a whole number; found another number"),
    ("/fill", {"texts": ["[MASK]"], "top": 1e308}, 422, "top: expected a whole number; found another number"),
    ("/fill", {"texts": ["[MASK]"], "top": True}, 422, "top: expected a whole number; found true"),
    ("/fill", {"texts": ["[MASK]"], "top": "3"}, 422, "top: expected a whole number; found a text"),
    ("/fill", {"texts": ["[MASK]"], "tops": 3}, 422, "expected a known key; found 'tops'; did you mean 'top'?"),
    ("/fill", {"texts": ["[MASK]"], "a b": 3}, 422, "found 'a b'; use one of 'model', 'texts', 'top'"),
    ("/fill", {str(number): 1 for number in range(64)}, 422, "found more than 64 wrong or missing keys"),
    ("/fill", {"texts": ["[MASK]"] * 9}, 413, "the request has 9 texts; the limit is 8; split it"),
    ("/fill", {"texts": ["x" * 2001]}, 413, "the request has 2,001 characters; the limit is 2,000; split it"),
    ("/fill", {"texts": ["x" * 21_000]}, 413, "the body is larger than 20,000 bytes; split the request"),
    ("/fill", {"texts": ["[MASK]"], "model": "absent"}, 404, "no model 'absent' is served here; there are 'reviews'"),
    (
        "/fill",
        {"texts": ["[MASK]"], "model": "reviews"},
        400,
        "model 'reviews' does not answer such a request; it answers /predict with texts, /v1/embeddings",
    ),
    ("/tag", {"texts": ["a"], "model": "novels"}, 400, "'novels' does not answer such a request; it answers /fill, "),
    ("/tag", {"texts": [[]]}, 422, "texts.0: expected a list of at least 1; found an empty list"),
    ("/tag", {"texts": [["a", 1]]}, 422, "texts.0.1: expected a text; found 1"),
    ("/predict", {}, 422, "expected either 'texts' or 'questions'; found neither; send one of them"),
    ("/predict", {"texts": ["a"], "questions": []}, 422, "questions: expected a list of at least 1; found"),
    ("/predict", {"texts": [["a", "b", "c"]]}, 422, "expected a text or a pair of texts as text 1; found ['a', 'b'"),
    ("/predict", {"texts": [["a", ""]], "model": "extracts"}, 422, "in text 1; found an empty one as number 2"),
    ("/predict", {"texts": [["a", 3]], "model": "extracts"}, 422, "texts.0.1: expected a text; found 3"),
    ("/predict", {"texts": [1]}, 422, "texts.0: expected a text or a list; found 1"),
    ("/predict", {"texts": [["a", "b"]], "model": "reviews"}, 422, "text 1; found two; give one text each"),
    ("/predict", {"texts": ["a"], "model": "pairs"}, 422, "text 1; found one text; give pairs"),
    (
        "/predict",
        {"texts": ["a"], "model": "endings"},
        400,
        "model 'endings' does not answer such a request; it answers /predict with questions, /v1/embeddings",
    ),
    ("/predict", {"texts": ["a"], "model": "reviews", "beam": 2}, 422, "answers have the setting beam; found one of"),
    ("/predict", {"texts": ["a"], "beam": 65}, 422, "beam: expected at most 64; found 65"),
    ("/predict", {"questions": [{"context": "a", "endings": ["b", "c"]}], "beam": 2}, 422, "'texts' with 'beam'"),
    ("/predict", {"questions": [{"context": "a", "endings": ["b"]}]}, 422, "at least 2; found a list of 1"),
    ("/predict", {"questions": [{"context": "a", "endings": ["b"] * 9}]}, 413, "9 texts"),
    ("/classify", {"texts": ["a"]}, 422, "expected the key 'labels'; found none"),
    ("/classify", {"texts": ["a"], "labels": []}, 422, "labels: expected a list of at least 1"),
    ("/classify", {"texts": ["a"], "labels": {}}, 422, "expected names of labels; found none"),
    ("/classify", {"texts": ["a"], "labels": "a,b"}, 422, "labels: expected a list or an object; found a text"),
    ("/classify", {"texts": ["a"], "labels": ["a", " "]}, 422, "expected names of labels; found a blank one"),
    ("/classify", {"texts": ["a"], "labels": ["a", "a "]}, 422, "expected different labels; found 'a' twice"),
    ("/classify", {"texts": ["a"], "labels": ["a"]}, 422, "'a' alone; name another, or add \"multi_label\": true"),
    ("/classify", {"texts": ["a"], "labels": ["a", "none of these"]}, 422, "leave it out, and give `threshold`"),
    ("/classify", {"texts": ["a"], "labels": ["a", "b"], "threshold": 2}, 422, "threshold: expected at most 1"),
    ("/classify", {"texts": ["a"], "labels": ["a", "b"], "template": ["x"]}, 422, "a template with {} for the label"),
    ("/classify", {"texts": ["a"], "labels": ["a", "b"], "template": ["{}"]}, 422, "found 'novels', an encoder"),
    ("/classify", {"texts": ["a", " "], "labels": ["a", "b"]}, 422, "expected a text in text 2; found an empty one"),
    ("/classify", {"texts": ["a"], "labels": ["a", "b"], "model": "reviews"}, 400,
     "model 'reviews' does not answer such a request; it answers /predict with texts, /v1/emb"),
    ("/classify", {"texts": ["a"] * 3, "labels": ["a", "b", "c"], "model": "entails"}, 413, "the request has 9 texts"),
    ("/classify", {"texts": ["a"] * 3, "labels": {c: c for c in "abc"}}, 413, "the request has 9 texts"),
    ("/classify", {"texts": ["a"], "labels": {"b": "c" * 1999, "c": ""}}, 413, "the request has 2,002 ch"),
    ("/answer", {"questions": [3]}, 422, "questions.0: expected an object; found 3"),
    ("/answer", {"questions": [{"question": "a"}]}, 422, "questions.0: expected the key 'context'; found none"),
    ("/answer", {"questions": [{"question": "a", "context": "a", "b": 1}]}, 422, "0: expected a known key; found 'b'"),
    ("/answer", {"questions": [{"question": "", "context": "a"}], "model": "answers"}, 422, "expected a question"),
    ("/answer", {"questions": [{"question": "a", "context": ""}], "model": "answers"}, 422, "expected a context"),
    ("/resolve", {"pronouns": []}, 422, "pronouns: expected a list of at least 1"),
    ("/resolve", {"pronouns": [{"text": "a b", "pronoun": [0]}]}, 422, "pronouns.0"),
    ("/resolve", {"pronouns": [{"text": "a b", "pronoun": [0, 9], "candidates": [[2, 3]]}]}, 422,
     "the pronoun inside the 3 characters of the text in pronoun 1; found characters 0 to 9"),
    ("/resolve", {"pronouns": [{"text": "a b", "pronoun": [0, 2], "candidates": [[1, 3]]}]}, 422, "which overlaps"),
    ("/next", {"pairs": [["a"]]}, 422, "pairs.0: expected a pair of texts; found fewer"),
    ("/next", {"pairs": [["a", ""]]}, 422, "expected two texts"),
    ("/rerank", {"query": "a", "passages": []}, 422, "passages: expected a list of at least 1"),
    ("/rerank", {"query": "a" * 1000, "passages": ["b", "c"]}, 413, "2,002 characters"),
    ("/attention", {"text": "the " * 70}, 422, "expected at most 64 tokens"),
    ("/attention", {"text": ""}, 422, "expected a non-empty text"),
    ("/v1/embeddings", {"input": []}, 422, "input: expected a list of at least 1; found an empty list"),
    ("/v1/embeddings", {"input": [[]]}, 422, "input.0: expected a list of at least 1; found an empty list"),
    ("/v1/embeddings", {"input": [-1]}, 422, "input.0: expected at least 0; found -1"),
    ("/v1/embeddings", {"input": [10**30]}, 422, "input: expected token ids up to 31; found 1,000,000,"),
    ("/v1/embeddings", {"input": [999]}, 422, "expected token ids up to 31; found 999"),
    ("/v1/embeddings", {"input": ["a", 1]}, 422, "input.1: expected a text; found 1"),
    ("/v1/embeddings", {"input": [5, "a"]}, 422, "input.1: expected a whole number; found a text"),
    ("/v1/embeddings", {"input": [[1], ["a"]]}, 422, "input.1.0: expected a whole number; found a text"),
    ("/v1/embeddings", {"input": [0.5]}, 422, "input.0: expected a text or a whole number or a list; found 0.5"),
    ("/v1/embeddings", {"input": {}}, 422, "input: expected a text or a list; found an object"),
    ("/v1/embeddings", {"input": "a", "encoding_format": "binary"}, 422, "expected 'float' or 'base64'; found"),
    ("/v1/embeddings", {"input": "a", "dimensions": 33}, 422, "have only 32 numbers"),
    ("/v1/embeddings", {"input": "a", "dimensions": 0}, 422, "dimensions: expected at least 1; found 0"),
    ("/v1/embeddings", {"input": "a", "model": "text-embedding-3-small"}, 404, "no model 'text-embedding-3-small'"),
]  # fmt: skip


def test_every_bad_body_is_refused_in_one_sentence(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        unexpected: list[Any] = []
        for path, body, status, words in BODIES:
            reply = await client.post(path, body)
            if (reply.status, words in reply.error) != (status, True):
                unexpected.append((path, str(body)[:80], reply))
            assert len(reply.error) <= 400
        assert unexpected == [], unexpected

    serve(models, script)


def test_bad_bodies_do_not_affect_good_ones_in_the_same_batch(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        good = [client.post("/fill", {"texts": ["the [MASK] film"]}) for _ in range(30)]
        bad = [client.post(path, body) for path, body, _, _ in BODIES]
        replies = await asyncio.gather(*good, *bad)
        assert [reply.status for reply in replies] == [200] * 30 + [status for _, _, status, _ in BODIES]
        gaps = [reply.json["predictions"][0]["gaps"][0] for reply in replies[:30]]
        assert len({tuple(guess["piece"] for guess in gap) for gap in gaps}) == 1

    serve(models, script)


def lists_of(schema: Any) -> list[dict[str, Any]]:
    """Every list schema inside a pydantic core schema."""
    inside = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list | tuple) else ()
    here = [schema] if isinstance(schema, dict) and schema.get("type") == "list" else []
    return here + [inner for value in inside for inner in lists_of(value)]


@pytest.mark.parametrize("asked", [route.request_schema for route in ROUTES], ids=lambda asked: asked.__name__)
def test_a_large_body_of_wrong_items_is_one_mistake(asked: type[BaseModel]) -> None:
    lists = lists_of(asked.__pydantic_core_schema__)
    assert all(inner["fail_fast"] for inner in lists)
    for name in {
        "input",
        "texts",
        "questions",
        "pairs",
        "passages",
        "subjects",
        "segments",
        "stories",
    } & asked.model_fields.keys():
        for items in (b"0.5," * 250_000, b"[null]," * 150_000, b'{"a": 1},' * 100_000):
            with pytest.raises(ValidationError) as caught:
                asked.model_validate_json(b'{"%s": [%s0]}' % (name.encode(), items))
            assert caught.value.error_count() < 10, "one of each kind that an item may be, and keys that are missing"


def test_a_body_of_more_values_than_texts_need_is_refused_before_it_is_parsed(models: dict[str, Any]) -> None:
    async def script(client: Client) -> None:
        for path in {route.path for route in ROUTES} - set(CHANGING):
            for items, few in (
                (b"[],", "1,032 lists, objects and keys"),
                (b"[1],", "1,032 lists, objects and keys"),
                (b"{},", "1,032 lists, objects and keys"),
                (b"1,", "6,064 values"),
                (b'"",', "6,064 values"),
            ):
                reply = await client.post(path, b'{"input": [%s1]}' % (items * 7000))
                assert reply.status == 413
                assert reply.error == f"expected a body of at most {few}; found more; split the request"
            keys = b",".join(b'"%d": 1' % number for number in range(1100))
            reply = await client.post(path, b"{%s}" % keys)
            assert reply.status == 413
            assert (
                reply.error == "expected a body of at most 1,032 lists, objects and keys; found more; split the request"
            )

    serve(models, script, max_tokens=2000, max_body=100_000)


def test_marks_inside_texts_do_not_count_as_values(models: dict[str, Any]) -> None:
    async def script(client: Client) -> None:
        text = '[MASK] \\" , : [ { \\ "' * 300
        assert (await client.post("/fill", {"texts": [f"[MASK]{'[{,:' * 1500}"], "top": 1})).status == 413, "by tokens"
        reply = await client.post("/tokenize", {"texts": [text], "model": "novels"})
        assert "tokens; the limit is 100" in reply.error, "the body was taken"
        for broken in (b'{"texts": ["' + b'\\"' * 9000, b'{"texts": ["' + b"," * 9000 + b"\\"):
            assert (await client.post("/fill", broken)).status == 400

    serve(models, script, max_tokens=100, max_characters=50_000, max_body=100_000)


@pytest.mark.parametrize("word", ["", " ", "\u0301"])
def test_words_of_nothing_are_tokens_too(models: dict[str, Model], word: str) -> None:
    async def script(client: Client) -> None:
        asked = {"texts": [[word] * 98], "model": "names"}
        assert (await client.post("/tag", asked)).json["usage"]["tokens_in"] == 100
        reply = await client.post("/tag", {**asked, "texts": [[word] * 99]})
        assert (reply.status, reply.error) == (413, "the request has 101 tokens; the limit is 100; split it")

    serve(models, script, max_tokens=100)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_body_of_another_type_is_refused(models: dict[str, Model], kind: str | None) -> None:
    async def script(client: Client) -> None:
        headers = {} if kind is None else {"content-type": kind}
        reply = await client.send("POST", "/fill", [b'{"texts": ["[MASK]"]}'], headers)
        assert reply.status == 415
        assert "application/json" in reply.error

    serve(models, script)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.here+json", "Application/JSON"])
def test_json_may_be_called_by_its_other_names(models: dict[str, Model], kind: str) -> None:
    async def script(client: Client) -> Reply:
        return await client.send("POST", "/fill", [b'{"texts": ["[MASK]"]}'], {"content-type": kind})

    assert serve(models, script).status == 200


def packed(value: Any) -> bytes:
    return gzip.compress(json.dumps(value).encode(), mtime=0)


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("name", ["gzip", "GZIP", "x-gzip"])
def test_a_gzip_body_is_read_in_any_chunks(models: dict[str, Model], name: str, size: int) -> None:
    async def script(client: Client) -> None:
        body = packed({"texts": ["the [MASK] film"]})
        chunks = [body[begin : begin + size] for begin in range(0, len(body), size)]
        reply = await client.send("POST", "/fill", chunks, {**JSON, "content-encoding": name})
        plain = await client.post("/fill", {"texts": ["the [MASK] film"]})
        assert (reply.status, reply.json) == (200, plain.json)

    serve(models, script)


def test_a_gzip_body_is_limited_in_its_decompressed_size_and_a_bomb_is_not_expanded(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        held: list[int] = []
        memory = client.app.service.held
        before = memory.hold
        memory.hold = lambda count: (before(count), held.append(memory.count))[0]
        for size in (20_001, 50_000_000):
            bomb = gzip.compress(b" " * size)
            reply = await client.send("POST", "/fill", [bomb[:300], bomb[300:]], {**JSON, "content-encoding": "gzip"})
            assert reply.status == 413
            assert reply.error == "the body is larger than 20,000 bytes; split the request"
        assert max(held, default=0) <= 20_000
        just = b'{"texts": ["[MASK]"]}'.ljust(20_000)
        reply = await client.send("POST", "/fill", [gzip.compress(just)], {**JSON, "content-encoding": "gzip"})
        assert reply.status == 200

    serve(models, script)


GZIP = packed({"texts": ["[MASK]"]})


@pytest.mark.parametrize(
    ("name", "body", "status", "words"),
    [
        ("gzip", GZIP[:-1], 400, "expected one complete stream of gzip; found a damaged body"),
        ("gzip", GZIP + b"x", 400, "expected one complete stream of gzip"),
        ("gzip", GZIP + GZIP, 400, "expected one complete stream of gzip"),
        ("gzip", GZIP[:20] + b"\x00" + GZIP[21:], 400, "expected one complete stream of gzip"),
        ("gzip", b"", 400, "expected one complete stream of gzip"),
        ("gzip", b'{"texts": ["[MASK]"]}', 400, "expected one complete stream of gzip"),
        ("br", GZIP, 415, "expected content-encoding: gzip, or none; found 'br'"),
        ("gzip, gzip", GZIP, 415, "expected content-encoding: gzip, or none"),
        ("deflate", GZIP, 415, "send the body as it is"),
    ],
)
def test_a_body_in_another_or_damaged_compression_is_refused(
    models: dict[str, Model], name: str, body: bytes, status: int, words: str
) -> None:
    async def script(client: Client) -> None:
        reply = await client.send("POST", "/fill", [body], {**JSON, "content-encoding": name})
        assert (reply.status, words in reply.error) == (status, True), reply
        plain = await client.send("POST", "/fill", [b'{"texts": ["[MASK]"]}'], {**JSON, "content-encoding": "identity"})
        assert plain.status == 200

    serve(models, script)


def test_a_body_in_chunks_is_limited_while_it_is_read(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        body = json.dumps({"texts": ["[MASK] the film"]}).encode()
        whole = await client.send("POST", "/fill", [body[i : i + 3] for i in range(0, len(body), 3)], JSON)
        assert whole.status == 200
        held = []
        memory = client.app.service.held
        before = memory.hold
        memory.hold = lambda count: (before(count), held.append(memory.count))[0]
        reply = await client.send("POST", "/fill", [b"x" * 1000] * 100, JSON)
        assert reply.status == 413
        assert max(held) <= 20_000, "a body over the limit is not kept"
        assert memory.count == 0

    serve(models, script)


def test_a_body_announced_as_too_large_is_refused_before_it_is_sent(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        headers = {**JSON, "content-length": "10000000", "expect": "100-continue"}
        reply = await client.send("POST", "/fill", [], headers)  # nothing is read, so nothing need come
        assert reply.status == 413
        false = await client.send("POST", "/fill", [b'{"texts": ["[MASK]"]}'], {**JSON, "content-length": "a lot"})
        assert false.status == 200

    serve(models, script)


def test_a_body_that_does_not_arrive_times_out(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        reply = await client.send("POST", "/fill", [], JSON)
        assert reply.status == 408
        assert reply.error == "the body did not arrive within 0.3 s"
        assert reply.headers["connection"] == "close"

    serve(models, script)


def test_a_client_that_disconnects_while_sending_is_forgotten(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        gone = Client(client.app)
        gone.gone.set()
        assert (await gone.send("POST", "/fill", [], JSON)).body == b""
        assert client.app.service.held.count == 0

    serve(models, script)


def test_open_requests_together_are_limited_in_bytes(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        memory = client.app.service.held
        memory.hold(50_001)
        reply = await client.post("/fill", {"texts": ["[MASK]"]})
        assert reply.status == 429
        assert reply.headers["retry-after"] == "1"
        memory.hold(-50_001)

    serve(models, script, max_held=50_000)


def test_thousands_of_tiny_texts_are_answered_or_refused_as_the_limit_says(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        few = await client.post("/v1/embeddings", {"input": ["a"] * 3000, "encoding_format": "base64"})
        assert len(few.json["data"]) == 3000
        many = await client.post("/v1/embeddings", {"input": ["a"] * 3001})
        assert many.status == 413

    serve(models, script, max_texts=3000, max_characters=10_000, max_body=100_000)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/fill", 405),
        ("PUT", "/fill", 405),
        ("DELETE", "/models", 405),
        ("GET", "/absent", 404),
        ("POST", "/fill/", 404),
        ("GET", "/page/../settings.py", 404),
        ("GET", "/page/\x00", 404),
        ("GET", "/page/%2e%2e/settings.py", 404),
        ("GET", "//", 404),
        ("BREW", "/fill", 405),
    ],
)
def test_unknown_routes_and_methods_are_refused(models: dict[str, Model], method: str, path: str, status: int) -> None:
    async def script(client: Client) -> None:
        reply = await client.send(method, path)
        assert (reply.status, bool(reply.error)) == (status, True)

    serve(models, script)
