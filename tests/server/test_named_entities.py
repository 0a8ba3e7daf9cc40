"""The route `/tag` with labels in the request."""

from pathlib import Path

import pytest

import bertsmith
from bertsmith import Model
from checkpoints.gliner_folders import write_gliner
from server.asgi import Client
from server.test_records import serve
from tasks.test_named_entities import TEXT, folder

__all__ = ["folder"]  # a fixture


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Model]:
    return {"names": bertsmith.load(folder)}


def test_labels_of_a_request_are_answered_as_by_the_library(models: dict[str, Model]) -> None:
    labels = {"film": "the bad", "plot": ""}

    async def script(client: Client) -> None:
        reply = await client.post(
            "/tag", {"texts": [TEXT, "a film"], "labels": labels, "threshold": 0, "overlap": "none"}
        )
        assert reply.status == 200, reply.error
        answers = models["names"].tag([TEXT, "a film"], labels, threshold=0.0, overlap="none")
        for shown, answer in zip(reply.json["predictions"], answers, strict=True):
            assert [(entity["type"], entity["text"]) for entity in shown["entities"]] == [
                (entity.type, entity.text) for entity in answer.entities
            ]
        # [CLS] and two [SEP], film : the bad [MASK] plot [MASK], and the words
        assert reply.json["usage"]["tokens_in"] == 2 * (3 + 7) + 7 + 2
        assert (await client.post("/tag", {"texts": [TEXT], "threshold": 1})).json["predictions"][0]["entities"] == []

    serve(models, script)


def test_long_texts_are_answered_where_entities_share_no_words(tmp_path: Path) -> None:
    """Then an answer is no longer than the text, although an entity may have any number of words."""
    model = bertsmith.load(write_gliner(tmp_path / "model", mode="token_level"), device="cpu")
    text = "anna was in oslo and it was a good film . " * 30

    async def script(client: Client) -> None:
        body = {"texts": [text], "labels": ["who", "where"], "threshold": 0.4}
        reply = await client.post("/tag", body)
        assert reply.status == 200, reply.error
        (shown,) = reply.json["predictions"]
        (answer,) = model.tag([text], ["who", "where"], threshold=0.4)
        assert [(e["type"], e["text"]) for e in shown["entities"]] == [(e.type, e.text) for e in answer.entities]
        refused = await client.post("/tag", {**body, "overlap": "any"})
        assert refused.status == 413, refused.error

    serve({"names": model}, script, max_held=2**24)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"labels": ["film", "film"]}, "different labels"),
        ({"labels": ["film " * 40]}, "labels of at most 21 pieces"),
        ({"labels": []}, "labels"),
        ({"overlap": "some"}, "overlap"),
        ({"threshold": 2}, "threshold"),
    ],
)
def test_what_cannot_be_asked_is_refused(models: dict[str, Model], body: dict[str, object], message: str) -> None:
    async def script(client: Client) -> None:
        reply = await client.post("/tag", {"texts": [TEXT], **body})
        assert (reply.status, message in reply.error) == (422, True), reply.error

    serve(models, script)
