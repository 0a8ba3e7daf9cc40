"""search, senses and vectors as a user types them, with one-line errors."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertsmith import load
from bertsmith.app.library.retrieval import search_passages
from bertsmith.base.core import progress
from bertsmith.base.core.randomness import generator
from bertsmith.inference.search.index import PassageIndex
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from processors import pretend
from written_files import file_with

PASSAGES = "the man went to the store\nhe bought a mask\n\nthe tweet was by a man ,\na b c d e\n"


@pytest.fixture
def passages(tmp_path: Path) -> Path:
    return file_with(tmp_path / "passages.txt", PASSAGES)


@pytest.fixture
def sentences(model: Path) -> Path:
    """The model as a sentence-transformers folder with prompts."""
    (model / "1_Pooling").mkdir()
    said = {
        "modules.json": [
            {"path": "", "type": "sentence_transformers.models.Transformer"},
            {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        ],
        "1_Pooling/config.json": {"pooling_mode": "mean"},
        "config_sentence_transformers.json": {"prompts": {"query": "he ", "document": "to "}},
    }
    for name, values in said.items():
        (model / name).write_text(json.dumps(values), encoding="utf-8")
    return model


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, (generator(0, "crowded").standard_normal((300, 6)) + 4).astype(np.float32))
    return path


def test_passages_are_found_by_vectors_by_words_and_by_both(run, model: Path, passages: Path) -> None:
    query = "he bought a mask"
    result = run("search", passages, "--model", model, "--query", query, "--top", 2).succeeds()
    first, second = result.out.splitlines()
    assert first.split() == ["1", "1.0000", "2", *query.split()]
    assert second.startswith("  2  0.")
    by_words = run("search", passages, "--bm25", "--query", query, "--json")
    answer = json.loads(by_words.out)
    assert answer["query"] == query
    assert answer["passages"][0]["id"] == "2"
    assert len(answer["passages"]) == 3, "only passages that share a word"
    both = run("search", passages, "--model", model, "--hybrid", "--query", query, "--json")
    assert len(json.loads(both.out)["passages"]) == 4


def test_a_search_by_words_can_count_the_pieces_of_a_model(run, model: Path, tmp_path: Path) -> None:
    texts = file_with(tmp_path / "texts.txt", "masking\nhe came home\n")
    command = ["search", texts, "--bm25", "--query", "mask", "--json"]
    assert json.loads(run(*command).out)["passages"] == []
    result = run(*command, "--bm25-words", "pieces", "--model", model)
    assert [passage["id"] for passage in json.loads(result.out)["passages"]] == ["1"]
    assert "use one of 'pieces', 'words'" in run(*command, "--bm25-words", "letters").err


def test_queries_and_passages_are_read_with_the_prompts_of_the_model(
    run, sentences: Path, passages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_silent", 0)
    arguments = ("search", passages, "--model", sentences, "--query", "the man")
    told = "prompts of the model: 'he ' for queries, 'to ' for passages"
    result = run(*arguments, "--json").succeeds()
    assert run(*arguments).err.count(told) == 1
    plain = run(*arguments, "--query-prompt", "none", "--passage-prompt", "none", "--json")
    assert "prompts of the model" not in plain.err
    assert json.loads(plain.out)["passages"] != json.loads(result.out)["passages"]
    embedder = load_embedder(sentences, device="cpu")
    query, texts = embedder.for_queries().embed(["the man"]), passages.read_text(encoding="utf-8").splitlines()
    vectors = embedder.for_passages().embed(texts)
    filled = vectors[[bool(text) for text in texts]]
    cosines = (filled @ query[0]) / np.linalg.norm(filled, axis=1) / np.linalg.norm(query)
    scores = [hit["score"] for hit in json.loads(result.out)["passages"]]
    assert scores == pytest.approx(sorted(cosines.tolist(), reverse=True)[: len(scores)], abs=1e-5)
    assert "expected a prompt of the model; found 'x'" in run(*arguments, "--query-prompt", "x").err
    out = tmp_path / "vectors.npy"
    embedded = run("embed", passages, "--model", sentences, "--out", out, "--prompt", "document")
    assert (embedded.code, embedded.err.count("before every text: the prompt 'to ' of the model")) == (0, 1)
    assert np.array_equal(np.load(out), vectors)


def test_a_file_of_queries_has_an_answer_each(run, model: Path, passages: Path, tmp_path: Path) -> None:
    queries = file_with(tmp_path / "queries.jsonl", '{"id": "q1", "text": "a tweet"}\n{"id": "q2", "text": "zzz"}\n')
    result = run("search", passages, "--bm25", "--queries", queries, "--top", 1)
    assert result.out.splitlines()[0] == "q1: a tweet"
    assert result.out.splitlines()[-1] == "q2: zzz"
    assert "no passage shares a word with the query" in result.err


def test_the_index_is_kept_and_another_model_is_refused(run, model: Path, passages: Path, tmp_path: Path) -> None:
    index = tmp_path / "index.safetensors"
    command = ["search", passages, "--model", model, "--query", "a man", "--index", index]
    first = run(*command)
    content = index.read_bytes()
    again = run(*command)
    assert (again.out, index.read_bytes()) == (first.out, content)
    refused = run(*command, "--pooling", "cls")
    refused.refuses("found others (pooling)")
    assert len(refused.err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["passages.txt", "queries.txt", "notes.txt", "whole"])
def test_only_an_index_is_overwritten_and_no_message_suggests_removing_other_files(
    run, model: Path, passages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for other in ("queries.txt", "notes.txt"):
        (tmp_path / other).write_text("a man\n" * 20, encoding="utf-8")
    (tmp_path / "whole").mkdir()
    content = passages.read_bytes()
    monkeypatch.setattr("bertsmith.inference.vectors.embedder.Embedder.embed", None)
    result = run(
        "search", passages, "--model", model, "--queries", tmp_path / "queries.txt", "--index", tmp_path / name
    )
    result.refuses("another")
    assert "remove" not in result.err
    assert passages.read_bytes() == content


def test_senses_are_never_drawn_over_the_text(run, model: Path, tmp_path: Path) -> None:
    text = file_with(tmp_path / "text.html", "the man went\na man bought a mask\n")
    result = run("senses", "man", text, "--model", tmp_path / "absent", "--out", text, "--replace")
    result.refuses("apart from the input")


def test_texts_in_another_encoding_are_searched_and_grouped_as_their_text(run, model: Path, tmp_path: Path) -> None:
    texts = ["the man went to the caf\xe9", "he bought the man a b", "the man c"]
    files = {
        "passages.txt": "\n".join(texts),
        "passages.csv": "text\n" + "\n".join(texts),
        "folder/a.txt": "\n\n".join(texts),
        "queries.txt": "the caf\xe9\n",
    }
    coded, plain = (tmp_path / name for name in ("cp1252", "utf-8"))
    for folder in (coded, plain):
        (folder / "folder").mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_bytes(text.encode(folder.name))
    option = ("--encoding", "cp1252")
    for name in ("passages.txt", "passages.csv", "folder"):
        wanted = run("search", plain / name, "--bm25", "--queries", plain / "queries.txt")
        result = run("search", coded / name, "--bm25", "--queries", coded / "queries.txt", *option)
        assert (result.code, result.out) == (0, wanted.out), name
        assert "caf\xe9" in result.out
        assert "not UTF-8" in run("search", coded / name, "--bm25", "--query", "caf\xe9").err
    for command in (("senses", "man"), ("contexts", "man", "the man a", "a man b", "--text")):
        wanted = run(*command, plain / "passages.txt", "--model", model)
        assert run(*command, coded / "passages.txt", "--model", model, *option) == wanted, command
    refused = run("contexts", "man", "the man a", "a man b", "--model", model, *option)
    assert "--encoding has no effect without --text" in refused.err


def test_a_search_is_scored_next_to_bm25(run, model: Path, passages: Path, tmp_path: Path) -> None:
    queries, judgements = tmp_path / "queries.tsv", tmp_path / "judged.txt"
    queries.write_text("id\tquery\nx\thttp store man\ny\tmask\nz\tnothing\n", encoding="utf-8")
    judgements.write_text("x 0 1 2\nx 0 4 1\ny 0 2 1\n", encoding="utf-8")
    command = ["search", passages, "--model", model, "--queries", queries, "--judgements", judgements]
    table = run(*command).out.splitlines()
    assert [line.split()[0] for line in table] == ["search", "vectors", "bm25", "hybrid", "queries:"]
    assert "queries: 2; passages: 4" in table[-1]
    scores = json.loads(run(*command, "--json").out)
    assert scores["bm25"]["mrr@10"] == scores["bm25"]["recall@10"] == 1.0
    assert scores["bm25"]["queries"] == 2


def test_tf_idf_and_one_hot_need_no_model_and_are_scored_alone(run, passages: Path, tmp_path: Path) -> None:
    for method in ("tf-idf", "one-hot"):
        result = json.loads(run("search", passages, "--method", method, "--query", "the man", "--json").out)
        wanted = search_passages(passages, ["the man"], system=method)
        assert result == wanted[0].to_dict()
        assert result["passages"][0]["score"] <= 1
    queries, judgements = tmp_path / "queries.tsv", tmp_path / "judged.txt"
    queries.write_text("id\tquery\nx\tmask\n", encoding="utf-8")
    judgements.write_text("x 0 2 1\n", encoding="utf-8")
    scored = run("search", passages, "--method", "tf-idf", "--queries", queries, "--judgements", judgements, "--json")
    assert list(json.loads(scored.out)) == ["tf-idf"]
    assert json.loads(scored.out)["tf-idf"]["mrr@10"] == 1


def test_a_model_of_pairs_reranks_the_best_passages(run, model: Path, passages: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    rows = [f"a man\tthe man went\t{'yes' if number % 2 else 'no'}" for number in range(8)]
    pairs.write_text("text\ttext2\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    tuned = run(
        "finetune", "--model", model, "--task", "classification", "--train", pairs, "--dev", pairs, "--out",
        tmp_path / "run", "--seeds", 1, "--epochs", 1,
    )  # fmt: skip
    assert tuned.code == 0, tuned.err
    command = ["search", passages, "--bm25", "--query", "the man", "--json"]
    plain = json.loads(run(*command).out)["passages"]
    again = json.loads(run(*command, "--rerank", tmp_path / "run" / "model").out)["passages"]
    assert {hit["id"] for hit in again} == {hit["id"] for hit in plain}
    assert all(0 < hit["score"] < 1 for hit in again)
    refused = run(*command, "--rerank", model)
    assert "fine-tune it first" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--query", "x"], "found none; give it, or --method bm25, tf-idf or one-hot"),
        (["--bm25"], "expected either --query or --queries; found neither; for example: bertsmith search "),
        (
            ["--method", "tf-idf", "--bm25", "--query", "x"],
            "expected one of --bm25, --hybrid, --method and --by; found --bm25 and --method; keep one of them",
        ),
        (
            ["--by", "", "--query", "x"],
            "expected kinds of search with --by, such as dense,words; found none; name some",
        ),
        (["--method", "one-hot", "--query", "x", "--pooling", "cls"], "no effect with --method one-hot"),
        (["--bm25", "--hybrid", "--query", "x"], "found --bm25 and --hybrid; keep one of them"),
        (
            ["--bm25", "--query", "x", "--judgements", "j"],
            "expected --queries with --judgements; found --query; judge the queries of a file",
        ),
        (
            ["--bm25", "--query", "x", "--index", "i", "--approximate"],
            "--index, --approximate have no effect with --bm25; leave them out",
        ),
        (["--bm25", "--query", "x", "--pooling", "cls"], "--pooling has no effect with --bm25; leave it out"),
        (["--bm25", "--query", "x", "--model", "m"], "--model has no effect with --bm25"),
        (["--bm25", "--query", "x", "--changes", "c"], "--changes has no effect with --bm25"),
        (["--model", "m", "--query", "x", "--query", " "], "expected some text for --query; found none"),
        (["--bm25", "--query", ""], "expected some text for --query; found none"),
        (["--bm25", "--query", "x", "--queries", "q.txt"], "expected either --query or --queries; found both"),
        (["--bm25", "--query", "x", "--depth", "9"], "--depth has no effect without --hybrid, --rerank or"),
        (["--model", "m", "--query", "x", "--k1", "2"], "--k1 has no effect where BM25 is not used"),
        (["--bm25", "--query", "x", "--query-column", "q"], "--query-column has no effect without --queries"),
        (
            ["--bm25", "--queries", "q", "--judgements", "j", "--top", "9"],
            "--top has no effect with --judgements; leave it out",
        ),
        (
            ["--bm25", "--method", "vectors", "--query", "x"],
            "expected one of --bm25, --hybrid, --method and --by; found",
        ),
        (["--model", "m", "--query", "x", "--k1", "0.9"], "--k1 has no effect where BM25 is not used"),
        (["--bm25", "--by", "words", "--query", "x"], "expected one of --bm25, --hybrid, --method and --by; found"),
        (["--by", "words", "--query", "x", "--fuse", "rrf"], "--fuse has no effect without --hybrid or several"),
        (["--by", "words", "--query", "x", "--model", "m"], "--model has no effect with --by words"),
        (["--by", "dense", "--model", "m", "--query", "x", "--k1", "1"], "--k1 has no effect where BM25 is not used"),
        (["--bm25", "--query", "x", "--judged-by", "ids"], "--judged-by has no effect without --judgements"),
        (["--model", "m", "--hybrid", "--query", "x", "--top", "9", "--depth", "8"], "--top 9 is more than the 8"),
    ],
)
def test_wrong_usage_of_search_is_reported(run, passages: Path, arguments: list[str], message: str) -> None:
    result = run("search", passages, *arguments)
    assert result.code == 2
    assert message in " ".join(result.err.replace("│", " ").split())


def test_the_columns_of_passages_and_queries_are_named_apart(run, tmp_path: Path) -> None:
    passages, queries = tmp_path / "p.tsv", tmp_path / "q.tsv"
    passages.write_text("number\tsaid\n1\ta mask\n", encoding="utf-8")
    queries.write_text("number\tasked\n1\tmask\n", encoding="utf-8")
    command = ["search", passages, "--bm25", "--queries", queries, "--text-column", "said"]
    assert "name it with --query-column" in run(*command).err
    result = run(*command, "--query-column", "asked").succeeds()
    assert result.out.endswith("a mask\n")


def test_contexts_of_a_word_are_grouped_and_drawn(run, model: Path, tmp_path: Path) -> None:
    text = file_with(tmp_path / "text.txt", "the man went\nThe store , the man\n\na man bought a mask\nhe went\n")
    command = ["senses", "man", text, "--model", model]
    result = run(*command, "--clusters", 2, "--beside", "he", "--out", tmp_path / "senses.html").succeeds()
    lines = result.out.splitlines()
    assert lines[0].startswith("man: 3 occurrences, 2 groups (silhouette of 2:")
    assert lines[1].startswith("group 1: 2 occurrences, mean cosine with 'he' ")
    assert sum("[man]" in line for line in lines) == 3
    page = (tmp_path / "senses.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "[man]" in page
    answer = json.loads(run(*command, "--json").out)
    assert answer["occurrences"] == 3
    assert sum(group["occurrences"] for group in answer["groups"]) == 3
    for name in ("senses.png", "senses.svg"):
        run(*command, "--out", tmp_path / name).succeeds()
        again = (tmp_path / name).read_bytes()
        run(*command, "--out", tmp_path / name).refuses("with --replace")
        run(*command, "--out", tmp_path / name, "--replace").succeeds()
        assert (tmp_path / name).read_bytes() == again, "equal points give equal pictures"
    assert (tmp_path / "senses.png").read_bytes().startswith(b"\x89PNG")


def test_a_word_in_two_sentences_is_compared_with_its_static_vector(run, model: Path, tmp_path: Path) -> None:
    first, second = "the man went to the store", "he bought a man , a tweet"
    result = run("contexts", "man", first, second, "--model", model, "--json").succeeds()
    answer = json.loads(result.out)
    assert answer["static"] == pytest.approx(1, abs=1e-6)
    assert answer["cosine"] < 0.999
    assert answer["contexts"][1] == {"left": "he bought a ", "word": "man", "right": " , a tweet", "nearest": []}
    words = load(model).features([first.split(), second.split()])
    vector, other = words[0][1], words[1][3]
    assert answer["cosine"] == pytest.approx(float(vector @ other / vector.norm() / other.norm()), abs=1e-5)
    alike = json.loads(run("contexts", "man", first, first, "--model", model, "--json").out)
    assert alike["cosine"] == pytest.approx(1, abs=1e-6)


def test_the_nearest_contexts_of_each_sentence_are_found_in_a_text(run, model: Path, tmp_path: Path) -> None:
    first, second = "The man went to the store.", "He bought a man, a tweet."
    text = file_with(tmp_path / "text.txt", f"{second}\n{first}\n{first}\nA b c d e man!\n\nHe went.\n")
    command = ["contexts", "man", first, second, "--model", model, "--text", text]
    answer = json.loads(run(*command, "--top", 2, "--json").out)
    for sentence, context in zip((first, second), answer["contexts"], strict=True):
        best, other = context["nearest"]
        assert best["cosine"] == pytest.approx(1, abs=1e-6)
        assert best["left"] + best["word"] + best["right"] == sentence
        assert other["left"] + other["word"] + other["right"] != sentence, "equal sentences count once"
        assert other["cosine"] < best["cosine"]
    lines = run(*command).out.splitlines()
    assert lines[0].startswith(f"cosine of 'man' in the two contexts: {answer['cosine']:.2f} (static vectors: 1.00)")
    assert lines[1] == "The [man] went to the store."
    assert lines[-1] == "nearest contexts in common: 3 of 3 (static vectors: 3 of 3)"
    assert len(lines) == 10


def test_a_word_in_two_sentences_has_one_vector_without_context(run, model: Path, tmp_path: Path) -> None:
    vectors = file_with(tmp_path / "vectors.txt", "4 2\nman 1 0\nwoman 0.8 0.6\nstore 0 1\nMan -1 0\n")
    command = ["contexts", "man", "The man went to the store", "he bought a man , a tweet", "--model", model]
    result = run(*command, "--vectors", vectors, "--top", 2).succeeds()
    assert result.out.splitlines()[-1] == (
        "vectors without context: cosine 1.00; nearest words, in both sentences: woman 0.80, store 0.00"
    )
    answer = json.loads(run(*command, "--vectors", vectors, "--top", 1, "--json").out)
    assert answer["without_context"]["cosine"] == pytest.approx(1)
    assert [neighbour["word"] for neighbour in answer["without_context"]["neighbours"]] == ["woman"]
    assert answer["cosine"] < 0.999, "that of the model depends on the sentence"
    vectors.write_text("3 2\nman 1 0\nwoman 0.8 0.6\nstore 0 1\n", encoding="utf-8")
    command[2] = "Man, the store"
    assert run(*command, "--vectors", vectors).out.splitlines()[-1].startswith("vectors without context: cosine 1.00")
    vectors.write_text("2 2\nwoman 0.8 0.6\nstore 0 1\n", encoding="utf-8")
    run(*command, "--vectors", vectors).refuses("'Man'")


def test_a_word_missing_from_a_sentence_is_one_line(run, model: Path) -> None:
    run("contexts", "man", "the man went", "he went", "--model", model).refuses("expected the word 'man' in the text")
    idle = run("contexts", "man", "the man", "a man", "--model", model, "--top", 2)
    assert idle.code == 2
    assert "--top has no effect without --text or --vectors" in idle.err
    run("contexts", "man", "a man , the man", "a man", "--model", model).succeeds()


def test_a_missing_word_and_an_unknown_picture_format_are_one_line(run, model: Path, passages: Path) -> None:
    absent = run("senses", "stoer", passages, "--model", model)
    absent.refuses("similar spellings in the text: store")
    assert len(absent.err.strip().splitlines()) == 1
    picture = run("senses", "man", passages, "--model", model, "--out", "x.jpg")
    assert "a picture that ends in .png, .svg, .html" in picture.err
    assert run("senses", "man", passages, "--model", model, "--clusters", "few").code == 2


def test_vector_geometry_is_described_and_corrected(run, crowded: Path, tmp_path: Path) -> None:
    run("vectors", crowded).succeeds("all vectors point in similar directions")
    changed = run(
        "vectors", crowded, "--whiten", "--dimensions", 4, "--normalize", "--out", tmp_path / "y.npy",
        "--save-changes", tmp_path / "changes.safetensors", "--picture", tmp_path / "cosines.png",
    )  # fmt: skip
    assert changed.code == 0, changed.err
    assert "the vectors point in all directions" in changed.out
    written = np.load(tmp_path / "y.npy")
    assert written.shape == (300, 4)
    assert np.allclose(np.linalg.norm(written, axis=1), 1, atol=1e-6)
    assert (tmp_path / "cosines.png").read_bytes().startswith(b"\x89PNG")
    run("vectors", crowded, "--changes", tmp_path / "changes.safetensors", "--out", tmp_path / "z.npy").succeeds()
    assert (tmp_path / "z.npy").read_bytes() == (tmp_path / "y.npy").read_bytes()
    both = json.loads(run("vectors", crowded, "--center", "--json").out)
    assert both["before"]["mean_cosine"] > 0.9 > 0.1 > both["after"]["mean_cosine"]
    assert json.loads(run("vectors", crowded, "--json").out)["after"] is None


def test_files_are_replaced_on_request_and_inputs_never(run, crowded: Path, tmp_path: Path) -> None:
    content, out = crowded.read_bytes(), tmp_path / "y.npy"
    run("vectors", crowded, "--center", "--out", crowded, "--replace").refuses("apart from the input")
    assert crowded.read_bytes() == content
    command = ["vectors", crowded, "--center", "--out", out]
    run(*command).succeeds()
    before = out.read_bytes()
    run("vectors", crowded, "--normalize", "--out", out).refuses("with --replace")
    assert out.read_bytes() == before
    run("vectors", crowded, "--normalize", "--out", out, "--replace").succeeds()
    assert out.read_bytes() != before
    assert run(*command, "--replace", "--save-changes", out).code == 1
    picture = ["vectors", crowded, "--picture", tmp_path / "cosines.svg"]
    run(*picture).succeeds()
    assert "with --replace" in run(*picture).err
    run(*picture, "--replace").succeeds()


def test_vectors_with_nan_are_one_line(run, tmp_path: Path) -> None:
    values = np.ones((5, 3), np.float32)
    values[3, 1] = np.nan
    np.save(tmp_path / "x.npy", values)
    for arguments in ([], ["--whiten"], ["--remove-top", 1]):
        result = run("vectors", tmp_path / "x.npy", *arguments)
        result.refuses("NaN or infinity in row 4;")
        assert len(result.err.strip().splitlines()) == 1


def test_changes_are_fitted_on_other_vectors(run, crowded: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "zeros.npy", np.zeros((4, 6), np.float32))
    run("vectors", crowded, "--center", "--fit-on", tmp_path / "zeros.npy", "--out", tmp_path / "y.npy").succeeds()
    assert np.array_equal(np.load(tmp_path / "y.npy"), np.load(crowded))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--out", "y.npy"], 2, "expected a change, such as --center or --whiten; found none; for example: "),
        (["--changes", "c", "--center"], 2, "leave the other options of changes out"),
        (["--dimensions", "3"], 1, "--dimensions needs --whiten; add it"),
        (["--whiten", "--dimensions", "9"], 1, "vary in at least 9 directions"),
        (["--picture", "x.pdf"], 1, "a picture that ends in"),
    ],
)
def test_wrong_usage_of_vectors_is_reported(run, crowded: Path, arguments: list[str], code: int, message: str) -> None:
    result = run("vectors", crowded, *arguments)
    assert result.code == code
    assert message in " ".join(result.err.replace("│", " ").split())


@pytest.mark.slow
def test_cranfield_is_read_as_published(run, real_data: Path) -> None:
    folder = real_data / "retrieval" / "cranfield"
    if not folder.is_dir():
        pytest.skip("the data folder has no retrieval/cranfield")
    result = run(
        "search", folder / "cran.all.1400.xml", "--bm25", "--queries", folder / "cran.qry.xml", "--judgements",
        folder / "cranqrel.trec.txt", "--judged-by", "places", "--json",
    )  # fmt: skip
    scores = json.loads(result.out)["bm25"]
    assert scores["queries"] == 225
    assert scores["ndcg@10"] == pytest.approx(0.326, abs=0.005)


@pytest.fixture
def two_ways(tmp_path: Path) -> Path:
    """Passages of two kinds; see `_crowding` for their vectors."""
    path = tmp_path / "ways.txt"
    path.write_text("".join(f"{'the man' if number % 2 else 'a tweet'} {number}\n" for number in range(60)))
    return path


@pytest.fixture
def _crowding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors that differ between the kinds in a component that is small against one that all share."""

    def embed(self: Embedder, texts: list[str]) -> np.ndarray:
        noise = [generator(0, "noise", text).standard_normal(self.width) for text in texts]
        shared = [[10.0 if text.startswith("the man") else -10.0, 40.0] + [0.0] * (self.width - 2) for text in texts]
        return np.array(noise, np.float32) + np.array(shared, np.float32)

    monkeypatch.setattr(Embedder, "embed", embed)


@pytest.mark.usefixtures("_crowding")
def test_passages_whose_vectors_concentrate_are_reported_once_and_changes_fix_it(
    run, model: Path, two_ways: Path, tmp_path: Path
) -> None:
    index, changes = tmp_path / "index.safetensors", tmp_path / "changes.safetensors"
    command = ["search", two_ways, "--model", model, "--query", "the man", "--query", "a tweet"]
    told = run(*command, "--index", index).succeeds()
    assert told.err.count("all vectors point in similar directions") == 1
    assert "compare the ranking with that of `bertsmith search --method bm25`, which needs no model" in told.err
    assert "--whiten" not in told.err
    assert "nearly all" not in run(*command, "--hybrid").err
    vectors = tmp_path / "x.npy"
    run("embed", two_ways, "--model", model, "--out", vectors).succeeds()
    run("vectors", vectors, "--center", "--save-changes", changes).succeeds()
    mended = run(*command, "--changes", changes, "--json").succeeds()
    assert "nearly all" not in mended.err
    scores = [hit["score"] for hit in json.loads(mended.out.splitlines()[0])["passages"]]
    raw = run(*command, "--json")
    before = [hit["score"] for hit in json.loads(raw.out.splitlines()[0])["passages"]]
    assert max(scores) < 0.95 < min(before)
    refused = run(*command, "--index", index, "--changes", changes)
    assert refused.code == 1
    assert "changes" in refused.err.split("found others")[1]


@pytest.mark.usefixtures("_crowding")
def test_vectors_of_changed_passages_are_those_that_vectors_writes(
    run, model: Path, two_ways: Path, tmp_path: Path
) -> None:
    changes, index = tmp_path / "changes.safetensors", tmp_path / "index.safetensors"
    run("embed", two_ways, "--model", model, "--out", tmp_path / "x.npy").succeeds()
    written = run(
        "vectors", tmp_path / "x.npy", "--whiten", "--dimensions", 5, "--normalize", "--save-changes", changes,
        "--out", tmp_path / "y.npy",
    )  # fmt: skip
    assert "warning" not in written.err, "60 vectors of width 32 are enough to be quiet"
    command = ["search", two_ways, "--model", model, "--query", "the man 7", "--top", 1, "--index", index, "--changes"]
    result = run(*command, changes)
    assert result.out.split()[:3] == ["1", "1.0000", "8"]
    np.testing.assert_allclose(PassageIndex.load(index).vectors, np.load(tmp_path / "y.npy"), atol=1e-6)
    run("vectors", tmp_path / "x.npy", "--center", "--save-changes", tmp_path / "other.safetensors")
    assert "found others (changes)" in run(*command, tmp_path / "other.safetensors").err
    assert "found others (changes, normalize)" in run(*command[:-1]).err
    np.save(tmp_path / "wide.npy", np.ones((3, 40), np.float32))
    run("vectors", tmp_path / "wide.npy", "--center", "--save-changes", tmp_path / "wide.safetensors")
    wide = run(*command, tmp_path / "wide.safetensors")
    assert (wide.code, "as in fitting the change; found width 32" in wide.err) == (1, True)


def test_search_says_which_precision_made_the_vectors(
    run, model: Path, passages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    pretend(monkeypatch)
    told = run("search", passages, "--model", model, "--query", "a", "--device", "cpu", "--precision", "auto").err
    line = next(line for line in told.splitlines() if line.startswith("vectors of passages: 4 passages in "))
    assert line.endswith(" s, fp32")


def test_whitening_on_fewer_vectors_than_they_are_wide_is_warned_of_and_not_praised(run, tmp_path: Path) -> None:
    vectors, changes = tmp_path / "x.npy", tmp_path / "changes.safetensors"
    np.save(vectors, generator(0, "few").standard_normal((5, 256)).astype(np.float32))
    result = run("vectors", vectors, "--whiten", "--save-changes", changes).succeeds()
    assert "warning: the change was fitted on 5 vectors of width 256" in result.err
    assert "5 vectors are too few" in result.out
    np.save(vectors, generator(0, "more").standard_normal((200, 256)).astype(np.float32))
    many = run("vectors", vectors, "--whiten", "--json")
    assert "fitted on 200 vectors of width 256" in many.err
    assert json.loads(many.out)["after"]["count"] == 200
    assert "can be compared" not in run("vectors", vectors, "--whiten").out
    assert "fitted on 5 vectors" in run("vectors", vectors, "--changes", changes).err
