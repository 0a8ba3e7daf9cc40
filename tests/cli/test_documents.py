"""ask and rank as a user types them: places in the file, no answer, the order of sentences."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from bertsmith import CutWarning, ask_document, load, rank_sentences
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.tasks.specs.predictions import AnswerPrediction
from bertsmith.text.documents.forms import FORMS
from cli.test_predicting import write_model
from written_files import file_with

LINES = ["The plot of Anna's film , in Rome .", "", "Bert was  great , and", "Carl was it ; good film , bad plot ."]
LONG = "\n".join([*LINES, *["the film was and plot of in one" for _ in range(30)], "Oslo , who was fine ."])
QUESTION = "where was Anna ?"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    return file_with(tmp_path / "document.txt", LONG + "\n")


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    return write_model(tmp_path / "reader", "answer")


@pytest.fixture
def doubter(tmp_path: Path) -> Path:
    """A model that may find no answer."""
    return write_model(tmp_path / "doubter", "answer or none")


def set_threshold(model: Path, threshold: float) -> None:
    metadata = json.loads((model / "bertsmith.json").read_text(encoding="utf-8"))
    metadata["spec"]["threshold"] = threshold
    (model / "bertsmith.json").write_text(json.dumps(metadata), encoding="utf-8")


def test_every_answer_is_at_its_line_and_characters_of_the_file(run, reader: Path, document: Path) -> None:
    result = run("ask", reader, document, QUESTION, "--top", 5, "--json").succeeds()
    answer_of_file = json.loads(result.out)
    assert (answer_of_file["question"], answer_of_file["has_answer"], answer_of_file["no_answer_probability"]) == (
        QUESTION,
        True,
        None,
    )
    text = document.read_text(encoding="utf-8")
    assert 1 < len(answer_of_file["answers"]) <= 5
    for answer in answer_of_file["answers"]:
        assert " ".join(text[answer["begin"] : answer["end"]].split()) == answer["text"]
        line = text.split("\n")[answer["line"] - 1]
        assert line[answer["column"] - 1 :].startswith(answer["text"].split()[0])
        assert answer["context"]["word"] == text[answer["begin"] : answer["end"]]
    spans = sorted((answer["begin"], answer["end"]) for answer in answer_of_file["answers"])
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans)), "none overlap"
    shares = [answer["probability"] for answer in answer_of_file["answers"]]
    assert shares == sorted(shares, reverse=True)


def test_the_first_answer_is_that_of_the_library_over_the_whole_text(reader: Path, document: Path) -> None:
    expected = load(reader).answer([(QUESTION, document.read_text(encoding="utf-8"))])[0]
    (result,) = ask_document(reader, document, [QUESTION])
    assert ask_document(reader, document, np.array([QUESTION])) == [result]
    assert ask_document(reader, document, list(np.array([QUESTION]))) == [result]
    assert len(result.answers) == 1
    best = result.answers[0]
    assert (best.text, best.begin, best.end) == (expected.text, expected.start, expected.end)
    assert best.probability == pytest.approx(expected.probability, abs=1e-6)


def test_people_read_the_answer_its_place_and_its_context(run, reader: Path, document: Path) -> None:
    answer = json.loads(run("ask", reader, document, QUESTION, "--json").out)["answers"][0]
    first, second = run("ask", reader, document, QUESTION).out.splitlines()
    assert first == f"{answer['probability']:.0%}  {answer['text']}"
    last = answer["column"] + answer["end"] - answer["begin"] - 1
    assert second.startswith(f"  line {answer['line']}, characters {answer['column']} to {last}: ")
    assert f"[{answer['text']}]" in second
    several = run("ask", reader, document, QUESTION, "who was it ?").out.splitlines()
    assert (several[0], several[3]) == (QUESTION, "who was it ?")
    assert several[1:3] == [first, second]


def test_no_answer_is_said_and_the_withheld_ones_are_in_the_json(run, doubter: Path, document: Path) -> None:
    set_threshold(doubter, -1e9)
    result = run("ask", doubter, document, QUESTION, "--top", 2)
    (line,) = result.out.splitlines()
    assert line.endswith("%  (no answer)")
    reply = json.loads(run("ask", doubter, document, QUESTION, "--top", 2, "--json").out)
    assert reply["has_answer"] is False
    assert 0 <= reply["no_answer_probability"] <= 1
    assert len(reply["answers"]) == 2
    assert all(answer["text"] for answer in reply["answers"])
    set_threshold(doubter, 1e9)
    assert "(no answer)" not in run("ask", doubter, document, QUESTION).out


def test_an_answer_over_two_lines_is_counted_from_its_first_character(
    reader: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "ab\ncd ef\ngh\n"
    (tmp_path / "two.txt").write_text(text, encoding="utf-8")
    candidates = (("ef gh", 6, 11, 0.5), ("gh", 9, 11, 0.3), ("", 0, 0, 0.1), ("ab", 0, 2, 0.1))
    answer = AnswerPrediction(
        text="ef gh", start=6, end=11, probability=0.5, n_best=candidates, null_score_diff=None, has_answer=True
    )
    monkeypatch.setattr(Predictor, "stream", lambda _, examples, total: [(example, answer) for example in examples])
    (result,) = ask_document(reader, tmp_path / "two.txt", ["?"], top=9)
    assert [(answer.text, answer.line, answer.column) for answer in result.answers] == [("ef gh", 2, 4), ("ab", 1, 1)]


def test_what_cannot_be_asked_is_refused_in_one_line(run, reader: Path, tmp_path: Path, document: Path) -> None:
    judge = write_model(tmp_path / "judge", "single")
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    for expected, *command in (
        ("expected a model that answers questions; found", judge, document, QUESTION),
        ("expected a question in question 2; found an empty one", reader, document, QUESTION, " "),
        ("found an empty file", reader, tmp_path / "empty.txt", QUESTION),
        (
            "expected at most 20 answers, the candidates that the model keeps; found 21",
            reader,
            document,
            "?",
            "--top=21",
        ),
    ):
        run("ask", *command).refuses(expected)


def test_a_document_in_another_encoding_is_read_as_its_text(run, reader: Path, document: Path, tmp_path: Path) -> None:
    text = document.read_text(encoding="utf-8") + "\nThe caf\xe9 was good.\n"
    plain, coded = tmp_path / "plain.txt", tmp_path / "coded.txt"
    plain.write_bytes(text.encode())
    coded.write_bytes(text.encode("cp1252"))
    ask = ("ask", reader, coded, QUESTION, "--top", 5, "--json")
    assert run(*ask, "--encoding", "cp1252") == run("ask", reader, plain, QUESTION, "--top", 5, "--json")
    model = write_model(tmp_path / "model", "single")
    wanted = run("rank", model, plain, "--label", "positive").out
    assert "caf\xe9" in wanted
    assert run("rank", model, coded, "--label", "positive", "--encoding", "cp1252").out == wanted
    dropped = run("rank", model, coded, "--label", "positive", "--bad-bytes", "drop")
    assert "The caf was good." in dropped.out
    for refused in (run(*ask), run("rank", model, coded, "--label", "positive")):
        assert refused.code == 1
        assert "not UTF-8; save it as UTF-8, or name its encoding" in refused.err


def test_sentences_are_ranked_by_the_label_that_is_named(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "single")
    article = tmp_path / "article.txt"
    article.write_text("The film was good. Bert was in Rome.\nAnna was it! And the plot? Bad film.\n", encoding="utf-8")
    result = run("rank", model, article, "--label", "positive", "--json").succeeds()
    sentences_found = [json.loads(line) for line in result.out.splitlines()]
    sentences = ["The film was good.", "Bert was in Rome.", "Anna was it!", "And the plot?", "Bad film."]
    assert sorted(record["sentence"] for record in sentences_found) == [1, 2, 3, 4, 5]
    assert [record["text"] for record in sorted(sentences_found, key=lambda record: record["sentence"])] == sentences
    expected = [prediction.probabilities[1] for prediction in load(model).classify(sentences)]
    for record in sentences_found:
        assert record["probability"] == pytest.approx(expected[record["sentence"] - 1], abs=1e-5)
    shares = [record["probability"] for record in sentences_found]
    assert shares == sorted(shares, reverse=True)
    opposite = [sentence.sentence for sentence in rank_sentences(model, article, "negative")]
    assert opposite == [record["sentence"] for record in reversed(sentences_found)]
    assert [sentence.to_dict() for sentence in rank_sentences(model, article, "positive", top=2)] == sentences_found[:2]
    lines = run("rank", model, article, "--label", "positive", "--top", 2).out.splitlines()
    assert lines[0].split() == ["probability", "number", "sentence"]
    assert lines[1].split()[:2] == [f"{sentences_found[0]['probability']:.4f}", str(sentences_found[0]["sentence"])]
    assert lines[1].endswith(sentences_found[0]["text"])
    assert len(lines) == 3


def test_a_sentence_that_is_truncated_is_reported_wherever_it_ranks(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "single")
    text = f"The film was good.\n{'Bert was ' * 30}great.\nBad film.\n"
    (tmp_path / "article.txt").write_text(text, encoding="utf-8")
    result = run("rank", model, tmp_path / "article.txt", "--label", "positive", "--top", 1)
    assert (result.code, len(result.out.splitlines())) == (0, 2)
    lost = 62 - (32 - 2)  # the pieces of the long sentence, without those that fit
    assert result.err.splitlines()[-1] == f"bertsmith: 1 sentence was truncated, {lost} tokens in all"
    with pytest.warns(CutWarning, match="1, 32 tokens in all"):
        ranked = rank_sentences(model, tmp_path / "article.txt", "positive", top=1)
    assert len(ranked) == 1


def test_the_layout_of_an_article_can_be_named(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "several labels")
    (tmp_path / "article.txt").write_text("the film was\ngood . it was\n", encoding="utf-8")
    as_lines = run("rank", model, tmp_path / "article.txt", "--label", "person", "--form", "lines", "--json")
    assert {json.loads(line)["text"] for line in as_lines.out.splitlines()} == {"the film was", "good . it was"}


def test_what_cannot_be_ranked_is_refused_in_one_line(run, reader: Path, tmp_path: Path, document: Path) -> None:
    model = write_model(tmp_path / "model", "single")
    (tmp_path / "empty.txt").write_text("\n\n", encoding="utf-8")
    for expected, *command in (
        ("expected a model that classifies texts; found", reader, document),
        ("expected a model that classifies single texts; found", write_model(tmp_path / "pairs", "pair"), document),
        ("one of 'negative', 'positive'; found none; give --label 'positive'", model, document),
        ("one of negative, positive; found 'positiv'; did you mean 'positive'?", model, document, "--label=positiv"),
        ("expected sentences in", model, tmp_path / "empty.txt", "--label=positive"),
    ):
        run("rank", *command).refuses(expected)


@pytest.mark.parametrize("command", ["rank", "corpus"])
def test_the_help_lists_every_layout_of_text(run, command: str) -> None:
    shown = run(command, "--help-all").out
    shown = " ".join(shown[shown.index("--form") :].split())
    assert all(form in shown.partition("[auto]")[0] for form in FORMS)
