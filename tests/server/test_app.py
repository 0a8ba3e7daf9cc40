"""What the random requests do not cover: OpenAI's format, usage, the API key, monitoring, the documents."""

import base64
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import Model, load
from bertsmith.app.library.loading import load_models
from bertsmith.app.server.documents import read_page
from bertsmith.app.server.index_routes import ROUTES
from bertsmith.app.server.process import read_key
from bertsmith.app.server.queue import read_at_most
from bertsmith.app.server.refusal import json_bytes
from bertsmith.app.server.service import ROUTES_OF
from bertsmith.app.server.settings import ServerSettings
from bertsmith.base.core.errors import ConfigError, CutWarning, InputError
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.tasks.metrics.vectors import crowding, unit
from server.asgi import Client, serve
from server.models import load_index, write_models, write_task_model
from server.records import load_record_models
from tasks.task_samples import SPECS, WORDS, write_base_model
from written_files import file_with

KEY = "0123456789abcdef0123"


def test_embeddings_have_the_form_of_openai(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        reply = await client.post("/v1/embeddings", {"model": "novels", "input": "the film", "user": "me", "more": [1]})
        body = reply.json
        assert set(body) == {"object", "data", "model", "usage"}
        assert (body["object"], body["model"]) == ("list", "novels")
        assert [set(item) for item in body["data"]] == [{"object", "index", "embedding"}]
        assert body["usage"] == {
            "prompt_tokens": 4, "total_tokens": 4, "tokens_in": 4, "tokens_used": 4, "tokens_cut": 0
        }  # fmt: skip
        vector = models["novels"].embed(["the film"])[0]
        np.testing.assert_allclose(body["data"][0]["embedding"], vector, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)

    serve(models, script)


def test_embeddings_are_made_with_the_prompt_that_a_request_names(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        model, asked = models["sentences"], {"model": "sentences", "input": ["the film", "a plot"]}
        replies, named, bare = [
            await client.post("/v1/embeddings", {**asked, **more})
            for more in ({}, {"prompt_name": "query"}, {"prompt_name": "none"})
        ]
        assert replies.json == named.json
        assert bare.json["usage"]["tokens_in"] == sum(model.tokens(asked["input"], "embed", prompt="none"))
        assert bare.json["usage"]["tokens_in"] < named.json["usage"]["tokens_in"]
        for reply, prompt in ((named, "query"), (bare, "none")):
            vectors = [item["embedding"] for item in reply.json["data"]]
            wanted = model.embed(asked["input"], prompt=prompt)
            np.testing.assert_allclose(vectors, wanted, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)
        wrong = await client.post("/v1/embeddings", {**asked, "prompt_name": "qury"})
        assert wrong.status == 422
        assert "did you mean 'query'" in wrong.json["error"]["message"]

    serve(models, script)


def test_token_ids_are_the_text_that_they_spell(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        texts = ["the films", "a plot"]
        ids = [models["novels"].tokenizer.encode(text).tolist() for text in texts]
        for tokens in (ids, ids[0]):
            by_ids = await client.post("/v1/embeddings", {"model": "novels", "input": tokens})
            by_text = await client.post(
                "/v1/embeddings", {"model": "novels", "input": texts[: len(by_ids.json["data"])]}
            )
            assert by_ids.json == by_text.json

    serve(models, script, token_ids=True)


def test_token_ids_are_used_as_they_are(models: dict[str, Model]) -> None:
    """Decoded and tokenized again, most of these rows would be others."""
    model = models["novels"]
    size, most = len(model.tokenizer.vocabulary), model.embed_length - 2

    async def script(client: Client) -> None:
        rows = [list(range(size)), list(reversed(range(size))), [model.tokenizer.vocabulary.unk_id]]
        reply = await client.post("/v1/embeddings", {"model": "novels", "input": rows})
        values = [entry["embedding"] for entry in reply.json["data"]]
        assert np.allclose(values, model.embed_ids(rows), atol=1e-5)
        assert reply.json["usage"]["prompt_tokens"] == sum(map(len, rows)) + 2 * len(rows)
        assert reply.json["usage"]["tokens_cut"] == 0
        long = await client.post("/v1/embeddings", {"model": "novels", "input": [1] * (most + 1)})
        assert (long.status, "token ids in text 1" in long.json["error"]["message"]) == (422, True)

    serve(models, script, token_ids=True)


def test_token_ids_are_refused_unless_the_server_was_started_to_accept_them(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        for ids in ([5, 6], [[5], [6]]):
            reply = await client.post("/v1/embeddings", {"model": "novels", "input": ids})
            assert (reply.status, "start the server with --token-ids" in reply.error) == (422, True)

    serve(models, script)


def test_vectors_can_be_shortened(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        asked = {"model": "novels", "input": ["the film", "a"]}
        whole = (await client.post("/v1/embeddings", asked)).json["data"]
        short = (await client.post("/v1/embeddings", {**asked, "dimensions": 5})).json["data"]
        same = (await client.post("/v1/embeddings", {**asked, "dimensions": 32})).json["data"]
        assert [item["embedding"] for item in short] == [item["embedding"][:5] for item in whole]
        assert same == whole

    serve(models, script)


def test_shortened_vectors_of_length_one_have_length_one(models: dict[str, Model], monkeypatch: Any) -> None:
    plain = models["novels"].compute
    monkeypatch.setattr(models["novels"], "compute", lambda ability, rows: unit(plain(ability, rows)))

    async def script(client: Client) -> None:
        asked = {"model": "novels", "input": "the film", "dimensions": 5, "encoding_format": "base64"}
        value = (await client.post("/v1/embeddings", asked)).json["data"][0]["embedding"]
        vector = np.frombuffer(base64.b64decode(value), dtype="<f4")
        assert len(vector) == 5
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)

    serve(models, script)


CUTS = [
    ("/predict", "reviews", {"texts": ["the " * 40, "the"]}, 45, 10),
    ("/predict", "pairs", {"texts": [["the " * 40, "a " * 10]]}, 53, 21),
    ("/predict", "long", {"texts": ["the " * 40]}, 42, 0),
    ("/predict", "endings", {"questions": [{"context": "the " * 40, "endings": ["a", "a film"]}]}, 44 + 45, 12 + 13),
    ("/tag", "names", {"texts": ["the " * 40]}, 42, 0),
    ("/answer", "answers", {"questions": [{"question": "who ?" * 10, "context": "the " * 90}]}, 113, 20 - 9),
    ("/fill", "novels", {"texts": ["the [MASK]"]}, 4, 0),
    ("/complete", "stories", {"texts": ["the film"], "tokens": 3}, 4, 0),
    ("/v1/completions", "stories", {"prompt": "the film", "max_tokens": 3}, 4, 0),
    ("/v1/completions", "summaries", {"prompt": "the " * 40}, 42, 42 - SPECS["text to write"].settings.max_length),
    ("/perplexity", "stories", {"texts": ["the " * 200]}, 202, 0),
    ("/next", "novels", {"pairs": [["the " * 60, "a " * 10]]}, 73, 9),
    ("/rerank", "novels", {"query": "the " * 70, "passages": ["a", "a " * 65]}, 72 + 3 + 67, 8 + 3),
    ("/rerank", "pairs", {"query": "the " * 20, "passages": ["a", "a " * 20]}, 24 + 43, 11),
    # Labels count when they are read, which is with the first request that has them.
    ("/classify", "novels", {"texts": ["the " * 70, "a"], "labels": {"rome": "who ?", "oslo": ""}}, 72 + 3 + 10, 8),
    ("/classify", "novels", {"texts": ["a"], "labels": {"rome": "who ?", "oslo": ""}, "threshold": 0.9}, 3, 0),
    ("/classify", "entails", {"texts": ["the " * 40], "labels": ["rome", "oslo"], "template": ["{}"]}, 88, 24),
    ("/tokenize", "novels", {"texts": ["the " * 90]}, 92, 0),
    ("/attention", "novels", {"text": "the", "pair": "film"}, 5, 0),
    ("/v1/embeddings", "novels", {"input": ["the " * 70, "a"]}, 75, 8),
    ("/v1/embeddings", "reviews", {"input": ["the " * 70, "a"]}, 75, 8),
    # [MASK] is one piece for the masked-LM head and three for everything else.
    ("/fill", "novels", {"texts": ["[MASK]"]}, 3, 0),
    ("/tokenize", "novels", {"texts": ["[MASK]"]}, 3, 0),
    ("/attention", "novels", {"text": "[MASK]"}, 3, 0),
    ("/v1/embeddings", "novels", {"input": ["[MASK] " * 30]}, 92, 28),
    ("/rerank", "novels", {"query": "[MASK]", "passages": ["[MASK] " * 30]}, 5 + 92, 28),
    ("/next", "novels", {"pairs": [["[MASK]", "a " * 70]]}, 3 + 70 + 3, 12),
    # A sentence-transformers folder has a prompt before each text.
    ("/v1/embeddings", "sentences", {"input": ["the [SEP] film", "a " * 40]}, 7 + 44, 24),
    ("/tokenize", "sentences", {"texts": ["the [SEP] film"]}, 5, 0),
    ("/attention", "sentences", {"text": "the [SEP] film"}, 5, 0),
    # A word that normalization leaves empty is read as [UNK].
    ("/tag", "names", {"texts": [["", " ", "the"], "a \u0301 b"]}, 5 + 5, 0),
]


@pytest.mark.parametrize(("path", "model", "body", "came", "cut"), CUTS)
def test_a_reply_counts_tokens_received_used_and_truncated(
    models: dict[str, Model], path: str, model: str, body: dict[str, Any], came: int, cut: int
) -> None:
    async def script(client: Client) -> None:
        reply = await client.post(path, {**body, "model": model})
        usage = {key: value for key, value in reply.json["usage"].items() if key.startswith("tokens_")}
        assert usage == {"tokens_in": came, "tokens_used": came - cut, "tokens_cut": cut}
        counted = client.app.service.metrics.text().decode()
        assert f'bertsmith_tokens_total{{kind="cut",model="{model}"}} {float(cut)}' in counted

    serve(models, script)


@pytest.mark.parametrize(
    ("path", "model", "body", "few", "many"),
    [
        ("/tag", "names", "texts", ["a"], ["a " * 600]),
        ("/tokenize", "names", "texts", ["a"], ["a " * 600]),
        ("/fill", "novels", "texts", ["[MASK]"], ["[MASK]" * 20]),
        ("/v1/embeddings", "novels", "input", ["a"], ["a"] * 40),
    ],
)
def test_large_replies_are_serialized_outside_the_event_loop(
    models: dict[str, Model], monkeypatch: Any, path: str, model: str, body: str, few: list[str], many: list[str]
) -> None:
    writers: list[threading.Thread] = []
    monkeypatch.setattr(
        "bertsmith.app.server.routes.json_bytes",
        lambda value: (writers.append(threading.current_thread()), json_bytes(value))[1],
    )

    async def script(client: Client) -> None:
        for texts, in_loop in ((few, True), (many, False)):
            writers.clear()
            more = {"top": 30} if path == "/fill" and not in_loop else {}
            assert (await client.post(path, {"model": model, body: texts, **more})).status == 200
            assert {writer is threading.main_thread() for writer in writers} == {in_loop}

    serve(models, script)


@pytest.mark.parametrize(
    ("path", "model", "body", "texts"),
    [
        ("/predict", "reviews", {"texts": ["the film", "a plot"]}, ["the film", "a plot"]),
        ("/predict", "stars", {"texts": ["the film"]}, ["the film"]),
        ("/predict", "pairs", {"texts": [["the film", "a plot"]]}, ["the film", "a plot"]),
        (
            "/predict",
            "endings",
            {"questions": [{"context": "the", "endings": ["film", "plot"]}]},
            ["the", "film", "plot"],
        ),
        ("/v1/embeddings", "novels", {"input": ["the film", "a"]}, ["the film", "a"]),
        ("/rerank", "novels", {"query": "film", "passages": ["the film", "a"]}, ["film", "the film", "a"]),
        ("/rerank", "pairs", {"query": "film", "passages": ["a"]}, ["film", "a"]),
        ("/classify", "entails", {"texts": ["a"], "labels": ["who", "film"], "template": ["{}"]}, ["who", "film", "a"]),
    ],
)
def test_a_text_of_a_request_is_tokenized_once(
    models: dict[str, Model], monkeypatch: Any, path: str, model: str, body: dict[str, Any], texts: list[str]
) -> None:
    encode, encoded = models[model].tokenizer.encode_batch, list[str]()

    def recorded(texts: list[str], **options: Any) -> Any:
        encoded.extend(texts)
        return encode(texts, **options)

    monkeypatch.setattr(models[model].tokenizer, "encode_batch", recorded)
    reply = serve(models, lambda client: client.post(path, {"model": model, **body}))
    assert (reply.status, encoded) == (200, texts), reply


def test_windows_over_a_long_text_count_as_all_of_it(models: dict[str, Model]) -> None:
    assert read_at_most(models["long"], "classify", [100, 5]) == 105
    assert read_at_most(models["long"], "embed", [100, 5]) == 64 + 5
    assert read_at_most(models["reviews"], "classify", [100, 5]) == 32 + 5
    assert read_at_most(models["answers"], "answer", [100, 5]) == read_at_most(models["names"], "tag", [100, 5]) == 105


def test_a_request_without_a_model_goes_to_the_first_that_can(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        reply = await client.post("/fill", {"texts": ["the [MASK]"]})
        assert reply.json["model"] == "novels"
        reply = await client.post("/predict", {"texts": ["the"]})
        assert reply.json["model"] == "reviews"

    serve(models, script)

    async def nobody(client: Client) -> None:
        reply = await client.post("/fill", {"texts": ["the [MASK]"]})
        assert reply.status == 400
        routes = "/predict with texts, /v1/embeddings, /embed, /, /attention, /tokenize"
        assert reply.error == f"no model that is served here answers such a request; 'reviews' answers {routes}"

    serve({"reviews": models["reviews"]}, nobody)


def test_the_best_passages_come_first(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        asked = {"model": "novels", "query": "the film", "passages": ["bad", "the film", "oslo"], "top": 2}
        results = (await client.post("/rerank", asked)).json["results"]
        assert [len(results), results[0]["index"]] == [2, 1]
        assert results[0]["score"] == pytest.approx(1)

    serve(models, script)


EMPTY = "empty texts, predicted from [CLS] [SEP] alone: "
CROWDED = "the passages have a mean cosine of "


def test_crowded_vectors_and_empty_texts_are_said_as_the_commands_say_them(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        passages = ["the film", "oslo", "bad", "the plot", "who ?"]
        vectors = models["novels"].embed(passages, normalize=True)
        asked = {"model": "novels", "query": "the", "passages": passages}
        reply = (await client.post("/rerank", asked)).json
        assert reply["note"] == crowding(vectors)
        same = {**asked, "passages": ["the film"] * 5}
        assert (await client.post("/rerank", same)).json["note"].startswith(f"{CROWDED}1.00 with one another: ")
        assert (await client.post("/rerank", {**same, "model": "pairs"})).json["note"] == "", "no vectors are compared"
        assert (await client.post("/rerank", {**same, "passages": ["the film"] * 4})).json["note"] == "", "too few"
        texts = {"model": "reviews", "texts": ["good", " ", ""]}
        assert (await client.post("/predict", texts)).json["note"] == f"{EMPTY}2"
        assert (await client.post("/predict", {**texts, "texts": ["good"]})).json["note"] == ""
        pairs = {"model": "pairs", "texts": [["", "good"], ["", " "]]}
        assert (await client.post("/predict", pairs)).json["note"] == f"{EMPTY}1"

    serve(models, script)


def test_browsers_get_the_icon_that_they_ask_for_by_themselves(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        icon = (await client.get("/page/icon.svg")).body
        for path in ("/favicon.ico", "/apple-touch-icon.png", "/apple-touch-icon-precomposed.png"):
            reply = await client.get(path)
            assert (reply.status, reply.body) == (200, icon)
            assert reply.headers["content-type"].startswith("image/svg+xml")

    serve({"reviews": models["reviews"]}, script, KEY)


def test_the_models_are_listed(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        shown = {model["name"]: model for model in (await client.get("/models")).json["models"]}
        assert list(shown) == list(models)
        assert shown["reviews"] == {
            "name": "reviews", "task": "classification",
            "abilities": [*models["reviews"].abilities, "attention", "pieces"],
            "labels": ["negative", "positive"], "kinds": {}, "pair": False, "max_length": 32, "embed_length": 64,
            "max_question": 0, "width": 32, "thresholds": [], "calibrated_on": 0, "weakness": "",
        }  # fmt: skip
        assert [shown[name]["pair"] for name in ("pairs", "stars", "names", "novels")] == [True, False, None, None]
        assert (shown["answers"]["max_question"], shown["sentences"]["embed_length"]) == (9, 20)
        ids = [row["id"] for row in (await client.get("/v1/models")).json["data"]]
        assert ids == list(models)

    serve(models, script)


def test_a_key_is_required_except_for_the_page_and_monitoring(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        body = {"texts": ["the [MASK]"]}
        for headers in ({}, {"authorization": KEY}, {"authorization": f"Bearer {KEY}x"}, {"authorization": "Bearer "}):
            reply = await client.post("/fill", body, headers)
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
            assert reply.json["error"]["type"] == "authentication_error"
            assert KEY not in reply.error
        assert (await client.post("/fill", body, {"authorization": f"Bearer {KEY}"})).status == 200
        for path in ("/models", "/metrics", "/docs", "/openapi.json", "/absent", "/pages"):
            assert (await client.get(path)).status == 401
            assert (await client.get(path, {"authorization": f"Bearer {KEY}"})).status in (200, 404)
        for path in ("/", "/health", "/ready", "/page/page.js"):
            assert (await client.get(path)).status != 401

    serve(models, script, KEY)


def test_a_stopping_server_is_not_ready_and_closes_its_connections(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        before = await client.post("/fill", {"texts": ["the [MASK]"]})
        assert (await client.get("/ready")).status == 200
        client.app.service.leave()
        ready = await client.get("/ready")
        assert (ready.status, ready.error) == (503, "the server is stopping")
        after = await client.post("/fill", {"texts": ["the [MASK]"]})
        assert (after.status, after.body) == (200, before.body)
        assert (before.headers.get("connection"), after.headers["connection"]) == (None, "close")
        assert (await client.get("/health")).status == 200

    serve(models, script)


def test_every_reply_forbids_external_resources(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        for reply in (await client.get("/"), await client.get("/absent"), await client.post("/fill", b"")):
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            assert reply.headers["x-content-type-options"] == "nosniff"

    serve(models, script)


def test_metrics_can_be_read(models: dict[str, Model]) -> None:
    async def script(client: Client) -> str:
        for _ in range(3):
            await client.post("/fill", {"texts": ["the [MASK]", "[MASK]"]})
        await client.get("/somewhere/else")
        reply = await client.get("/metrics")
        assert reply.headers["content-type"].startswith("text/plain")
        return reply.body.decode()

    lines = serve(models, script).splitlines()
    for line in (
        'bertsmith_requests_total{route="/fill",status="200"} 3.0',
        'bertsmith_requests_total{route="other",status="404"} 1.0',
        'bertsmith_texts_total{ability="fill",model="novels"} 6.0',
        'bertsmith_tokens_total{kind="in",model="novels"} 21.0',
        'bertsmith_batch_seconds_count{model="novels"} 3.0',
        "bertsmith_held_bytes 0.0",
        "bertsmith_open_requests 1.0",
        "bertsmith_ready 1.0",
    ):
        assert line in lines


def test_the_document_mentions_a_key_if_one_is_required(models: dict[str, Model]) -> None:
    async def script(client: Client) -> dict[str, Any]:
        return (await client.get("/openapi.json", {"authorization": f"Bearer {KEY}"})).json

    document = serve(models, script, KEY)
    assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    assert document["security"] == [{"key": []}]
    without = [path for path, methods in document["paths"].items() if methods.get("get", {}).get("security") == []]
    assert sorted(without) == ["/health", "/ready"]
    document = serve(models, script)
    assert "securitySchemes" not in document["components"]
    assert "security" not in document


class _Page(HTMLParser):
    """The URLs and the headings of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert not {name for name, _ in attributes} & {"style", "onclick", "onload"}, "the policy forbids it"
        self.addresses += [value for name, value in attributes if name in ("href", "src") and value]


def test_the_routes_are_documented_without_external_resources(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        document = (await client.get("/openapi.json")).json
        asked = [path for path, methods in document["paths"].items() if "post" in methods]
        known = "/predict /classify /tag /answer /resolve /fill /complete /perplexity /next /rerank".split()
        known += ["/tokenize", "/attention", "/search", "/index/add", "/index/remove"]
        known += ["/", "/embed", "/v1/rerank", "/v2/rerank"]
        known += [f"/codes/{name}" for name in "predict anomalies embed fill match next".split()] + ["/memory/answer"]
        assert sorted(asked) == sorted(["/v1/completions", "/v1/embeddings", *known])
        page = (await client.get("/docs")).body.decode()
        parser = _Page()
        parser.feed(page)
        assert {"docs.css", "openapi.json", "./"} == set(parser.addresses)
        for path in document["paths"]:
            assert f"{path}</code>" in page
        style = await client.get("/docs.css")
        assert style.headers["content-type"] == "text/css; charset=utf-8"
        assert b"url(" not in style.body

    serve(models, script)


def test_the_examples_of_the_documents_are_answered(models: dict[str, Model], tmp_path: Path) -> None:
    from bertsmith.app.server.documents import EXAMPLES

    async def script(client: Client) -> None:
        document = (await client.get("/openapi.json")).json
        for path, body in EXAMPLES.items():
            named = {**body, "model": "reviews"} if "model" in body else body
            reply = await client.post(path, named, {"authorization": f"Bearer {KEY}"})
            assert reply.status == 200, (path, reply)
            content = document["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
            if isinstance(reply.json, dict):
                name = content.get("anyOf", [content])[0]["$ref"].rsplit("/", 1)[1]
                assert set(reply.json) == set(document["components"]["schemas"][name]["properties"])
            else:
                assert (path, content["type"]) in {("/", "array"), ("/embed", "array")}

    index = load_index(tmp_path, write_base_model(tmp_path / "novels"))
    serve({**models, **load_record_models(tmp_path), **index}, script, None, None, KEY)


def test_the_files_of_the_page_come_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "index.html").write_text("<p>é</p>", encoding="utf-8")
    (tmp_path / "inner" / "a.js").write_text("1", encoding="utf-8")
    files = read_page(tmp_path)
    assert sorted(files) == ["index.html", "inner/a.js"]
    assert files["index.html"].kind == "text/html; charset=utf-8"
    assert files["inner/a.js"].kind == "text/javascript; charset=utf-8"
    assert read_page(tmp_path / "absent") == {}


def test_a_file_of_the_page_that_is_known_is_not_sent_again(models: dict[str, Model]) -> None:
    async def script(client: Client) -> None:
        page = await client.get("/")
        if page.status == 404:
            pytest.skip("the page is not installed")
        again = await client.get("/", {"if-none-match": page.headers["etag"]})
        assert (again.status, again.body) == (304, b"")

    serve(models, script)


def test_models_are_named_by_folder_or_by_the_user(tmp_path: Path) -> None:
    paths = write_models(tmp_path)
    models = load_models([str(paths["reviews"]), f"mine={paths['reviews']}"], device="cpu")
    assert list(models) == ["reviews", "mine"]
    with pytest.raises(ConfigError, match=r"'reviews' twice.*--model NAME="):
        load_models([str(paths["reviews"]), str(paths["reviews"])], device="cpu")


def test_a_weak_model_is_named_as_it_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_models(tmp_path)["reviews"]
    metadata = read_json(path / "bertsmith.json")
    write_json(path / "bertsmith.json", metadata | {"training": {**metadata.get("training", {}), "collapsed": True}})
    load_models([str(path), f"mine={path}"], device="cpu")
    lines = [line.partition(" this model gave the same")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["warning: reviews:", "warning: mine:"]


def test_a_key_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = file_with(tmp_path / "key", f"  {KEY} \nmore\n")
    assert read_key(file) == KEY
    for content in ("", "short", "a key with spaces in it", "ключключключключ"):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match="expected a key of at least 16 letters"):
            read_key(file)
    with pytest.raises(InputError, match="no such file"):
        read_key(tmp_path / "absent")


@pytest.mark.parametrize(("name", "value"), [("max_texts", 0), ("request_seconds", 0.0), ("batch_tokens", -1)])
def test_impossible_limits_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least"):
        ServerSettings(**{name: value})


def test_the_budget_of_a_batch_goes_by_the_device() -> None:
    assert ServerSettings().tokens_of_batch("cpu") < ServerSettings().tokens_of_batch("cuda:0")
    assert ServerSettings(batch_tokens=7).tokens_of_batch("cuda:0") == 7


def test_answers_with_a_saved_threshold_are_those_of_the_library(tmp_path: Path) -> None:
    model = load(write_task_model(tmp_path / "reviews", SPECS["single"]), device="cpu")
    texts = [f"{first} film {second}" for first in WORDS[:8] for second in WORDS[:8]]
    rows = [{"text": text, "label": model.labels[n % 2]} for n, text in enumerate(texts)]
    model.predict(rows, calibrate=rows, coverage=0.8, save_threshold=True)
    answers = model.classify(texts)
    least = sorted(answer.probability for answer in answers)[len(texts) // 3]
    judged = [  # the least certain answers are wrong
        {"text": text, "label": model.labels[model.labels.index(answer.label) - (answer.probability < least)]}
        for text, answer in zip(texts, answers, strict=True)
    ]
    model.predict(rows, calibrate=judged, accuracy=0.5, save_threshold=True)

    async def script(client: Client) -> None:
        (shown,) = (await client.get("/models")).json["models"]
        assert shown["thresholds"] == [{"coverage": 0.8}, {"accuracy": 0.5}]
        assert shown["calibrated_on"] == len(texts)
        unanswered = 0
        for promise in (*shown["thresholds"], {"coverage": 0.9}, {"accuracy": 0.85}):
            reply = await client.post("/predict", {"texts": texts, **promise})
            bare = [answer.to_dict() for answer in model.classify(texts, **promise)]
            unanswered += sum(answer["label"] is None for answer in bare)
            assert [answer["chosen"] for answer in reply.json["predictions"]] == [answer["chosen"] for answer in bare]
            assert [answer["label"] for answer in reply.json["predictions"]] == [answer["label"] for answer in bare]
        assert unanswered > 0
        assert (
            f'bertsmith_unanswered_texts_total{{model="reviews"}} {unanswered}.0'
            in (await client.get("/metrics")).body.decode()
        )
        for body, words in (
            ({"coverage": 0.999}, "found 64; label more texts, or ask for a lower coverage"),
            ({"accuracy": 0.999}, "expected answers that are certain to be right 99.9% of the time"),
            ({"coverage": 1.0}, "coverage: expected"),
            ({"coverage": 0.8, "accuracy": 0.5}, "expected 'accuracy' or 'coverage'; found both"),
        ):
            reply = await client.post("/predict", {"texts": texts[:1], **body})
            assert (reply.status, words in reply.error) == (422, True), reply.error

    serve({"reviews": model}, script)


def test_what_drift_shows_in_is_counted(tmp_path: Path) -> None:
    folder = write_task_model(tmp_path / "reviews", SPECS["single"])
    values = read_json(folder / "bertsmith.json")
    recorded = {"texts": {"tokens": 7.5, "unknown": 0.25, "cut": "?"}, "confidence": 0.75}
    write_json(folder / "bertsmith.json", {**values, "training": recorded})
    model = load(folder, device="cpu")
    texts = ["the film", "zzz qqq film", "film " * 80]
    with pytest.warns(CutWarning):
        confidence = sum(answer.probability for answer in model.classify(texts))

    async def script(client: Client) -> None:
        assert (await client.post("/predict", {"texts": texts})).status == 200
        lines = (await client.get("/metrics")).body.decode().splitlines()
        for line in (
            'bertsmith_pieces_total{kind="all",model="reviews"} 85.0',
            'bertsmith_pieces_total{kind="unknown",model="reviews"} 2.0',
            f'bertsmith_text_tokens_sum{{model="reviews"}} {85.0 + 3 * 2}',
            'bertsmith_cut_texts_total{model="reviews"} 1.0',
            'bertsmith_confidence_count{model="reviews"} 3.0',
            'bertsmith_training{model="reviews",value="tokens"} 7.5',
            'bertsmith_training{model="reviews",value="unknown"} 0.25',
            'bertsmith_training{model="reviews",value="confidence"} 0.75',
        ):
            assert line in lines
        (total,) = (line.split()[1] for line in lines if line.startswith("bertsmith_confidence_sum"))
        assert float(total) == pytest.approx(confidence, abs=1e-4)
        assert not any('value="cut"' in line for line in lines)

    serve({"reviews": model}, script)


def test_messages_know_the_routes_of_all_abilities(models: dict[str, Model]) -> None:
    named = {path.split()[0] for paths in ROUTES_OF.values() for path in paths}
    assert named == {route.path for route in ROUTES}
    abilities = {ability for model in models.values() for ability in model.abilities}
    assert abilities - {"features"} <= set(ROUTES_OF)
