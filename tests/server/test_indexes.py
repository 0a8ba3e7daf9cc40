"""Indexes over HTTP: searched as by the library, changed with a key, and never with a 500."""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import build_index, load, remove_from_index, search_passages
from bertsmith.app.library.loading import load_indexes
from bertsmith.app.library.model import Model
from bertsmith.app.library.open_index import OpenIndex
from bertsmith.app.library.record_models import ModelWithRecords
from bertsmith.app.server.app import create_app
from bertsmith.app.server.settings import ServeRequest, ServerSettings
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.base.storage.locks import locked_folder
from bertsmith.inference.indexes import building, parts
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.inference.indexes.segment import Segment
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from checkpoints.sparse_folder import write_sparse
from search.late_samples import write_late
from server.asgi import Client, Reply, running
from tasks.task_samples import CONFIG, TOKENIZER, write_base_model
from written_files import file_of_records

KEY = "a key of the index"
TEXTS = ["anna was in rome", "the plot was awful", "a great film", "bert was in oslo", "good plot and great film"]
ROWS = [{"id": f"t{number}", "text": text, "year": 2000 + number} for number, text in enumerate(TEXTS)]
QUERIES = ["who was in rome", "a film"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_base_model(tmp_path_factory.mktemp("model") / "model", 4))


@pytest.fixture
def folder(model: Path, tmp_path: Path) -> Path:
    """An index of TEXTS."""
    build_index(file_of_records(tmp_path / "texts.jsonl", ROWS), tmp_path / "films", model=model)
    return tmp_path / "films"


def serve(
    folder: Path, script: Callable[[Client], Awaitable[Any]], *, index_key: str | None = KEY, **settings: Any
) -> Any:
    """The result of a script with a client of a server of an index."""

    async def run() -> Any:
        models = load_indexes([str(folder)], {}, is_changed=index_key is not None, device="cpu")
        app = create_app(models, ServerSettings(**settings), None, None, index_key)
        async with asyncio.timeout(60), running(app) as client:
            return await script(client)

    result = asyncio.run(run())
    end_compactions()
    return result


def end_compactions() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("compaction of "):
            thread.join()


def ask(folder: Path, *requests: tuple[str, Mapping[str, Any]], **options: Any) -> list[Reply]:
    """The replies to requests with the key, one after another."""

    async def script(client: Client) -> list[Reply]:
        return [await change(client, path, body) for path, body in requests]

    return list(serve(folder, script, **options))


def change(client: Client, path: str, body: Mapping[str, Any]) -> Awaitable[Reply]:
    return client.post(path, body, {"authorization": f"Bearer {KEY}"})


def results_of(folder: Path, queries: list[str], **options: Any) -> list[dict[str, Any]]:
    """What the library finds."""
    options = {"system" if name == "method" else name: value for name, value in options.items()}
    return [result.to_dict() for result in search_passages(folder, queries, **options)]


def require_same(served: list[Any], bare: list[Any]) -> None:
    """Numbers are equal within the tolerance of the library, everything else exactly."""
    for reply, result in zip(served, bare, strict=True):
        for hit, passage in zip(reply["passages"], result["passages"], strict=True):
            assert hit == {**passage, "score": pytest.approx(passage["score"], abs=BATCH_TOLERANCE)}
        assert {**reply, "passages": []} == {**result, "passages": []}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top": 2},
        {"where": ["year >= 2002", "year != 2003"]},
        {"exact": True},
        {"method": "bm25"},
        {"method": "hybrid", "top": 3},
        {"by": ["words", "dense"], "fuse": "scores", "depth": 2},
    ],
)
def test_a_search_finds_what_the_library_finds(folder: Path, model: Path, options: dict[str, Any]) -> None:
    several, single = ask(
        folder, ("/search", {"queries": QUERIES, **options}), ("/search", {"query": QUERIES[0], **options})
    )
    require_same(several.json["results"], results_of(folder, QUERIES, **options))
    require_same(single.json["results"], results_of(folder, QUERIES[:1], **options))
    assert several.json["model"] == "films"
    assert several.json["usage"]["tokens_in"] == sum(load(model, device="cpu").tokens(QUERIES, "embed"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Models of sparse vectors and of vectors of tokens."""
    folder = tmp_path_factory.mktemp("others")
    return [write_sparse(folder / "sparse"), write_late(folder / "late", prefixes=("who ", "it "))]


def test_all_kinds_of_vectors_are_searched_extended_and_re_ranked(
    model: Path, others: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, folder = file_of_records(tmp_path / "texts.jsonl", ROWS[:4]), tmp_path / "films"
    build_index(texts, folder, model=model, also=others)
    late, plain = load(others[1], device="cpu"), load(model, device="cpu")
    requests: list[dict[str, Any]] = [
        {"by": ["sparse"]},
        {"by": ["dense", "sparse", "tokens", "words"], "top": 3},
        {"by": ["words", "sparse"], "rerank": "late", "depth": 3, "top": 2},
        {"method": "bm25", "rerank": "plain", "depth": 3, "top": 2},
    ]

    async def run() -> tuple[Reply, list[Reply]]:
        indexes = load_indexes([str(folder)], {}, is_changed=True, device="cpu")
        app = create_app({**indexes, "late": late, "plain": plain}, ServerSettings(), None, None, KEY)
        async with asyncio.timeout(60), running(app) as client:
            added = await change(client, "/index/add", {"rows": ROWS[4:]})
            return added, [await client.post("/search", {"queries": QUERIES, **each}) for each in requests]

    searches = list[Any]()
    search = OpenIndex.search
    monkeypatch.setattr(OpenIndex, "search", lambda *args, **options: searches.append(1) or search(*args, **options))
    added, replies = asyncio.run(run())
    assert added.json["changes"][0]["rows"] == 5, added
    assert len(searches) == len(requests)
    for body, reply in zip(requests[:3], replies, strict=False):
        options = {**body, "rerank": others[1]} if "rerank" in body else body
        require_same(reply.json["results"], results_of(folder, QUERIES, **options))
    first = results_of(folder, QUERIES, system="bm25", top=3)
    for query, result, before in zip(QUERIES, replies[3].json["results"], first, strict=True):
        passages = [hit["text"] for hit in before["passages"]]
        best = sorted(zip(plain.rerank(query, passages), passages, strict=True), reverse=True)[:2]
        assert [hit["text"] for hit in result["passages"]] == [text for _, text in best]
        assert [hit["score"] for hit in result["passages"]] == pytest.approx([score for score, _ in best], abs=1e-5)


def test_an_index_of_vectors_of_tokens_alone_is_served(others: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "films"
    build_index(file_of_records(tmp_path / "texts.jsonl", ROWS[:4]), folder, model=others[1])
    added, several = ask(folder, ("/index/add", {"rows": ROWS[4:]}), ("/search", {"queries": QUERIES}))
    assert added.json["changes"][0]["rows"] == 5, added
    require_same(several.json["results"], results_of(folder, QUERIES))


def test_vectors_are_searched_as_their_texts(folder: Path, model: Path) -> None:
    vectors = load(model, device="cpu").embed(QUERIES)
    texts, numbers = ask(
        folder, ("/search", {"queries": QUERIES}), ("/search", {"vectors": (7 * vectors).tolist(), "model": "films"})
    )
    assert [result["query"] for result in numbers.json["results"]] == ["", ""]
    require_same([{**result, "query": ""} for result in texts.json["results"]], numbers.json["results"])


def test_added_rows_are_those_of_a_file_and_replace_those_with_their_ids(
    folder: Path, model: Path, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "t1", "text": "carl was good", "year": 2030},
        {"id": "new", "title": "Oslo", "text": "a film in oslo", "year": None, "place": "oslo"},
        {"id": "empty", "text": "", "year": 1},
    ]
    other = tmp_path / "other"
    build_index(tmp_path / "texts.jsonl", other, model=model)
    of_file = build_index(file_of_records(tmp_path / "more.jsonl", rows), other, add=True)
    added, hits = ask(folder, ("/index/add", {"rows": rows}), ("/search", {"queries": QUERIES}))
    assert added.json["changes"] == [of_file.to_dict()]
    assert added.json["note"] == (
        "1 row without text skipped; columns that the index does not have are left out: 'place', 'title'"
    )
    require_same(hits.json["results"], results_of(other, QUERIES))
    name = Manifest.read(other).segments[-1].name  # the server compacts the segment before it
    for file in ("rows.arrow", "ids.npy", "vectors.npy"):
        assert (folder / name / file).read_bytes() == (other / name / file).read_bytes()


def test_removed_rows_are_not_found_and_an_unknown_id_removes_nothing(folder: Path) -> None:
    unknown, removed, hits = ask(
        folder,
        ("/index/remove", {"ids": ["t0", "t99"]}),
        ("/index/remove", {"ids": ["t0", "t3"]}),
        ("/search", {"query": "anna"}),
    )
    assert (unknown.status, "'t99', which no row has" in unknown.error) == (422, True)
    assert removed.json["changes"][0]["rows"] == 3
    assert {hit["id"] for hit in hits.json["results"][0]["passages"]} == {"t1", "t2", "t4"}


def test_an_index_is_changed_only_with_its_key(folder: Path) -> None:
    rows = {"rows": [{**ROWS[0], "id": "new"}]}

    async def script(client: Client) -> list[tuple[int, str]]:
        said = (None, "Basic x", "Bearer another key", f"Bearer {KEY}")
        headers = [{} if value is None else {"authorization": value} for value in said]
        replies = [await client.post("/index/add", rows, header) for header in headers]
        return [(reply.status, "" if reply.status == 200 else reply.error) for reply in replies]

    wrong = (401, "expected this server's index key in the header authorization: Bearer KEY")
    assert serve(folder, script) == [wrong, wrong, wrong, (200, "")]
    refused = serve(folder, script, index_key=None)
    assert set(refused) == {(403, "this server changes no index; start it with --index-key-file")}
    assert Manifest.read(folder).changes == 2


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/search", {}, 422, "expected one of 'query', 'queries' and 'vectors'; found none of them"),
        ("/search", {"query": "a", "vectors": [[1.0]]}, 422, "found 'query' and 'vectors'"),
        ("/search", {"query": " "}, 422, "expected a text as query 1; found an empty one"),
        ("/search", {"vectors": [[1.0, 2.0]]}, 422, "found 2 numbers in vector 1"),
        ("/search", {"vectors": [[1.0] * 32], "method": "bm25"}, 422, "found vectors; send texts"),
        ("/search", {"query": "a", "where": ["year"]}, 422, "expected a condition such as 'year >= 2020'"),
        ("/search", {"query": "a", "where": ["yaer = 1"]}, 422, "unknown column of the index 'yaer'; did you mean"),
        ("/search", {"query": "a", "by": []}, 422, "expected kinds of search in 'by'; found none; name some"),
        ("/search", {"query": "a", "top": 0}, 422, "top: expected at least 1"),
        ("/search", {"queries": ["a"] * 101, "top": 1000}, 422, "found 101 queries and 1,000 texts for each"),
        ("/search", {"queries": ["a"] * 101, "rerank": "m", "depth": 1000}, 422, "at most 100,000 texts in all"),
        ("/search", {"query": "a", "model": "others"}, 404, "no model 'others' is served here; there is 'films'"),
        ("/index/add", {"rows": [{"text": "a"}]}, 422, "expected an id in every row; found none in row 1"),
        ("/index/add", {"rows": [{"id": "a"}]}, 422, "expected a text column in the rows; found column 'id'"),
        ("/index/add", {"rows": [{"id": "a", "text": "b"}, {"id": "a", "text": "c"}]}, 422, "found 'a' twice"),
        ("/index/add", {"rows": [{"id": "a", "text": ""}]}, 422, "expected texts to index; found none"),
        ("/index/add", {"rows": [{"id": "a", "text": "b"}] * 9}, 413, "the request has 9 texts; the limit is 8"),
        ("/index/remove", {"ids": []}, 422, "ids: expected a list of at least 1"),
        ("/fill", {"texts": ["a [MASK]"]}, 400, "'films' answers /v1/embeddings, /embed, /, /rerank, "),
    ],
)  # fmt: skip
def test_a_request_that_is_wrong_gets_one_sentence_and_changes_nothing(
    folder: Path, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    wrong, right = ask(folder, (path, body), ("/search", {"query": "anna"}), max_texts=8)
    assert (wrong.status, message in wrong.error) == (status, True), wrong.error
    assert right.status == 200
    assert Manifest.read(folder).changes == 1


def test_two_writers_are_refused_and_the_search_goes_on(folder: Path) -> None:
    async def script(client: Client) -> tuple[Reply, Reply, Reply]:
        with locked_folder(folder):
            busy = await change(client, "/index/add", {"rows": ROWS[:1]})
            hits = await client.post("/search", {"query": "anna"})
        return busy, hits, await change(client, "/index/add", {"rows": ROWS[:1]})

    busy, hits, added = serve(folder, script)
    assert (busy.status, hits.status, added.status) == (409, 200, 200), busy
    assert str(folder) in busy.error


def held(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> tuple[threading.Event, threading.Event]:
    """A function of a module sets the first event, and then waits for the second one before it does its work."""
    begun, may_end, function = threading.Event(), threading.Event(), getattr(module, name)

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert may_end.wait(120), "the other requests are answered"
        return function(*arguments)

    monkeypatch.setattr(module, name, slow)
    return begun, may_end


def test_an_index_is_searched_while_rows_are_added(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = held(monkeypatch, parts, "with_vectors")

    async def script(client: Client) -> list[Reply]:
        adding = asyncio.ensure_future(change(client, "/index/add", {"rows": [{"id": "new", "text": "anna"}]}))
        await asyncio.to_thread(begun.wait, 120)
        before = await client.post("/search", {"query": "anna"})
        may_end.set()
        return [before, await adding, await client.post("/search", {"query": "anna"})]

    before, added, after = serve(folder, script)
    assert [len(reply.json["results"][0]["passages"]) for reply in (before, after)] == [5, 6]
    assert added.json["changes"][0]["added"] == 1


def test_many_small_additions_are_compacted_while_requests_are_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    write, join = parts.with_words, building._joined

    def slow(written: Path, *arguments: Any) -> Any:
        if written.name == building.COMPACTING:
            begun.set()
            assert may_end.wait(120), "the requests are answered"
        return write(written, *arguments)

    def slow_join(*arguments: Any) -> Any:
        time.sleep(0.2)  # while the next request arrives
        return join(*arguments)

    monkeypatch.setattr(parts, "with_words", slow)
    monkeypatch.setattr(building, "_joined", slow_join)

    def row(number: int) -> dict[str, Any]:
        return {"rows": [{"id": f"n{number}", "text": f"anna {number}", "year": 1}]}

    async def script(client: Client) -> list[Reply]:
        replies = [await change(client, "/index/add", row(number)) for number in range(8)]
        await asyncio.to_thread(begun.wait, 120)
        replies += [
            await client.post("/search", {"query": "anna", "top": 100}),
            await change(client, "/index/add", row(8)),
            await change(client, "/index/remove", {"ids": ["n0", "t1"]}),
        ]
        may_end.set()
        while (folder / building.COMPACTING).exists():
            await asyncio.sleep(0.01)
        return [*replies, await client.post("/search", {"query": "anna", "top": 100})]

    replies = serve(folder, script)
    assert [reply.status for reply in replies] == [200] * 12
    before, after = ({hit["id"] for hit in replies[position].json["results"][0]["passages"]} for position in (8, -1))
    assert before == {"t0", "t1", "t2", "t3", "t4", *(f"n{number}" for number in range(8))}
    assert after == before - {"n0", "t1"} | {"n8"}
    manifest = Manifest.read(folder)
    assert (manifest.rows, len(manifest.segments) < 4) == (12, True)


def test_a_change_after_a_reload_waits_for_the_compaction_of_the_index_before_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = held(monkeypatch, building, "_joined")

    def loaded(*_: Any) -> Any:
        return load_indexes([str(folder)], {}, is_changed=True, device="cpu")

    async def run() -> list[int]:
        app = create_app(loaded(), ServerSettings(), KEY, None, KEY, loaded)
        async with asyncio.timeout(240), running(app) as client:
            rows = [{"rows": [{"id": f"n{number}", "text": "anna", "year": 1}]} for number in range(8)]
            replies = [await change(client, "/index/add", body) for body in rows[:7]]
            await asyncio.to_thread(begun.wait, 120)
            replies.append(await change(client, "/reload", {}))
            adding = asyncio.ensure_future(change(client, "/index/add", rows[7]))
            await asyncio.sleep(0.1)
            may_end.set()
            return [reply.status for reply in (*replies, await adding)]

    assert asyncio.run(run()) == [200] * 9
    end_compactions()
    assert Manifest.read(folder).rows == 13


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_of_the_index_before_a_change_stays_open(folder: Path) -> None:
    async def script(client: Client) -> None:
        for number in range(18):
            row = {"id": f"n{number}", "text": f"anna {number}", "year": 1}
            assert (await change(client, "/index/add", {"rows": [row]})).status == 200
            if number % 4 == 3:
                assert (await change(client, "/index/remove", {"ids": [f"n{number - 1}"]})).status == 200
            end_compactions()
            for method in ("vectors", "bm25"):
                await client.post("/search", {"query": "anna", "method": method})
            gc.collect()
            known = {each.name for each in Manifest.read(folder).segments}
            mapped = {line.partition(str(folder))[2] for line in Path("/proc/self/maps").read_text().splitlines()}
            assert {path.split("/")[1] for path in mapped if "/" in path} == known
            every = (each for each in gc.get_objects() if isinstance(each, Segment))
            assert sum(each.folder.parent == folder for each in every) == len(known)

    serve(folder, script)
    assert len(Manifest.read(folder).segments) < 10, "some were compacted"


def test_a_compaction_that_fails_is_logged_and_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = threading.Event()

    def full(*arguments: Any) -> None:
        failed.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(building, "_copied", full)

    async def script(client: Client) -> list[Reply]:
        rows = [{"rows": [{"id": f"n{number}", "text": "anna", "year": 1}]} for number in range(7)]
        replies = [await change(client, "/index/add", body) for body in rows]
        await asyncio.to_thread(failed.wait, 120)
        while (folder / building.COMPACTING).exists():
            await asyncio.sleep(0.01)
        return [*replies, await client.post("/search", {"query": "anna", "top": 100})]

    replies = serve(folder, script)
    assert [reply.status for reply in replies] == [200] * 8
    assert len(replies[-1].json["results"][0]["passages"]) == 12
    assert "was not compacted, and stays as it was: [Errno 28] No space left" in capsys.readouterr().err


def test_a_change_of_another_process_is_seen_and_an_index_that_is_gone_is_still_searched(folder: Path) -> None:
    async def script(client: Client) -> list[int]:
        sizes = []
        for step in (lambda: None, lambda: remove_from_index(folder, id=["t2"]), (folder / "index.json").unlink):
            step()
            reply = await client.post("/search", {"query": "anna"})
            sizes.append(len(reply.json["results"][0]["passages"]))
        gone = await change(client, "/index/add", {"rows": ROWS[:1]})
        assert gone.status == 422, gone
        return sizes

    assert serve(folder, script) == [5, 4, 4]


def test_an_index_of_another_model_in_its_place_is_served_only_after_a_reload(
    folder: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    save_pretrained(other, untrained(CONFIG, seed=5), TOKENIZER, ModelMetadata.from_dict({"task": "pretraining"}))

    async def script(client: Client) -> tuple[list[Any], Reply]:
        before = await client.post("/search", {"query": "anna"})
        folder.rename(tmp_path / "old")
        build_index(tmp_path / "texts.jsonl", folder, model=other)
        after = [await client.post("/search", {"query": "anna"}) for _ in range(2)]
        return [reply.json["results"] for reply in (before, *after)], await change(
            client, "/index/add", {"rows": ROWS[:1]}
        )

    results, added = serve(folder, script)
    assert results[0] == results[1] == results[2]
    assert capsys.readouterr().err.count("was built again with another model (model)") == 1
    assert (added.status, "others (model)" in added.error) == (422, True)


def test_what_a_change_leaves_is_not_opened_again(folder: Path, tmp_path: Path) -> None:
    before = Index(folder)
    remove_from_index(folder, id=["t1"])
    build_index(file_of_records(tmp_path / "more.jsonl", [{"id": "new", "text": "anna", "year": 1}]), folder, add=True)
    after, reopened = Index(folder, earlier=before), Index(folder)
    assert after.segments[0].vectors["dense"] is before.segments[0].vectors["dense"]
    queries = np.asarray(reopened.segments[0].vectors["dense"].stored(np.arange(2)))
    for index in (after, reopened):
        assert index.search(queries, 9).row(1) == reopened.search(queries, 9).row(1)
        words = index.by_words(k1=1.2, b=0.75).search(["anna in rome"], 9)
        assert words.row(0) == reopened.by_words(k1=1.2, b=0.75).search(["anna in rome"], 9).row(0)
    assert len(before.search(queries, 9).row(0)) == 5
    folder.rename(tmp_path / "old")
    build_index(tmp_path / "texts.jsonl", folder, model=Manifest.read(tmp_path / "old").first.model)
    assert Index(folder, earlier=before).segments[0].vectors["dense"] is not before.segments[0].vectors["dense"]


def test_an_addition_that_fails_leaves_the_index_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = parts.with_vectors
    faults = iter([OSError(28, "No space left on device"), None])

    def failing(*arguments: Any) -> Any:
        if (fault := next(faults)) is not None:
            raise fault
        return write(*arguments)

    monkeypatch.setattr(parts, "with_vectors", failing)
    rows = {"rows": [{"id": "new", "text": "anna", "year": 1}]}
    full, hits, added = ask(folder, ("/index/add", rows), ("/search", {"query": "anna"}), ("/index/add", rows))
    assert full.status == 409
    assert full.error == (
        "expected to write the change of the index; found No space left on device; nothing was changed; "
        "free some space, and send it again"
    )
    assert len(hits.json["results"][0]["passages"]) == 5
    assert added.json["changes"][0]["rows"] == 6
    assert {path.name for path in folder.iterdir()} == {"index.json", "segment-000000", "segment-000001"}


def test_an_index_uses_the_weights_of_a_served_model_only_if_its_vectors_are_of_it(
    folder: Path, model: Path, tmp_path: Path
) -> None:
    save_pretrained(
        tmp_path / "other", untrained(CONFIG, seed=5), TOKENIZER, ModelMetadata.from_dict({"task": "pretraining"})
    )
    paths = {"other": tmp_path / "other", "same": model}
    served = {name: Model(name, embedder=load_embedder(path, device="cpu")) for name, path in paths.items()}
    shared, unlike = (
        load_indexes([f"films={folder}"], models, is_changed=False)["films"]
        for models in (served, {"other": served["other"]})
    )
    assert isinstance(shared, ModelWithRecords)
    assert isinstance(unlike, ModelWithRecords)
    assert shared.embedder.encoder is served["same"].embedder.encoder
    assert np.array_equal(unlike.embed(["a film"]), served["same"].embed(["a film"]))


def test_replies_with_long_texts_are_limited_before_they_are_read(model: Path, tmp_path: Path) -> None:
    rows = [{"id": "long", "text": "film " * 4000, "year": 1}, *ROWS]
    build_index(file_of_records(tmp_path / "texts.jsonl", rows), tmp_path / "long", model=model)
    body = {"queries": QUERIES}
    (fits,) = ask(tmp_path / "long", ("/search", body), max_held=2_000_000)
    (refused,) = ask(tmp_path / "long", ("/search", body), max_held=1_000_000)
    assert fits.status == 200
    assert (refused.status, refused.error.rpartition("; ")[2]) == (413, "lower top, or split it")


def test_what_serves_nothing_or_changes_no_index_is_refused() -> None:
    with pytest.raises(BertsmithError, match="expected models to serve"):
        ServeRequest()
    with pytest.raises(BertsmithError, match="--index-key-file needs --index"):
        ServeRequest(model=["m"], index_key_file="key")
