"""JSON lines of token vectors: the format of the original script, pairs, truncation, refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith import embed_words_of_file
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.inference.vectors.json_lines import TokenLines
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Trace
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.text.tokenizers.pack import pack_rows
from tasks.task_samples import CONFIG, TOKENIZER
from written_files import file_with

LINES = ["The good film", "who was anna ? ||| anna was it .", "", "a|||b", "rome ||| oslo ||| lima"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return file_with(tmp_path / "texts.txt", "".join(f"{line}\n" for line in LINES))


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def hidden_states(folder: Path, first: str, second: str | None) -> list[torch.Tensor]:
    """All hidden states of one row, from a plain forward pass."""
    encoder = load_frozen_encoder(folder, device="cpu")
    pair = None if second is None else [TOKENIZER.encode(second)]
    rows = pack_rows([TOKENIZER.encode(first)], pair, template=TOKENIZER.template, max_length=64)
    trace = Trace()
    with torch.inference_mode():
        encoder.model(Batch.from_flat(rows.token_ids, rows.segment_ids, rows.lengths), trace=trace)
    return trace.hidden_states


def test_the_structure_is_that_of_the_original_script(folder: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    summary = embed_words_of_file(str(texts), folder, out, layers="-1,-2")
    result = lines_of(out)
    assert [list(record) for record in result] == [["linex_index", "features"]] * len(LINES)
    assert [record["linex_index"] for record in result] == [0, 1, 2, 3, 4]
    tokens = [[feature["token"] for feature in record["features"]] for record in result]
    assert tokens[0] == ["[CLS]", "the", "good", "film", "[SEP]"]
    assert tokens[1] == "[CLS] who was anna ? [SEP] anna was it . [SEP]".split()
    assert tokens[2] == ["[CLS]", "[SEP]"]
    assert tokens[3].count("[SEP]") == 1, "a pair has spaces around the bars"
    assert tokens[4][-3:] == ["[SEP]", "lima", "[SEP]"], "the last bars divide, as in the original"
    for feature in result[1]["features"]:
        assert list(feature) == ["token", "layers"]
        assert [list(layer) for layer in feature["layers"]] == [["index", "values"]] * 2
        assert [layer["index"] for layer in feature["layers"]] == [-1, -2]
        assert all(len(layer["values"]) == CONFIG.hidden_size for layer in feature["layers"])
        assert all(value == round(value, 6) for layer in feature["layers"] for value in layer["values"])
    assert (summary.texts, summary.rows) == (5, sum(map(len, tokens)))


@pytest.mark.parametrize(("number", "first", "second"), [(0, "The good film", None), (1, *LINES[1].split(" ||| "))])
def test_the_values_are_those_of_a_plain_forward_pass(
    folder: Path, texts: Path, tmp_path: Path, number: int, first: str, second: str | None
) -> None:
    embed_words_of_file(str(texts), folder, tmp_path / "x.jsonl", layers="-1,0,1")
    features = lines_of(tmp_path / "x.jsonl")[number]["features"]
    states = hidden_states(folder, first, second)
    assert [layer["index"] for layer in features[0]["layers"]] == [-1, -3, -2], "0 names the embeddings here"
    for position, layer in enumerate((2, 0, 1)):
        values = np.array([feature["layers"][position]["values"] for feature in features])
        np.testing.assert_allclose(values, states[layer].numpy(), atol=2e-6)


def test_the_file_does_not_depend_on_how_many_texts_are_computed_together(
    folder: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed_words_of_file(str(texts), folder, tmp_path / "all.jsonl")
    monkeypatch.setattr("bertsmith.inference.vectors.json_lines.CHUNK_BYTES", 1)
    embed_words_of_file(str(texts), folder, tmp_path / "single.jsonl")
    for line, other in zip(lines_of(tmp_path / "all.jsonl"), lines_of(tmp_path / "single.jsonl"), strict=True):
        assert line["linex_index"] == other["linex_index"]
        for left, right in zip(line["features"], other["features"], strict=True):
            assert left["token"] == right["token"]
            np.testing.assert_allclose(left["layers"][0]["values"], right["layers"][0]["values"], atol=2e-6)


def test_what_does_not_fit_is_truncated_and_counted(folder: Path, texts: Path, tmp_path: Path) -> None:
    summary = embed_words_of_file(str(texts), folder, tmp_path / "x.jsonl", max_length=7)
    tokens = [feature["token"] for feature in lines_of(tmp_path / "x.jsonl")[1]["features"]]
    assert tokens == "[CLS] who was [SEP] anna was [SEP]".split(), "the longer text of a pair loses tokens"
    assert summary.counts["cut_texts"] >= 1
    assert any("truncated" in note for note in summary.notes)


def test_what_json_lines_cannot_hold_is_refused_before_the_work(folder: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    for options in ({"resume": True}, {"float16": True}, {"unit": "mean"}):
        with pytest.raises(ConfigError, match=r"expected a \.npy or \.parquet output for"):
            embed_words_of_file(str(texts), folder, out, **options)
    with pytest.raises(ConfigError, match="listed one by one"):
        embed_words_of_file(str(texts), folder, out, layers="sum-all")
    assert not out.exists()
    (tmp_path / "blank.txt").write_bytes(b"")
    with pytest.raises(InputError, match="found an empty file"):
        embed_words_of_file(str(tmp_path / "blank.txt"), folder, out)
    assert not out.exists()
    out.write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="found a file of another kind"):
        embed_words_of_file(str(texts), folder, out, replace=True)
    assert out.read_text(encoding="utf-8") == "mine"
    earlier = '{"linex_index": 0, "features": []}\n'
    out.write_text(earlier, encoding="utf-8")
    with pytest.raises(InputError, match="with `replace=True`"):
        embed_words_of_file(str(texts), folder, out)
    assert out.read_text(encoding="utf-8") == earlier
    embed_words_of_file(str(texts), folder, out, replace=True)
    assert len(lines_of(out)) == len(LINES)


@pytest.mark.parametrize(
    ("content", "replace", "found"),
    [('{"linex_index": 9}\n', False, "found one"), ("my notes\n", True, "found a file of another kind")],
)
def test_a_file_that_appears_during_the_work_is_not_replaced(
    folder: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, replace: bool, found: str
) -> None:
    out, read = tmp_path / "x.jsonl", TokenLines.read

    def meanwhile(self: TokenLines, texts: list[str], first: int = 0) -> list[dict[str, object]]:
        out.write_text(content, encoding="utf-8")
        return read(self, texts, first)

    monkeypatch.setattr(TokenLines, "read", meanwhile)
    with pytest.raises(InputError, match=found):
        embed_words_of_file(str(texts), folder, out, replace=replace)
    assert out.read_text(encoding="utf-8") == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.txt", "x.jsonl"]
