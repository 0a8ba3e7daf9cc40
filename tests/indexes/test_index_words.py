"""Searches of an index by words: the scores of BM25 on the texts that are not removed, whatever the segments are."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith import build_index, compact_index, remove_from_index, score_searches, search_passages
from bertsmith.base.core.errors import InputError
from bertsmith.inference.indexes.index import Manifest
from bertsmith.inference.indexes.words import IndexWords, SegmentWords, write_words
from bertsmith.inference.search import postings
from bertsmith.inference.search.bm25 import BM25
from bertsmith.inference.search.postings import Postings, write_counts
from bertsmith.inference.search.rankings import NO_PASSAGE
from indexes.test_indexes import files_of, model, small_blocks, text_of, texts, write_texts

__all__ = ["model", "small_blocks", "texts"]

words = st.lists(st.sampled_from("a b c d é F , 1".split()), max_size=9).map(" ".join)
rows_of_segment = st.lists(st.tuples(words, st.booleans(), st.booleans()), min_size=1, max_size=7)
segments = st.lists(rows_of_segment, min_size=1, max_size=4)


@settings(max_examples=max(25, settings.default.max_examples // 4))
@given(segments, st.lists(words, min_size=1, max_size=3), st.integers(1, 6), st.floats(0, 3), st.floats(0, 1))
def test_rankings_are_those_of_bm25_on_the_rows_that_are_left(
    parts: list[list[tuple[str, bool, bool]]], queries: Sequence[str], top: int, k1: float, b: float
) -> None:
    rows = [row for part in parts for row in part]  # (text, is removed, meets the conditions)
    live = [number for number, (_, is_removed, _) in enumerate(rows) if not is_removed]
    if not any(rows[number][0] for number in live):
        return
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "_BLOCK", 3)
        stored, allowed = [], []
        for number, part in enumerate(parts):
            segment = Path(folder) / str(number)
            segment.mkdir()
            write_words(segment, [text for text, *_ in part])
            removed = np.flatnonzero([is_removed for _, is_removed, _ in part]).astype(np.uint32)
            stored.append(SegmentWords(segment, len(part), removed))
            allowed.append(np.array([meets and not is_removed for _, is_removed, meets in part]))
        ranking = IndexWords(stored, allowed, k1=k1, b=b).search(queries, top)
        expected = BM25([rows[number][0] for number in live], k1=k1, b=b).scores(queries)
        for query in range(len(queries)):
            scores = {row: expected[query, column] for column, row in enumerate(live) if rows[row][2]}
            best = sorted((-score, row) for row, score in scores.items() if score > 0)[:top]
            assert ranking.scores[query][: len(best)] == pytest.approx([-score for score, _ in best])
            assert np.all(ranking.places[query][len(best) :] == NO_PASSAGE)
            for row in ranking.places[query][: len(best)].tolist():
                assert -scores[row] <= best[-1][0] * (1 - 1e-9), "as good as the last of the best"
        del stored


def test_counts_of_any_size_are_kept(tmp_path: Path) -> None:
    lengths = write_counts(tmp_path, "x", [["a"] * 70_000 + ["b"], [], ["a"]])
    assert lengths.tolist() == [70_001, 0, 1]
    term = Postings(tmp_path, "x").of("a")
    assert term is not None
    assert (term.rows.tolist(), term.weights.tolist(), term.most) == ([0, 2], [70_000, 1], 70_000)
    assert Postings(tmp_path, "x").of("c") is None
    assert Postings(tmp_path, "x").of("") is None


def test_an_index_without_a_word_is_written_and_read(tmp_path: Path) -> None:
    assert write_counts(tmp_path, "x", [[], []]).tolist() == [0, 0]
    assert Postings(tmp_path, "x").of("a") is None


def test_an_index_answers_by_words_as_its_file_does(model: Path, texts: Path, tmp_path: Path) -> None:
    folder, more = tmp_path / "index", write_texts(tmp_path / "more.jsonl", 10, first=25, year=2030)
    build_index(texts, folder, model=model, segment_rows=12)
    build_index(more, folder, add=True)
    remove_from_index(folder, id=["t3", "t30"])
    left = {row["id"]: row for path in (texts, more) for row in map(json.loads, path.read_text().splitlines())}
    file = tmp_path / "left.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for id, row in left.items() if id not in ("t3", "t30")))
    queries = ["anna was in rome", "a great film", "nobody"]
    for _ in range(2):
        for system in ("bm25", "hybrid"):
            options = {"system": system, "top": 8}
            of_index = search_passages(folder, queries, **options)
            of_file = search_passages(file, queries, model=model, **options)
            for first, second in zip(of_index, of_file, strict=True):
                assert [hit.score for hit in first.passages] == pytest.approx([hit.score for hit in second.passages])
        assert search_passages(folder, queries, system="bm25")[2].passages == ()
        compact_index(folder)
    hits = search_passages(folder, ["anna"], system="bm25", where=["year > 2030"])[0].passages
    assert hits
    assert {hit.to_dict()["columns"]["year"] for hit in hits} <= {str(year) for year in range(2031, 2040)}


def test_all_searches_of_an_index_are_scored(model: Path, texts: Path, tmp_path: Path) -> None:
    folder, queries, judgements = tmp_path / "index", tmp_path / "queries.txt", tmp_path / "judgements.txt"
    build_index(texts, folder, model=model)
    queries.write_text(f"{text_of(texts, 3)}\n{text_of(texts, 7)}\n")
    judgements.write_text("1 0 t3 1\n2 0 t7 1\n")
    scored = score_searches(folder, queries, judgements)
    assert list(scored) == ["vectors", "bm25", "hybrid"]
    assert scored["bm25"].scores == score_searches(texts, queries, judgements, system="bm25")["bm25"].scores
    assert list(score_searches(folder, queries, judgements, system="bm25")) == ["bm25"]


def test_judgements_may_number_the_lines_of_the_file(model: Path, tmp_path: Path) -> None:
    folder, file, judgements = tmp_path / "index", tmp_path / "a.txt", tmp_path / "judgements.txt"
    file.write_text("anna was in rome\nbert was in oslo\n")
    build_index(file, folder, model=model)
    judgements.write_text("1 0 2 1\n")
    queries = tmp_path / "queries.txt"
    queries.write_text("bert\n")
    assert score_searches(folder, queries, judgements, system="bm25")["bm25"].scores["mrr@10"] == 1


def test_an_index_of_an_older_version_gets_words_by_compacting(model: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(texts, folder, model=model)
    build_index(texts, tmp_path / "new", model=model)
    for file in (folder / "segment-000000").glob("words*"):
        file.unlink()
    manifest = json.loads((folder / "index.json").read_text())
    del manifest["segments"][0]["parts"]
    manifest |= manifest.pop("vectors")["dense"]
    (folder / "index.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"add them with `bertsmith index compact`"):
        search_passages(folder, ["anna"], system="bm25")
    assert search_passages(folder, ["anna"])[0].passages
    compact_index(folder)
    assert "words" in Manifest.read(folder).segments[0].parts
    files = {Path(name).name: data for name, data in files_of(folder).items()}
    assert all(files[name.name] == name.read_bytes() for name in (tmp_path / "new").glob("segment-*/words*"))
    shutil.rmtree(folder)
