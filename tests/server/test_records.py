"""Models that answer about records are served with the answers of the library, and with its refusals."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import bertsmith
from bertsmith.app.cli.app import main
from bertsmith.app.library.loading import Served, open_model
from bertsmith.base.core import progress
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.randomness import generator
from bertsmith.inference.word_vectors.word_vectors import WordVectors
from codes.sample_events import DISEASES
from server.asgi import Client, Reply
from server.records import load_record_models, write_codes
from server.test_answer_size import serve
from server.test_answer_size import test_the_bound_of_a_route_covers_its_large_replies as covers
from server.test_same_answers import close
from written_files import file_of_records


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models."""
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Served]:
    return load_record_models(folder)


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


@pytest.mark.parametrize("name", ["recommends", "follows"])
@pytest.mark.parametrize("batch_tokens", [2048, 16])
def test_each_subject_gets_the_answers_of_the_library_alone_and_in_any_batch(
    models: dict[str, Served], folder: Path, tmp_path: Path, name: str, batch_tokens: int
) -> None:
    records = subjects(1, 12)
    events = [file_of_records(tmp_path / "all.jsonl", records)]
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
    plagues = sum("plague" in visit["codes"]["diagnosis"] for record in records for visit in record["visits"])
    unknown = f"{plagues} codes not in the vocabulary of the model, read as unknown"
    assert replies[4].json["note"] == replies[6].json["note"] == unknown
    alone = sum(len(record["visits"]) == 1 for record in records)
    earlier = "; with --first-visits a model learns from such visits too"
    subjects_alone = f"{alone} subject{'s' if alone > 1 else ''} with no earlier visits{earlier}"
    assert replies[0].json["note"] == (f"{unknown}; {subjects_alone}" if name == "recommends" else unknown)


STORIES = [
    {"facts": ["Mary went to the garden.", "John went to the office."], "question": "Where is Mary?"},
    {"facts": ["Ann is here."], "question": "Where is Ann?"},
    {"facts": ["One.", "Two words.", "Mary.", "went", "the kitchen"], "question": "Where?"},
]


@pytest.mark.filterwarnings("ignore:.*only the last ones are read")
@pytest.mark.parametrize("batch_tokens", [2048, 1])
def test_each_question_about_facts_gets_the_answer_of_the_library(
    models: dict[str, Served], folder: Path, batch_tokens: int
) -> None:
    async def script(client: Client) -> list[Reply]:
        alone = [client.post("/memory/answer", {"stories": [story]}) for story in STORIES]
        return await asyncio.gather(client.post("/memory/answer", {"stories": STORIES}), *alone)

    together, *alone = serve(models, script, batch_tokens=batch_tokens)
    answers = bertsmith.answer_from_memory(folder / "facts", stories=STORIES, device="cpu")
    close(together.json["predictions"], [answer.to_dict() for answer in answers])
    assert [reply.json["predictions"][0]["facts"] for reply in alone] == [
        *(story["facts"] for story in STORIES[:2]),
        ["Mary.", "went", "the kitchen"],
    ]
    close([reply.json["predictions"][0] for reply in alone], together.json["predictions"])
    assert alone[2].json["usage"] == {"tokens_in": 12, "tokens_used": 7, "tokens_cut": 5}
    unknown = [sum(answer.unknown_words for answer in part) for part in (answers, answers[:1], answers[1:2])]
    notes = [reply.json["note"].partition(" words not in the training stories")[0] for reply in (together, *alone)]
    assert notes[:3] == list(map(str, unknown))
    assert all(reply.json["note"].endswith("'") for reply in alone[:2])


SEGMENTS = [
    {"text": "cut the [MASK]", "codes": ["0.1"]},
    {"text": "[MASK] the [MASK] .", "codes": ["0.2", "1.0", "0.1"]},
    {"text": "cut the [MASK]", "codes": ["1.0"] * 80},
]


@pytest.mark.parametrize("batch_tokens", [2048, 1])
def test_texts_with_codes_get_the_answers_of_the_library(
    models: dict[str, Served],
    folder: Path,
    tmp_path: Path,
    batch_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = tmp_path / "segments.tsv"
    rows = [("cut the pan", "0.1 0.2"), ("wash the apple", "1.0 none"), ("fry", "0.2 0.2")]
    table.write_text("text\tcodes\n" + "".join(f"{text}\t{codes}\n" for text, codes in rows), encoding="utf-8")
    listed = [{"text": text, "codes": codes.split()} for text, codes in rows]

    async def script(client: Client) -> list[Reply]:
        return await asyncio.gather(
            client.post("/codes/fill", {"segments": SEGMENTS, "top": 4}),
            client.post("/codes/next", {"segments": SEGMENTS, "top": 2}),
            client.post("/codes/next", {"segments": [{"codes": ["0.1"]}], "top": 9}),
            client.post("/codes/match", {"text": "cut the onion", "segments": listed}),
            client.post("/codes/match", {"codes": ["0.2", "1.0"], "segments": listed, "top": 2}),
            client.post("/fill", {"texts": ["cut the [MASK]"]}),
        )

    with monkeypatch.context() as context:
        context.setattr(progress, "_silent", 0)
        replies = serve(models, script, batch_tokens=batch_tokens)
    assert {reply.status for reply in replies} == {200}, replies
    assert not capsys.readouterr().err, "requests write nothing to the log"
    filled, followed, after, by_text, by_codes, without = (reply.json for reply in replies)
    model, device = folder / "clips", {"device": "cpu"}
    for segment, gaps, codes in zip(SEGMENTS, filled["predictions"], followed["predictions"], strict=True):
        written = {"text": segment["text"], "codes": " ".join(segment["codes"])}
        (expected,) = bertsmith.fill_codes(model, **written, top=4, **device)
        close(gaps, json.loads(json.dumps(expected.to_dict())))
        expected = [
            {"code": code, "probability": share}
            for code, share in bertsmith.next_codes(model, **written, top=2, **device)
        ]
        close(codes["codes"], expected)
    assert [code["code"] for code in after["predictions"][0]["codes"]] == [
        code for code, _ in bertsmith.next_codes(model, "0.1", top=9, **device)
    ]
    for reply, query in ((by_text, {"text": "cut the onion"}), (by_codes, {"codes": "0.2 1.0", "top": 2})):
        expected = bertsmith.match_codes(model, table, **query, **device)
        assert [rows[result["index"]][0] for result in reply["results"]] == [match.text for match in expected]
        close([result["probability"] for result in reply["results"]], [match.probability for match in expected])
    assert {result["index"]: result["unknown_codes"] for result in by_text["results"]} == {0: 0, 1: 1, 2: 0}
    assert by_text["note"] == "codes that the model does not know, left out: 1"
    assert by_codes["note"] == filled["note"] == ""
    assert filled["usage"]["tokens_cut"] == 80 - (64 - 3 - 3)
    assert followed["usage"]["tokens_cut"] == 81 - (64 - 3 - 3)
    assert filled["usage"]["tokens_in"] == sum((6 + 1, 7 + 3, 6 + 80))
    assert without["model"] == "clips", "it is a model of texts too"


def test_a_list_of_codes_is_of_the_kind_that_a_table_without_kinds_has(models: dict[str, Served]) -> None:
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
        ("fill", {"segments": [{"text": "cut", "codes": ["0.1"]}]}, 422, "expected [MASK] in segment 1; found 'cut'"),
        ("fill", {"segments": [{"text": "[MASK]"}]}, 422, "expected a code in segment 1; found none"),
        (
            "fill",
            {"segments": [{"text": "[MASK]", "codes": ["0.3"]}]},
            422,
            "codes of the model in segment 1; found '0.3'",
        ),
        ("fill", {"segments": [{"text": "[MASK] " * 70, "codes": ["0.1"]}]}, 422, "at most 60 pieces in segment 1"),
        ("next", {"segments": [{"text": "cut"}]}, 422, "expected a code in segment 1; found none"),
        ("next", {"segments": [{"codes": ["0.1"]}], "top": 0}, 422, "top: expected at least 1; found 0"),
        ("match", {"segments": [{"codes": ["0.1"]}]}, 422, "expected either 'text' or 'codes'; found neither"),
        ("match", {"text": " ", "segments": [{"codes": ["0.1"]}]}, 422, "expected a text in segment 1; found an empty"),
        ("match", {"text": "cut", "segments": [{"codes": ["9"]}]}, 422, "codes of the model in segment 1; found none"),
        ("match", {"codes": ["9"], "segments": [{"text": "cut"}]}, 422, "codes of the model in the codes; found '9'"),
        ("match", {"codes": ["0.1"], "segments": [{"codes": ["0.1"]}]}, 422, "expected a text in segment 1; found an"),
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
    models: dict[str, Served], path: str, body: dict[str, Any], status: int, message: str
) -> None:
    async def script(client: Client) -> None:
        reply = await client.post(f"/codes/{path}", body)
        assert reply.status == status, reply
        assert message in reply.error

    serve(models, script, max_texts=8, max_characters=2000, max_tokens=400)


@pytest.mark.parametrize(
    ("story", "message"),
    [
        ({"facts": [], "question": "Where?"}, "stories.0.facts: expected a list of at least 1"),
        ({"facts": [" "], "question": "Where?"}, "expected a list of texts as facts, at least one in story 1"),
        ({"facts": ["a"], "question": ""}, "expected a text as question in story 1; found ''"),
        ({"facts": ["a", "\u200b"], "question": "Where?"}, "in story 1; found a text without any as fact 2"),
        ({"facts": ["a"]}, "stories.0: expected the key 'question'; found none"),
    ],
)
def test_a_story_that_is_none_is_refused(models: dict[str, Served], story: dict[str, Any], message: str) -> None:
    async def script(client: Client) -> None:
        reply = await client.post("/memory/answer", {"stories": [story]})
        assert (reply.status, message in reply.error) == (422, True), reply

    serve(models, script)


def large_requests() -> list[tuple[str, dict[str, Any]]]:
    visit = {"time": "2020-01-01", "codes": {"diagnosis": list(DISEASES), "medication": list(DISEASES.values())}}
    named = [{"subject": "\x01" * 50, "visits": [visit] * 9}] * 20
    return [
        ("/codes/predict", {"subjects": [{"visits": [visit]}] * 100, "model": "follows", "threshold": 0}),
        ("/codes/predict", {"subjects": named, "top": 1}),
        ("/codes/anomalies", {"subjects": named}),
        ("/codes/embed", {"subjects": named}),
        ("/codes/fill", {"segments": [{"text": "[MASK] " * 20, "codes": ["0.1"] * 20}] * 9, "top": 20}),
        ("/codes/next", {"segments": [{"codes": ["0.1"]}] * 99, "top": 3}),
        ("/codes/match", {"text": "cut", "segments": [{"codes": ["0.1"]}] * 99}),
        ("/memory/answer", {"stories": [{"facts": ["\x01a"] * 3, "question": "b"}] * 99}),
    ]


@pytest.mark.parametrize(("path", "body"), large_requests())
def test_the_bound_of_a_route_of_records_covers_its_large_replies(
    models: dict[str, Served], path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    covers(models, path, body, monkeypatch)


def test_answers_that_would_take_too_much_memory_are_refused(models: dict[str, Served]) -> None:
    async def script(client: Client) -> None:
        many = {"subjects": [{"visits": [{"codes": {"diagnosis": ["flu"]}}]}] * 100}
        reply = await client.post("/codes/predict", many)
        assert (reply.status, reply.error.endswith("lower top, or split it")) == (413, True)
        assert (await client.post("/codes/predict", {**many, "top": 1})).status == 200
        named = {"subjects": [{**many["subjects"][0], "subject": "x" * 30_000}] * 2}
        assert (await client.post("/codes/anomalies", named)).status == 413

    serve(models, script, max_held=400_000)


def test_health_models_and_metrics_know_models_of_records(models: dict[str, Served]) -> None:
    async def script(client: Client) -> None:
        (shown, *_) = (await client.get("/models")).json["models"]
        assert (shown["name"], shown["task"], shown["width"]) == ("recommends", "codes", 64)
        assert shown["abilities"] == ["predict_codes", "find_anomalies", "embed_subjects"]
        assert shown["kinds"] == {"diagnosis": list(DISEASES), "medication": list(DISEASES.values())}
        assert shown["labels"] == list(DISEASES.values())
        assert (await client.post("/codes/embed", {"subjects": subjects(2, 3)})).status == 200
        counted = (await client.get("/metrics")).body.decode()
        assert 'bertsmith_texts_total{ability="embed_subjects",model="recommends"} 3.0' in counted
        assert 'bertsmith_requests_total{route="/codes/embed",status="200"} 1.0' in counted
        reply = await client.post("/tag", {"texts": ["a"]})
        assert (reply.status, "answers /codes/predict" in reply.error) == (400, True)

    serve(models, script)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("recommends", "found a model of visits; use it with `bertsmith codes predict` or `serve`"),
        ("facts", "found a memory network; use it with `bertsmith memory answer` or `serve`"),
        ("clips", "ask it with `bertsmith codes fill`, `match` or `next`, or fine-tune it first"),
    ],
)
@pytest.mark.usefixtures("models")
def test_predict_says_which_command_to_use(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    (folder / "texts.csv").write_text("text\na text\n", encoding="utf-8")
    command = ["bertsmith", "predict", "--model", str(folder / name), "--data", str(folder / "texts.csv")]
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_options_that_a_model_in_fp32_does_not_have_are_refused(tmp_path: Path) -> None:
    path = write_codes(tmp_path / "model", recommends=True)
    for option in ({"precision": "bf16"}, {"products": "packed"}):
        (name,) = option
        with pytest.raises(BertsmithError, match=f"a model of texts for --{name}; found another one in"):
            open_model(path, device="cpu", **option)
