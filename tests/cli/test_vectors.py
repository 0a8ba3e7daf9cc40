"""embed and features as a user types them: the files, the messages, and resuming after an interruption."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.inference.vectors import jobs as vector_jobs
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder, load_token_features
from bertsmith.inference.vectors.writers import NpyWriter, ParquetWriter
from bertsmith.tasks.datasets import text_lines
from written_files import file_with

LINES = ["the man went to the store", "", "he bought a tweet", "a b c " * 20, "the man went to the store", "d e"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return file_with(tmp_path / "text.txt", "\n".join(LINES) + "\n")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_jobs.TextVectors, "block", 2)
    monkeypatch.setattr(vector_jobs.TokenVectorsOfTexts, "block", 2)


def test_row_i_is_line_i_even_if_it_is_empty(run, model, text, tmp_path):
    out = tmp_path / "x.npy"
    result = run("embed", text, "--model", model, "--out", out)
    assert (result.code, result.out) == (0, f"{out}: 6 vectors of 32 numbers, of 6 texts\n")
    vectors = np.load(out, mmap_mode="r", allow_pickle=False)
    np.testing.assert_allclose(vectors, load_embedder(model).embed(LINES), atol=2e-6)
    again = run("embed", text, "--model", model, "--out", out)
    assert (again.code, "--replace" in again.err, again.err.count("\n")) == (1, True, 1)


def test_settings_of_the_command_are_those_of_the_library(run, model, text, tmp_path):
    for number, (flags, settings) in enumerate(
        [
            (["--pooling", "cls", "--normalize"], {"pooling": "cls", "normalize": True}),
            (["--pooling", "max", "--layers", "sum-all"], {"pooling": "max", "layers": "sum-all"}),
            (["--pooling", "pooler", "--max-length", "9"], {"pooling": "pooler", "max_length": 9}),
        ]
    ):
        out = tmp_path / f"{number}.npy"
        run("embed", text, "--model", model, "--out", out, *flags).succeeds()
        np.testing.assert_allclose(np.load(out), load_embedder(model, **settings).embed(LINES), atol=2e-6)


def test_truncated_and_empty_texts_are_reported(run, model, text, tmp_path):
    embedder = load_embedder(model)
    embedder.embed(LINES)
    result = run("embed", text, "--model", model, "--out", tmp_path / "x.npy", "--json")
    summary = json.loads(result.out)
    seconds = summary.pop("seconds")
    assert seconds > 0
    assert summary == {
        "out": str(tmp_path / "x.npy"),
        "texts": 6,
        "rows": 6,
        "width": 32,
        "cut_texts": 1,
        "cut_tokens": embedder.cut_tokens,
        "empty_texts": 1,
    }
    assert f"truncated: 1, {embedder.cut_tokens} tokens cut in total" in result.err
    assert "embedded as special tokens only: 1" in result.err


def test_a_line_that_is_not_utf_8_and_a_very_long_one_have_their_vectors(run, model, tmp_path):
    path, out = tmp_path / "text.txt", tmp_path / "x.npy"
    path.write_bytes(b"the man\nthe \xff man\n" + b"the store " * 200_000 + b"\nlast")
    refused = run("embed", path, "--model", model, "--out", out, "--json")
    refused.refuses(
        "found the byte 0xff in line 2, not UTF-8; save it as UTF-8, or name its encoding", "--bad-bytes drop"
    )
    result = run("embed", path, "--model", model, "--out", out, "--json", "--bad-bytes", "drop", "--replace")
    assert (result.code, json.loads(result.out)["rows"]) == (0, 4)
    assert "not UTF-8, dropped: 1, the first in line 2" in result.err
    vectors = np.load(out)
    np.testing.assert_array_equal(vectors[0], vectors[1])
    alone = load_embedder(model).embed(["the store " * 15])[0]
    np.testing.assert_allclose(vectors[2], alone, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)


def test_a_file_in_another_encoding_has_the_vectors_of_its_text(run, model, tmp_path):
    (tmp_path / "a.txt").write_bytes("the man\nthe caf\xe9 store\n".encode("cp1252"))
    (tmp_path / "b.txt").write_bytes("the man\nthe caf\xe9 store\n".encode())
    (tmp_path / "c.csv").write_bytes("text\nthe man\nthe caf\xe9 store\n".encode("cp1252"))
    coded = ("--encoding", "cp1252")
    for command, end in (("embed", ".npy"), ("features", ".npy"), ("features", ".jsonl")):
        wanted = tmp_path / f"wanted{end}"
        run(command, tmp_path / "b.txt", "--model", model, "--out", wanted, "--replace").succeeds()
        for name, stdin in (("a.txt", b""), ("c.csv", b""), ("-", (tmp_path / "a.txt").read_bytes())):
            out, source = tmp_path / f"x{end}", name if name == "-" else tmp_path / name
            result = run(command, source, "--model", model, "--out", out, *coded, "--replace", stdin=stdin)
            assert (result.code, out.read_bytes() == wanted.read_bytes()) == (0, True), (command, name, result.err)
    run("vectors", "static", "--model", model, "--text", tmp_path / "a.txt", "--out", tmp_path / "s", *coded).succeeds()
    result = run("vectors", "static", "--model", model, "--out", tmp_path / "t", *coded)
    assert "--encoding needs --text" in result.err


def test_stdin_and_tables_are_read_like_a_file(run, model, text, tmp_path):
    run("embed", text, "--model", model, "--out", tmp_path / "file.npy")
    wanted = (tmp_path / "file.npy").read_bytes()
    run("embed", "-", "--model", model, "--out", tmp_path / "x.npy", stdin=text.read_bytes()).succeeds()
    assert (tmp_path / "x.npy").read_bytes() == wanted
    records = "".join(json.dumps({"id": 1, "body": line}) + "\n" for line in LINES)
    (tmp_path / "t.jsonl").write_text(records)
    (tmp_path / "t.csv").write_text("id,body\n" + "".join(f'1,"{line}"\n' for line in LINES))
    for name in ("t.jsonl", "t.csv"):
        run("embed", tmp_path / name, "--model", model, "--out", tmp_path / f"{name}.npy").succeeds()
        assert (tmp_path / f"{name}.npy").read_bytes() == wanted
    run("embed", "-", "--column", "body", "--model", model, "--out", tmp_path / "y.npy", stdin=records.encode())
    assert (tmp_path / "y.npy").read_bytes() == wanted


def test_a_parquet_file_may_hold_the_texts(run, model, text, tmp_path):
    out = tmp_path / "x.parquet"
    run("embed", text, "--model", model, "--out", out, "--text").succeeds()
    table = pq.read_table(out)
    assert table["text"].to_pylist() == LINES
    np.testing.assert_allclose(np.stack(table["vector"].to_numpy()), load_embedder(model).embed(LINES), atol=2e-6)
    refused = run("embed", text, "--model", model, "--out", tmp_path / "x.npy", "--text")
    assert (refused.code, ".parquet" in refused.err) == (1, True)


@pytest.mark.parametrize("command", ["embed", "features"])
@pytest.mark.parametrize("name", ["x.npy", "x.parquet"])
@pytest.mark.parametrize("stdin", [False, True])
def test_an_interrupted_job_resumes_and_is_byte_identical(
    run, model, text, tmp_path, monkeypatch, command, name, stdin
):
    (tmp_path / "whole").mkdir()
    source = {"stdin": text.read_bytes()} if stdin else {}
    arguments = [command, "-" if stdin else text, "--model", model, "--out"]
    run(*arguments, tmp_path / "whole" / name, **source).succeeds()
    writer = NpyWriter if name == "x.npy" else ParquetWriter
    append = writer.append
    stop = 1 if command == "embed" else 2  # words come with a second, empty part
    for flags in ([], ["--resume"]):
        calls = []

        def full(self, vectors, columns, calls=calls):
            calls.append(len(vectors))
            if len(calls) > stop:
                append(self, vectors[:1], {key: array[:1] for key, array in columns.items()})
                raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
            append(self, vectors, columns)

        with monkeypatch.context() as patch:
            patch.setattr(writer, "append", full)
            result = run(*arguments, tmp_path / "out" / name, *flags, **source)
        assert (result.code, "resume with --resume" in result.err) == (1, True)
        assert not (tmp_path / "out" / name).exists()
    blind = run(*arguments, tmp_path / "out" / name, **source)
    assert (blind.code, "--resume" in blind.err) == (1, True)
    done = run(*arguments, tmp_path / "out" / name, "--resume", "--json", **source)
    assert (done.code, json.loads(done.out)["texts"]) == (0, 6)
    for file in sorted(path.name for path in (tmp_path / "whole").iterdir()):
        assert (tmp_path / "out" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file
    assert len(list((tmp_path / "out").iterdir())) == len(list((tmp_path / "whole").iterdir()))
    again = run(*arguments, tmp_path / "out" / name, "--resume", "--json", **source)
    assert (again.code, json.loads(again.out)["rows"]) == (0, json.loads(done.out)["rows"])


@pytest.mark.parametrize("flags", [[], ["--replace"]])
def test_the_index_of_vectors_is_never_written_over_the_texts(run, model, tmp_path, flags):
    tokens = file_with(tmp_path / "a.tokens.jsonl", '{"word": "store"}\n')
    result = run("features", tokens, "--column", "word", "--model", model, "--out", tmp_path / "a.npy", *flags)
    result.refuses("apart from the input")
    assert [path.name for path in tmp_path.glob("a.*")] == [tokens.name]
    assert tokens.read_text() == '{"word": "store"}\n'


def test_an_index_that_is_an_input_is_not_removed_with_its_vectors(run, model, text, tmp_path):
    out, tokens = tmp_path / "a.npy", tmp_path / "a.tokens.jsonl"
    run("features", text, "--model", model, "--out", out).succeeds()
    arguments = ["--column", "word", "--model", model, "--replace", "--out"]
    refused = run("embed", tokens, *arguments, out)
    assert (refused.code, "apart from the input" in refused.err, tokens.exists()) == (1, True, True)
    run("embed", text, "--model", model, "--out", out, "--replace").succeeds()
    assert not tokens.exists()


def test_texts_that_change_while_they_are_read_are_refused(run, model, text, tmp_path, monkeypatch):
    vectors = vector_jobs.TextVectors.vectors

    def grow(self, texts, first):
        if not first:
            text.write_bytes(text.read_bytes() + b"one more\n")
        return vectors(self, texts, first)

    out = tmp_path / "x.npy"
    with monkeypatch.context() as patch:
        patch.setattr(text_lines, "BLOCK_BYTES", 8)
        patch.setattr(vector_jobs.TextVectors, "vectors", grow)
        result = run("embed", text, "--model", model, "--out", out)
    assert (result.code, result.err.count("\n")) == (1, 1), result
    assert "the 6 texts that" in result.err
    assert "7 different texts" in result.err
    assert not out.exists()
    run("embed", text, "--model", model, "--out", out, "--replace").succeeds()
    assert len(np.load(out)) == 7


@pytest.mark.parametrize("method", ["begin", "whole", "end"])
def test_a_full_disk_gives_the_same_message_at_any_point(run, model, text, tmp_path, monkeypatch, method):
    def full(self, *_):
        raise OSError(errno.ENOSPC, "No space left on device", str(self.path))

    arguments = ["embed", text, "--model", model, "--out", tmp_path / "x.npy"]
    with monkeypatch.context() as patch:
        patch.setattr(NpyWriter, method, full)
        for flags in ([], ["--resume"]):
            result = run(*arguments, *flags)
            assert (result.code, "resume with --resume" in result.err) == (1, True), result
    run(*arguments, "--resume").succeeds()


def test_other_texts_or_settings_are_refused_on_resume(run, model, text, tmp_path):
    """Whether they come from a file or from stdin, even if the file is complete."""
    out, piped = tmp_path / "x.npy", tmp_path / "y.npy"
    run("embed", text, "--model", model, "--out", out)
    run("embed", "-", "--model", model, "--out", piped, stdin=text.read_bytes())
    before = out.read_bytes(), piped.read_bytes()
    other = text.read_bytes().replace(b"tweet", b"store")
    results = [
        run("embed", text, "--model", model, "--out", out, "--resume", "--pooling", "max"),
        run("embed", "-", "--model", model, "--out", piped, "--resume", stdin=other),
        run("embed", "-", "--model", model, "--out", piped, "--resume", stdin=text.read_bytes() + b"more\n"),
        run("embed", "-", "--model", model, "--out", piped, "--resume", stdin=text.read_bytes()[:40]),
        run("embed", text, "--model", model, "--out", out, "--resume", "--replace"),
    ]
    text.write_bytes(other)
    results.append(run("embed", text, "--model", model, "--out", out, "--resume"))
    for result in results:
        assert (result.code, result.err.count("\n")) == (1, 1), result
    assert (out.read_bytes(), piped.read_bytes()) == before


def test_words_of_a_file_have_their_vectors_line_and_characters(run, model, text, tmp_path):
    out = tmp_path / "w.parquet"
    result = run("features", text, "--model", model, "--out", out, "--layers", "-1,0", "--words", "mean", "--json")
    summary = json.loads(result.out)
    (features,) = list(load_token_features(model, layers="-1,0", unit="mean").read(LINES))
    assert (summary["rows"], summary["width"], summary["empty_texts"]) == (len(features.token), 64, 1)
    assert summary["long_texts"] == 1
    table = pq.read_table(out)
    assert table["line"].to_pylist() == features.line.tolist()
    assert table["word"].to_pylist() == features.token
    for line, word, begin, end in zip(*(table[name].to_pylist() for name in table.column_names[:4]), strict=True):
        assert LINES[line][begin:end] == word
    np.testing.assert_allclose(np.stack(table["vector"].to_numpy()), features.vectors, atol=2e-6)


def test_pieces_of_a_file_go_to_an_array_with_an_index_file(run, model, text, tmp_path):
    out = tmp_path / "w.npy"
    run("features", text, "--model", model, "--out", out, "--pieces", "--float16").succeeds()
    (result,) = list(load_token_features(model, unit="pieces").read(LINES))
    vectors = np.load(out)
    assert vectors.dtype == np.float16
    np.testing.assert_allclose(vectors, result.vectors, atol=2e-3, rtol=1e-3)
    tokens = [json.loads(line) for line in (tmp_path / "w.tokens.jsonl").read_text().splitlines()]
    assert [token["piece"] for token in tokens] == result.token
    assert [token["line"] for token in tokens] == result.line.tolist()


def test_a_file_without_a_word_gives_an_empty_table(run, model, tmp_path):
    (tmp_path / "blank.txt").write_text("\n \n")
    result = run("features", tmp_path / "blank.txt", "--model", model, "--out", tmp_path / "w.parquet", "--json")
    assert json.loads(result.out)["rows"] == 0
    table = pq.read_table(tmp_path / "w.parquet")
    assert (len(table), table.column_names) == (0, ["line", "word", "begin", "end", "vector"])
    run("features", tmp_path / "blank.txt", "--model", model, "--out", tmp_path / "w.npy")
    assert np.load(tmp_path / "w.npy").shape == (0, 32)


@pytest.mark.parametrize("name", ["x.npy", "x.parquet"])
def test_vectors_of_texts_may_have_half_the_size(run, model, text, tmp_path, name):
    out = tmp_path / name
    run("embed", text, "--model", model, "--out", out, "--float16").succeeds()
    result = np.load(out) if name == "x.npy" else np.stack(pq.read_table(out)["vector"].to_numpy())
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, load_embedder(model).embed(LINES), atol=2e-3, rtol=1e-3)
    other = run("embed", text, "--model", model, "--out", out, "--resume")
    assert (other.code, "float16; found float32" in other.err) == (1, True)


KILLED = """
import sys, time, torch
from bertsmith.app.cli.app import main
from bertsmith.inference.vectors.jobs import TextVectors
torch.set_num_threads({threads})
vectors = TextVectors.vectors
TextVectors.block = {block}
TextVectors.vectors = lambda self, texts, first: [time.sleep(0.02), *vectors(self, texts, first)][1:]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.npy", "x.parquet"])
def test_a_process_that_is_killed_while_it_embeds_costs_a_block_and_no_byte(run, model, tmp_path, monkeypatch, name):
    """A real process and a real SIGKILL; each block waits a moment, so that the job does not end before the signal."""
    monkeypatch.setattr(vector_jobs.TextVectors, "block", 50)
    text, whole, out = tmp_path / "text.txt", tmp_path / "whole" / name, tmp_path / "out" / name
    lines = [" ".join(LINES[(number * step) % 6] for step in range(1 + number % 5)) for number in range(3000)]
    text.write_text("".join(f"{number} {line}\n" for number, line in enumerate(lines)))
    command = ["embed", text, "--model", model, "--out"]
    run(*command, whole).succeeds()
    program = KILLED.format(threads=torch.get_num_threads(), block=50)
    started = [sys.executable, "-c", program, *map(str, command), str(out)]
    process = subprocess.Popen(started, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    state, limit = out.with_name(f"{name}.partial.json"), time.monotonic() + 60
    while not state.exists():
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < limit
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < json.loads(state.read_text())["done"]["texts"] < 3000
    assert not out.exists()
    blind = run(*command, out)
    assert (blind.code, "resume with --resume" in blind.err) == (1, True)
    embedded = []
    embed = Embedder.embed
    monkeypatch.setattr(Embedder, "embed", lambda self, texts: embedded.extend(texts) or embed(self, texts))
    run(*command, out, "--resume").succeeds()
    assert 0 < len(embedded) < 3000, "only what was left"
    assert sorted(path.name for path in out.parent.iterdir()) == sorted(path.name for path in whole.parent.iterdir())
    for path in whole.parent.iterdir():
        assert (out.parent / path.name).read_bytes() == path.read_bytes(), path.name


def test_what_cannot_be_read_is_refused_before_anything_is_written(run, model, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "head.csv").write_text("text,label\n")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n' * 9 + "no")
    for name in ("empty.txt", "head.csv", "bad.jsonl", "absent.txt"):
        run("embed", tmp_path / name, "--model", model, "--out", tmp_path / "out" / "x.npy").refuses()
        assert not list((tmp_path / "out").glob("*")), name
    assert run("embed", "-", "--model", model, "--out", tmp_path / "x.npy", stdin=b"").code == 1
    wrong = run("features", tmp_path / "head.csv", "--model", model, "--out", tmp_path / "x.npy", "--words", "last")
    assert (wrong.code, "--words" in wrong.err) == (1, True)


@pytest.mark.parametrize("command", ["embed", "features"])
def test_the_last_line_says_which_precision_was_used(run, model, text, tmp_path, monkeypatch, command):
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    for number, (flags, said) in enumerate([((), "fp32"), (("--precision", "fp64"), "fp64")]):
        out = tmp_path / f"{number}.npy"
        result = run(command, text, "--model", model, "--device", "cpu", "--out", out, *flags).succeeds()
        line = next(line for line in result.err.splitlines() if line.startswith(f"{out.name}: 6 texts in "))
        assert f" s, {said} · " in line


def test_an_unknown_precision_lists_the_known_ones(run, model, text, tmp_path):
    wrong = run("embed", text, "--model", model, "--out", tmp_path / "x.npy", "--precision", "int4")
    wrong.refuses("expected a precision: auto, fp32, bf16, fp16, fp64 or int8; found 'int4'; use one of them")


def test_the_endings_of_features_are_named(run, text: Path, model: Path, tmp_path: Path) -> None:
    refused = run("features", text, "--model", model, "--out", tmp_path / "f.csv")
    refused.refuses("expected an output that ends in .npy, .parquet or .jsonl; found 'f.csv'")
