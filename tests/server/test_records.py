"""Models that answer about records are served with the answers of the library, and with its refusals."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import bertsmith
from bertsmith.app.library.loading import open_model
from bertsmith.app.library.record_models import RecordModel
from bertsmith.app.server.app import create_app
from bertsmith.app.server.settings import ServerSettings
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.randomness import generator
from bertsmith.inference.word_vectors.word_vectors import WordVectors
from codes.sample_events import DISEASES
from server.asgi import Client, Reply, running
from server.records import load_record_models, write_codes
from server.test_same_answers import close


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models."""
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, RecordModel]:
    return load_record_models(folder)


def serve(models: Any, script: Callable[[Client], Awaitable[Any]], **limits: Any) -> Any:
    async def run() -> Any:
        async with asyncio.timeout(60), running(create_app(models, ServerSettings(**limits))) as client:
            result = await script(client)
            assert client.app.service.held.count == 0, "nothing stays held"
            return result

    return asyncio.run(run())


def subjects(seed: int, count: int) -> list[dict[str, Any]]:
    """Random subjects with up to four visits, some with codes of one kind, or that no model knows."""
    draw = generator(seed, "subjects")
    result = []
    for number in range(count):
        visits = []
        for visit in range(int(draw.integers(1, 5))):
            diseases = draw.permutation(list(DISEASES))[: 1 + draw.integers(3)].tolist()
            codes = {"diagnosis": [*diseases, *(["plague"] if draw.random() < 0.2 else [])]}
            if draw.random() < 0.7:
                codes["medication"] = [DISEASES[name] for name in diseases]
            visits.append({"time": f"2020-01-{1 + visit:02}", "codes": codes})
        result.append({"subject": f"p{number}", "visits": visits})
    return result


def visits_file(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["recommends", "follows"])
@pytest.mark.parametrize("batch_tokens", [2048, 16])
def test_each_subject_gets_the_answers_of_the_library_alone_and_in_any_batch(
    models: dict[str, RecordModel], folder: Path, tmp_path: Path, name: str, batch_tokens: int
) -> None:
    records = subjects(1, 12)
    events = [visits_file(tmp_path / "all.jsonl", records)]
    options = [{"top": 3}, {"threshold": 0.5}, {"top": 2, "threshold": 0.45}, {}]

    async def script(client: Client) -> list[Reply]:
        alone = [client.post("/codes/predict", {"model": name, "subjects": [row], "top": 3}) for row in records]
        asked = [("predict", option) for option in options]
        asked += [("anomalies", {}), ("anomalies", {"top": 3}), ("embed", {})]
        together = [
            client.post(f"/codes/{path}", {"model": name, "subjects": records, **option}) for path, option in asked
        ]
        return await asyncio.gather(*together, *alone)

    replies = serve(models, script, batch_tokens=batch_tokens)
    assert {reply.status for reply in replies} == {200}
    served = [reply.json["predictions"] for reply in replies]
    model = folder / name
    for predictions, option in zip(served, options, strict=False):
        close(predictions, [row.to_dict() for row in bertsmith.predict_codes(events, model, **option, device="cpu")])
    for predictions, top in zip(served[4:], (None, 3), strict=False):
        rows = bertsmith.find_anomalies(events, model, top=top, device="cpu")
        assert len(rows) == (3 if top else sum(len(record["visits"]) for record in records))
        close(predictions, [row.to_dict() for row in rows])
    vectors: WordVectors = bertsmith.embed_subjects(events, model, tmp_path / "vectors", device="cpu")
    for vector in served[6]:
        close(vector["vector"], vectors.vector(vector["subject"]).tolist())
    close([of_one[0] for of_one in served[7:]], served[0])
    usage = replies[0].json["usage"]
    assert usage["tokens_in"] == usage["tokens_used"] > 2 * len(records)


def test_a_list_of_codes_is_of_the_kind_that_a_table_without_kinds_has(models: dict[str, RecordModel]) -> None:
    async def script(client: Client) -> None:
        reply = await client.post("/codes/predict", {"subjects": [{"visits": [{"codes": ["flu"]}]}]})
        expected = "expected events of the kinds that the model reads, diagnosis and medication; found only code"
        assert (reply.status, reply.error.split(";")[:2]) == (422, expected.split(";"))

    serve(models, script)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("predict", {}, 422, "expected the key 'subjects'; found none"),
        ("predict", {"subjects": []}, 422, "subjects: expected a list of at least 1"),
        ("predict", {"subjects": [{"visits": []}]}, 422, "subjects.0.visits: expected a list of at least 1"),
        ("predict", {"subjects": [{"visits": [{"codes": [1]}]}]}, 422, "expected a text; found 1"),
        ("predict", {"subjects": [{"visits": [{"codes": {"diagnosis": "flu"}}]}]}, 422, "a list; found a text"),
        (
            "predict",
            {"subjects": [{"visits": [{"codes": {"diagnosis": [" "]}}]}]},
            422,
            "visit 1 in subject 1; found",
        ),
        ("anomalies", {"subjects": [{"visits": [{"codes": {}}]}]}, 422, "diagnosis and medication; found none"),
        (
            "embed",
            {"subjects": [{"visits": [{"time": "May", "codes": {"diagnosis": ["flu"]}}]}]},
            422,
            "expected ISO dates, or numbers, as the times of all visits in subject 1; found ['May']",
        ),
        (
            "predict",
            {"subjects": [{"visits": [{"codes": ["a"], "when": 1}]}]},
            422,
            "expected a known key; found 'when'",
        ),
        ("predict", {"subjects": [{"visits": [{"codes": {"diagnosis": ["flu"]}}]}], "top": 0}, 422, "top: expected at"),
        (
            "predict",
            {"subjects": [{"visits": [{"codes": {"diagnosis": ["flu"]}}]}] * 9},
            413,
            "9 texts; the limit is 8",
        ),
        ("predict", {"subjects": [{"visits": [{"codes": {"diagnosis": ["x" * 2001]}}]}]}, 413, "2,001 characters"),
        (
            "predict",
            {"subjects": [{"visits": [{"codes": {"diagnosis": [str(n) for n in range(500)]}}]}]},
            413,
            "the request has 501 tokens; the limit is 400",
        ),
        (
            "anomalies",
            {"subjects": [{"visits": [{"codes": {"diagnosis": [str(n) for n in range(30)]}}]}]},
            413,
            "the request has 930 tokens; the limit is 400",
        ),
    ],
)
def test_bad_requests_get_one_sentence(
    models: dict[str, RecordModel], path: str, body: dict[str, Any], status: int, message: str
) -> None:
    async def script(client: Client) -> None:
        reply = await client.post(f"/codes/{path}", body)
        assert reply.status == status, reply
        assert message in reply.error

    serve(models, script, max_texts=8, max_characters=2000, max_tokens=400)


def test_answers_that_would_take_too_much_memory_are_refused(models: dict[str, RecordModel]) -> None:
    async def script(client: Client) -> None:
        many = {"subjects": [{"visits": [{"codes": {"diagnosis": ["flu"]}}]}] * 100}
        reply = await client.post("/codes/predict", many)
        assert (reply.status, reply.error.endswith("lower top, or split it")) == (413, True)
        assert (await client.post("/codes/predict", {**many, "top": 1})).status == 200
        named = {"subjects": [{**many["subjects"][0], "subject": "x" * 30_000}] * 2}
        assert (await client.post("/codes/anomalies", named)).status == 413

    serve(models, script, max_held=400_000)


def test_health_models_and_metrics_know_models_of_records(models: dict[str, RecordModel]) -> None:
    async def script(client: Client) -> None:
        (shown, _) = (await client.get("/models")).json["models"]
        assert (shown["name"], shown["task"], shown["width"]) == ("recommends", "codes", 64)
        assert shown["abilities"] == ["predict_codes", "find_anomalies", "embed_subjects"]
        assert shown["kinds"] == {"diagnosis": list(DISEASES), "medication": list(DISEASES.values())}
        assert shown["labels"] == list(DISEASES.values())
        assert (await client.post("/codes/embed", {"subjects": subjects(2, 3)})).status == 200
        counted = (await client.get("/metrics")).body.decode()
        assert 'bertsmith_texts_total{ability="embed_subjects",model="recommends"} 3.0' in counted
        assert 'bertsmith_requests_total{route="/codes/embed",status="200"} 1.0' in counted
        reply = await client.post("/fill", {"texts": ["a [MASK]"]})
        assert (reply.status, "has predict_codes" in reply.error) == (400, True)

    serve(models, script)


def test_options_that_a_model_in_fp32_does_not_have_are_refused(tmp_path: Path) -> None:
    path = write_codes(tmp_path / "model", recommends=True)
    for option in ({"precision": "bf16"}, {"products": "packed"}):
        (name,) = option
        with pytest.raises(BertsmithError, match=f"a model of texts for --{name}; found 'g-bert' in"):
            open_model(path, device="cpu", **option)
