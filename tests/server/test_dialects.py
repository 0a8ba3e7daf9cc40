"""Requests as the clients of other servers send them get answers in the form that these clients read."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import Model
from bertsmith.app.server.app import create_app
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.tasks.metrics.vectors import unit
from server.asgi import Client, Reply, replies_to, serve
from server.threads import in_a_thread

QUERY, TEXTS = "who was in rome", ["anna was in rome", "the plot was awful", "a great film"]
KEY = "a key of this server"
# What clients sent to a socket that recorded it, with models, queries and texts of this file.
RECORDED = [
    json.loads(line) for line in Path(__file__).with_name("recorded_requests.jsonl").read_text("utf-8").splitlines()
]


def ask(models: dict[str, Model], path: str, body: dict[str, Any], **settings: Any) -> Reply:
    (reply,) = replies_to(models, (path, body), **settings)
    return reply


def near(served: Any, library: Any) -> None:
    np.testing.assert_allclose(np.array(served), np.array(library), rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)


@pytest.mark.parametrize("path", ["/embed", "/"])
@pytest.mark.parametrize("name", ["novels", "sentences"])
def test_tei_gets_a_list_of_vectors(models: dict[str, Model], path: str, name: str) -> None:
    model = models[name]
    near(ask(models, path, {"model": name, "inputs": TEXTS}).json, model.embed(TEXTS, normalize=True))
    near(ask(models, path, {"model": name, "inputs": TEXTS[0]}).json, model.embed(TEXTS[:1], normalize=True))
    near(
        ask(models, path, {"model": name, "inputs": TEXTS, "normalize": False}).json,
        model.embed(TEXTS, normalize=False),
    )
    near(ask(models, path, {"model": name, "inputs": TEXTS, "normalize": None}).json, model.embed(TEXTS))
    short = {"model": name, "inputs": TEXTS, "dimensions": 5}
    near(ask(models, path, short).json, unit(model.embed(TEXTS)[:, :5]))
    near(ask(models, path, {**short, "normalize": False}).json, model.embed(TEXTS, normalize=False)[:, :5])


def test_tei_names_prompts(models: dict[str, Model]) -> None:
    body = {"model": "sentences", "inputs": TEXTS}
    near(ask(models, "/embed", {**body, "prompt_name": "none"}).json, models["sentences"].embed(TEXTS, prompt="none"))
    assert ask(models, "/embed", {**body, "prompt_name": "ask"}).status == 422


@pytest.mark.parametrize("name", ["pairs", "sentences"])
def test_tei_gets_a_list_of_ranks(models: dict[str, Model], name: str) -> None:
    body = {"model": name, "query": QUERY, "texts": TEXTS}
    library = models[name].rerank(QUERY, TEXTS)
    ranks = ask(models, "/rerank", body).json
    order = sorted(range(3), key=lambda index: -library[index])
    assert [rank["index"] for rank in ranks] == order
    near([rank["score"] for rank in ranks], [library[index] for index in order])
    assert {frozenset(rank) for rank in ranks} == {frozenset({"index", "score"})}
    repeated = ask(
        models, "/rerank", {**body, "return_text": True, "truncate": True, "truncation_direction": "right"}
    ).json
    assert [rank["text"] for rank in repeated] == [TEXTS[index] for index in order]
    reply = ask(models, "/rerank", {"model": name, "query": QUERY, "passages": TEXTS}).json
    assert reply["results"] == ranks


@pytest.mark.parametrize("name", ["pairs", "duplicates", "novels"])
def test_raw_scores_are_those_of_the_library(models: dict[str, Model], name: str) -> None:
    body = {"model": name, "query": QUERY, "texts": TEXTS, "raw_scores": True}
    library = sorted(models[name].rerank(QUERY, TEXTS, raw_scores=True), reverse=True)
    near([rank["score"] for rank in ask(models, "/rerank", body).json], library)
    if name != "novels":
        shares = sorted(models[name].rerank(QUERY, TEXTS), reverse=True)
        np.testing.assert_allclose(1 / (1 + np.exp(-np.array(library))), shares, rtol=1e-5)


@pytest.mark.parametrize(("path", "version", "repeats"), [("/v1/rerank", "1", True), ("/v2/rerank", "2", False)])
def test_cohere_and_jina_get_results(models: dict[str, Model], path: str, version: str, repeats: bool) -> None:
    documents = [TEXTS[0], {"text": TEXTS[1], "title": "a title"}, TEXTS[2]]
    body = {"model": "pairs", "query": QUERY, "documents": documents, "top_n": 2, "rank_fields": ["text"]}
    library = models["pairs"].rerank(QUERY, TEXTS)
    order = sorted(range(3), key=lambda index: -library[index])[:2]
    reply = ask(models, path, body).json
    assert [result["index"] for result in reply["results"]] == order
    near([result["relevance_score"] for result in reply["results"]], [library[index] for index in order])
    texts = [{"text": TEXTS[index]} for index in order]
    assert [result.get("document") for result in reply["results"]] == (texts if repeats else [None, None])
    other = ask(models, path, {**body, "return_documents": not repeats}).json
    assert [result.get("document") for result in other["results"]] == ([None, None] if repeats else texts)
    tokens = reply["usage"]["tokens_used"]
    assert reply["meta"] == {"api_version": {"version": version}, "tokens": {"input_tokens": tokens}}
    assert (reply["usage"]["total_tokens"], reply["model"]) == (tokens, "pairs")


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: f"{recorded['client']}, {recorded['path']}")
def test_a_recorded_request_is_answered_as_its_client_reads_it(
    models: dict[str, Model], recorded: dict[str, Any]
) -> None:
    async def script(client: Client) -> Reply:
        return await client.send("POST", recorded["path"], [recorded["body"].encode()], recorded["headers"])

    body = json.loads(recorded["body"])
    name = "pairs" if "query" in body else "sentences"
    reply = serve({name: models[name]}, script)
    assert reply.status == 200, reply.error
    if "query" in body:
        library = models[name].rerank(QUERY, TEXTS)
        order = sorted(range(3), key=lambda index: -library[index])[: body.get("top_n")]
        results, score = (reply.json, "score") if "texts" in body else (reply.json["results"], "relevance_score")
        assert [result["index"] for result in results] == order
        near([result[score] for result in results], [library[index] for index in order])
        return
    texts = body.get("input", body.get("inputs"))
    texts = [texts] if isinstance(texts, str) else texts
    vectors = models[name].embed(texts, normalize=True, prompt=body.get("prompt_name"))
    if "input" not in body:
        near(reply.json, vectors)
        return
    sent = [each["embedding"] for each in reply.json["data"]]
    if body["encoding_format"] == "base64":
        sent = [np.frombuffer(base64.b64decode(each), "<f4") for each in sent]
    near(sent, unit(vectors[:, : body.get("dimensions")]))


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/embed", {"inputs": TEXTS, "truncation_direction": "Left"}, 422, "expected 'Right' or 'right'; found 'Left'"),
        ("/embed", {"inputs": ["film " * 90], "truncate": False}, 413, "tokens are too many for the model"),
        ("/embed", {"inputs": []}, 422, "inputs: expected a list of at least 1"),
        ("/embed", {"inputs": [1, 2]}, 422, "expected a text"),
        ("/embed", {"inputs": "a", "dimensions": 99}, 422, "dimensions: the vectors of 'novels' have only 32 numbers"),
        ("/rerank", {"query": "a", "texts": ["b"], "passages": ["b"]}, 422, "either 'passages' or 'texts'; found both"),
        ("/rerank", {"query": "a"}, 422, "either 'passages' or 'texts'; found neither"),
        ("/rerank", {"query": "a", "texts": ["film " * 90], "truncate": False}, 413, "are too many for the model"),
        ("/v1/rerank", {"query": "a", "documents": [{"title": "b"}]}, 422, "documents.0: expected the key 'text'"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "rank_fields": ["title"]}, 422, "expected 'text'"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "max_chunks_per_doc": 9}, 422, "max_chunks_per_doc: "),
        ("/v2/rerank", {"query": "a", "documents": ["b"], "max_tokens_per_doc": 9}, 422, "model truncates; found 9"),
        ("/v2/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, 422, "top_n: expected at least 1"),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "model": "rerank-v3.5"}, 404, "no model 'rerank-v3.5'"),
    ],
)  # fmt: skip
def test_what_a_dialect_asks_for_and_does_not_get_is_refused_in_one_sentence(
    models: dict[str, Model], path: str, body: dict[str, Any], status: int, message: str
) -> None:
    reply = ask({"novels": models["novels"]}, path, body)
    assert (reply.status, message in reply.error) == (status, True), reply.error


def test_tei_is_told_about_the_first_model_that_embeds_or_ranks(models: dict[str, Model]) -> None:
    async def script(client: Client) -> Any:
        return (await client.get("/info")).json

    of_vectors, of_pairs = (serve({name: models[name]}, script) for name in ("sentences", "pairs"))
    assert of_vectors["model_type"] == {"embedding": {"pooling": "cls"}}
    assert (of_vectors["model_id"], of_vectors["max_input_length"]) == ("sentences", 20)
    assert (of_vectors["model_dtype"], of_vectors["auto_truncate"]) == ("float32", True)
    assert set(of_pairs["model_type"]) == {"reranker"}
    assert list(of_pairs["model_type"]["reranker"]["label2id"]) == list(models["pairs"].labels)


def test_texts_sent_to_the_address_of_the_page_need_the_key_and_the_page_does_not(models: dict[str, Model]) -> None:
    async def script(client: Client) -> list[int]:
        key = {"authorization": f"Bearer {KEY}"}
        replies = [
            await client.get("/"),
            await client.post("/", {"inputs": "a"}),
            await client.post("/", {"inputs": "a"}, key),
            await client.get("/info"),
        ]
        return [reply.status for reply in replies]

    assert serve({"novels": models["novels"]}, script, KEY) == [200, 401, 200, 401]


def test_the_client_of_hugging_face_gets_its_vectors(models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import InferenceClient, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # the server is on this machine
    with in_a_thread(create_app({"sentences": models["sentences"]})) as address:
        for url in (address, f"{address}/embed"):
            client = InferenceClient(model=url)
            near(client.feature_extraction(TEXTS[0]), models["sentences"].embed(TEXTS[:1], normalize=True))
            vector = client.feature_extraction(TEXTS[0], normalize=False, prompt_name="none", truncate=True)
            near(vector, models["sentences"].embed(TEXTS[:1], normalize=False, prompt="none"))
