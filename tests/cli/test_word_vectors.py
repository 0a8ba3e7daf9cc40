"""The commands for word vectors, from a text to answers."""

import json

import numpy as np
import pytest


@pytest.fixture
def trained(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    words = [f"w{number}" for number in range(20)]
    (tmp_path / "text.txt").write_text("\n".join(" ".join(rng.choice(words, size=8)) for _ in range(100)) + "\n")
    result = run("vectors", "train", "text.txt", "--form", "lines", "--width", 6, "--epochs", 1, "--out", "v")
    assert (result.code, result.out) == (0, "v: 20 words, vectors of 6 numbers\n"), result.err
    return "v"


def test_the_command_of_vector_files_is_still_there(run, tmp_path):
    np.save(tmp_path / "some.npy", np.eye(4, dtype=np.float32))
    run("vectors", tmp_path / "some.npy").succeeds()
    assert "train" not in run("vectors", "--help").out.split("Options:")[1]


def test_vectors_are_converted_and_answer_the_same(run, trained):
    for to in ("text", "binary"):
        run("vectors", "convert", trained, "--to", to, "--out", f"v.{to}").succeeds()
    for typed in (["neighbours", "w1", "--count", "3"], ["analogy", "w1", "w2", "w3"], ["similarity", "w1", "w2"]):
        answers = {run("vectors", typed[0], vectors, *typed[1:]).out for vectors in (trained, "v.text", "v.binary")}
        assert len(answers) == 1
        assert answers != {""}
    run("vectors", "convert", trained, "--to", "text", "--out", "v.text").refuses("--replace")


def test_a_vector_is_shown_with_two_decimals(run, trained):
    shown = run("vectors", "show", trained, "W5").out.split()
    exact = json.loads(run("vectors", "show", trained, "w5", "--json").out)["vector"]
    assert shown == [f"{number:.2f}" for number in exact]
    assert len(shown) == 6


def test_files_of_questions_are_scored(run, trained, tmp_path):
    (tmp_path / "q.txt").write_text(": s\nw1 w2 w3 w4\nw1 w2 w3 nowhere\n")
    lines = [json.loads(line) for line in run("vectors", "analogy", trained, "q.txt", "--json").out.splitlines()]
    assert [(line["section"], line["asked"], line["left_out"]) for line in lines] == [("s", 1, 1), ("total", 1, 1)]
    (tmp_path / "p.tsv").write_text("w1\tw2\t3\nw3\tw4\t1\nw5\tnowhere\t2\n")
    said = run("vectors", "similarity", trained, "p.tsv").out
    assert "over 2 pairs; left out, with unknown words: 1 pair" in said


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        (["show", "v", "unheard"], 1, "found 'unheard'"),
        (["analogy", "v", "w1", "w2"], 2, "three words, or one file"),
        (["similarity", "v", "w1", "w2", "w3"], 2, "two words, or one file"),
        (["train", "text.txt", "--method", "glvoe", "--out", "x"], 1, "did you mean 'glove'?"),
        (["train", "text.txt", "--method", "glove", "--negatives", "5", "--out", "x"], 1, "negatives"),
        (["train", "text.txt", "--out", "v"], 1, "one that exists"),
        (["train", "text.txt", "--out", "text.txt"], 1, "apart from the input"),
        (["neighbours", "nowhere", "w1"], 1, "expected word vectors at 'nowhere'"),
    ],
)
def test_mistakes_are_explained_in_one_line(run, trained, typed, code, said):
    result = run("vectors", *typed)
    assert (result.code, result.out) == (code, "")
    assert said in result.err
    assert result.err.count("\n") == 1


def test_similar_words_and_opposites_are_distinguished_or_two_words_are_judged(run, trained, tmp_path):
    lines = [f"w{number} w{number + 1} {'opposite' if number % 4 else 'similar'}" for number in range(0, 20, 2)]
    (tmp_path / "o.txt").write_text("\n".join([*lines, "w1 nowhere similar"]) + "\n")
    said = run("vectors", "opposites", trained, "o.txt").out
    assert "left out, with unknown words: 1 pair" in said
    score = json.loads(run("vectors", "opposites", trained, "o.txt", "--json").out)
    assert (score["similar"], score["opposite"], score["left_out"]) == (5, 5, 1)
    assert f"told apart by the cosine: {score['by_cosine']:.3f}; by the probe: {score['by_probe']:.3f}" in said
    judged = json.loads(run("vectors", "opposites", trained, "o.txt", "w1", "w4", "--json").out)
    assert 0 < judged["opposite"] < 1
    assert f"{judged['cosine']:.4f}" in run("vectors", "similarity", trained, "w1", "w4").out
    assert f"probe: {judged['opposite']:.2f}" in run("vectors", "opposites", trained, "o.txt", "w1", "w4").out
    assert run("vectors", "opposites", trained, "o.txt", "w1").code == 2
