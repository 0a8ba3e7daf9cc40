"""The page of fine-tuning runs shows the content of the run folders and compares runs on the same examples."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.app.cli.pretraining import report as report_command
from bertsmith.app.library.request import ReportRequest
from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import write_json, write_text
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.results.comparison import Comparison, clause_of
from bertsmith.recipes.results.report import is_finetuning, write_finetuning_report
from bertsmith.recipes.results.resampling import texts_of
from bertsmith.tasks.datasets.examples import ChoiceExample, QuestionExample, TaggedExample, TextExample
from bertsmith.tasks.metrics.calibration import expected_calibration_error
from bertsmith.tasks.metrics.entities import entity_scores
from bertsmith.tasks.metrics.uncertainty import PairedTest, paired_test, spread
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.training.loop.run_folder import RunFolder
from reports.page import Page
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of, write_base_model
from training.toy import ToyWorkload, toy_run

pytestmark = pytest.mark.usefixtures("drawn_charts")

Line = dict[str, Any]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of several runs is written to the current folder."""
    monkeypatch.chdir(tmp_path)


def write_run(path: Path, kind: str, lines: list[Line], *, seeds: int = 2, spec: dict[str, Any] | None = None) -> Path:
    """A run folder as written by `finetune`, with the given predictions and made-up scores 0.5, 0.75, ..."""
    metric = {"regression": "pearson", "span": "f1", "tagging": "f1"}.get(kind, "accuracy")
    values = [0.5 + 0.25 * number for number in range(seeds)]
    runs = []
    for number, value in enumerate(values):
        folder = f"seed-{number + 1}"
        log = [{"kind": "train", "step": step, "tokens": 9 * step, "loss": 1 / step} for step in (10, 20, 30)]
        log += [{"kind": "evaluation", "step": step, f"held_out_{metric}": value * step / 30} for step in (15, 30)]
        write_text(path / folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in log))
        runs.append(
            {"folder": folder, "seed": number + 1, "scores": {metric: value}, "collapsed": False, "best_step": 30}
            | {"steps": 30, "seconds": 60.0, "tokens": 270}
        )
    scores = spread(values)
    shared = {"task": "cola", "kind": kind, "metric": metric, "train_examples": 8551, "dev_examples": len(lines)}
    scored = {metric: {"mean": scores.mean, "deviation": scores.deviation, "values": list(scores.values)}}
    ends = {"best": f"seed-{seeds}", "collapsed": 1, "seconds": 120.0, "tokens_per_second": 1234.5, "runs": runs}
    around = {metric: [values[-1] - 0.05, values[-1] + 0.04]}
    write_json(path / "report.json", {**shared, "scores": scored, "intervals": around, **ends})
    settings = {"task": "finetuning", "spec": {"kind": kind, **(spec or {})}, "run": {"batch_size": 32}}
    machine = {"processor": "an abacus"}
    write_json(path / "settings.json", {"settings": settings, "machine": machine, "digests": {"train": "sha256:77aa"}})
    if lines:
        write_text(path / "predictions.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    return path


def label_line(name: str, gold: str, chances: dict[str, float], texts: list[str] | None = None) -> Line:
    label = max(chances, key=chances.__getitem__)
    prediction = {"label": label, "chosen": [label], "probabilities": chances, "cut_tokens": 0}
    line = {"id": name, "gold": gold, "score": float(label == gold), "prediction": prediction}
    return line if texts is None else {**line, "texts": texts}


def some_labels(count: int, right: float, seed: int = 0) -> list[Line]:
    """Predictions of which about the fraction `right` is correct."""
    draws = generator(seed, "labels").random((count, 2))
    lines = []
    for number, (draw, sure) in enumerate(draws.tolist()):
        gold = "yes" if number % 3 else "no"
        label = gold if draw < right else {"yes": "no", "no": "yes"}[gold]
        chance = 0.5 + sure / 2
        lines.append(
            label_line(str(number), gold, {name: chance if name == label else 1 - chance for name in ("no", "yes")})
        )
    return lines


def read(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def tables_of(path: Path) -> list[list[list[str]]]:
    """The cells of all tables of a page."""
    text = path.read_text(encoding="utf-8")
    rows = [
        re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL) for table in re.findall(r"<table.*?</table>", text, re.DOTALL)
    ]
    return [[re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table] for table in rows]


def test_the_scores_of_a_run_are_in_a_table(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "classification", some_labels(30, 0.8))
    assert write_finetuning_report([run]) == run / "report.html"
    scores = tables_of(run / "report.html")[0]
    assert scores == [
        ["score", "mean", "standard deviation", "seed-1", "seed-2", "best model", "its 95% interval"],
        ["accuracy", "0.6250", "0.1768", "0.5000", "0.7500", "0.7500", "0.7000 to 0.7900"],
    ]
    text = read(run / "report.html").text
    for words in (
        "1 collapsed to one answer",
        "1234.5",
        "2 min 00 s",
        "an abacus",
        "sha256:77aa",
        "run.batch_size",
        "8,551",
    ):
        assert words in text, words


def test_every_seed_has_its_curves(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "classification", some_labels(30, 0.8), seeds=3)
    page = read(write_finetuning_report([run]))
    assert page.elements.count("svg") == 4  # loss, accuracy, calibration, most certain answers
    for caption in ("Training loss", "Accuracy on the dev examples", "Reliability"):
        assert caption in page.text
    legends = re.findall(r"<ul>(.*?)</ul>", (run / "report.html").read_text(encoding="utf-8"))
    assert [re.findall(r"</i>(.*?)</li>", legend) for legend in legends] == 2 * [["seed-1", "seed-2", "seed-3"]]


def test_a_page_makes_no_network_requests(tmp_path: Path) -> None:
    path = write_finetuning_report([write_run(tmp_path / "run", "classification", some_labels(30, 0.8))])
    page = read(path)
    assert not {"script", "link", "img", "iframe", "image"} & set(page.elements)
    assert [pair for pair in page.attributes if "//" in pair[1] and not pair[0].startswith("xmlns")] == []
    assert "#010203" not in path.read_text(encoding="utf-8")


def test_confusions_calibration_and_the_most_confident_mistakes_of_classes(tmp_path: Path) -> None:
    lines = [
        label_line("a", "no", {"no": 0.9, "yes": 0.1}, ["first text", "second"]),
        label_line("b", "no", {"no": 0.3, "yes": 0.7}, ["doubtful"]),
        label_line("c", "yes", {"no": 0.8, "yes": 0.2}, ["surely wrong"]),
        label_line("d", "yes", {"no": 0.4, "yes": 0.6}, ["right"]),
        label_line("e", "yes", {"no": 0.45, "yes": 0.55}, ["right"]),
    ]
    run = write_run(tmp_path / "run", "classification", lines)
    tables = tables_of(write_finetuning_report([run]))
    assert tables[1] == [["gold ↓ predicted →", "no", "yes"], ["no", "1", "1"], ["yes", "1", "2"]]
    assert tables[2][1:] == [
        ["no", "0.5000", "0.5000", "0.5000", "2", "2"],
        ["yes", "0.6667", "0.6667", "0.6667", "3", "3"],
    ]
    assert tables[4] == [
        ["id", "gold", "predicted", "probability", "text"],
        ["c", "yes", "no", "0.8000", "surely wrong"],
        ["b", "no", "yes", "0.7000", "doubtful"],
    ]
    chances = [list(line["prediction"]["probabilities"].values()) for line in lines]
    error = expected_calibration_error(chances, [0, 0, 1, 1, 1])
    text = read(run / "report.html").text
    assert f"Expected calibration error {error:.4f}" in text
    assert "2 mistakes among 5 examples" in text


def test_twenty_mistakes_are_shown_most_confident_first(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "classification", some_labels(200, 0.5))
    mistakes = tables_of(write_finetuning_report([run]))[4][1:]
    chances = [float(row[3]) for row in mistakes]
    assert len(mistakes) == 20
    assert chances == sorted(chances, reverse=True)
    assert all(row[1] != row[2] for row in mistakes)


def test_many_labels_have_a_list_of_confusions(tmp_path: Path) -> None:
    labels = [f"label {number}" for number in range(30)]
    lines = [
        label_line(str(n), labels[n], {label: float(label == labels[n // 2]) for label in labels}) for n in range(30)
    ]
    tables = tables_of(write_finetuning_report([write_run(tmp_path / "run", "classification", lines)]))
    assert tables[1][0] == ["gold", "predicted", "times"]
    assert ["label 29", "label 14", "1"] in tables[1]


def test_texts_with_several_labels_show_scores_by_label(tmp_path: Path) -> None:
    def line(name: str, gold: list[str], a: float, b: float) -> Line:
        chosen = [label for label, chance in (("a", a), ("b", b)) if chance >= 0.5]
        prediction = {"label": "a", "chosen": chosen, "probabilities": {"a": a, "b": b}, "cut_tokens": 0}
        return {"id": name, "gold": gold, "score": float(set(gold) == set(chosen)), "prediction": prediction}

    lines = [
        line("1", ["a"], 0.9, 0.2),
        line("2", [], 0.6, 0.1),
        line("3", ["a", "b"], 0.7, 0.05),
        line("4", ["b"], 0, 1),
    ]
    run = write_run(tmp_path / "run", "classification", lines, spec={"multi_label": True})
    tables = tables_of(write_finetuning_report([run]))
    assert tables[1][1:] == [
        ["a", "0.6667", "1.0000", "0.8000", "2", "3"],
        ["b", "1.0000", "0.5000", "0.6667", "2", "1"],
    ]
    assert tables[3][1:] == [["3", "a, b", "a", "0.9500"], ["2", "", "a", "0.6000"]]


def test_endings_are_compared_by_index_and_may_differ_in_number(tmp_path: Path) -> None:
    def line(name: str, gold: int, *chances: float) -> Line:
        index = int(np.argmax(chances))
        prediction = {"index": index, "text": "he sings", "probabilities": list(chances), "cut_tokens": 0}
        return {"id": name, "gold": gold, "score": float(gold == index), "prediction": prediction}

    lines = [line("1", 0, 0.9, 0.1), line("2", 2, 0.2, 0.5, 0.3), line("3", 1, 0.1, 0.9)]
    tables = tables_of(write_finetuning_report([write_run(tmp_path / "run", "choice", lines)]))
    assert [row[1:] for row in tables[1][1:]] == [["1", "0", "0"], ["0", "1", "0"], ["0", "1", "0"]]
    assert tables[4][1:] == [["2", "ending 2", "ending 1", "0.5000"]]


def test_numbers_are_plotted_against_gold_and_the_worst_listed(tmp_path: Path) -> None:
    lines = [
        {"id": str(n), "gold": gold, "score": -((gold - value) ** 2), "prediction": {"value": value, "cut_tokens": 0}}
        for n, (gold, value) in enumerate([(0.0, 0.5), (5.0, 1.0), (2.0, 2.5)])
    ]
    run = write_run(tmp_path / "run", "regression", lines)
    tables = tables_of(write_finetuning_report([run]))
    assert tables[1] == [
        ["id", "gold", "predicted"],
        ["1", "5", "1.0000"],
        ["0", "0", "0.5000"],
        ["2", "2", "2.5000"],
    ]
    assert "Predicted against gold" in read(run / "report.html").text
    assert len(re.findall(r"<use [^>]*#4878d0", (run / "report.html").read_text(encoding="utf-8"))) >= len(lines)


def test_a_constant_gold_number_can_be_plotted(tmp_path: Path) -> None:
    lines = [{"id": "1", "gold": 1.0, "score": 0.0, "prediction": {"value": 1.0, "cut_tokens": 0}}]
    page = read(write_finetuning_report([write_run(tmp_path / "run", "regression", lines)]))
    assert page.elements.count("svg") == 3  # loss, pearson, cloud


def answer_line(name: str, golds: list[str], text: str, score: float, chance: float) -> Line:
    prediction = {"text": text, "start": 0, "end": len(text), "probability": chance, "has_answer": bool(text)}
    gold = [{"text": answer, "start": 0} for answer in golds]
    return {"id": name, "texts": ["who?", "a context"], "gold": gold, "score": score, "prediction": prediction}


def test_questions_with_and_without_an_answer_are_scored_separately(tmp_path: Path) -> None:
    lines = [
        answer_line("1", ["Paris"], "Paris", 1.0, 0.9),
        answer_line("2", ["New York"], "York", 2 / 3, 0.8),
        answer_line("3", [], "", 1.0, 0.7),
        answer_line("4", [], "Rome", 0.0, 0.6),
        answer_line("5", ["Oslo", "Oslo"], "", 0.0, 0.95),
    ]
    run = write_run(tmp_path / "run", "span", lines, spec={"unanswerable": True})
    tables = tables_of(write_finetuning_report([run]))
    assert tables[1][1:] == [
        ["all questions", "5", "40.00", "53.33", "3"],
        ["with an answer", "3", "33.33", "55.56", "2"],
        ["without an answer", "2", "50.00", "50.00", "1"],
    ]
    assert [row[0] for row in tables[2][1:]] == ["5", "4", "2"]
    assert tables[2][1][1:] == ["Oslo", "(no answer)", "0.00", "0.9500", "who? | a context"]
    only_answers = write_run(tmp_path / "old", "span", lines[:2], spec={"unanswerable": False})
    assert tables_of(write_finetuning_report([only_answers]))[1][1:] == [["all questions", "2", "50.00", "83.33", "2"]]


def tags_line(name: str, words: str, gold: str, tags: str, chances: list[float]) -> Line:
    prediction = {"words": words.split(), "tags": tags.split(), "probabilities": chances, "entities": []}
    return {"id": name, "gold": gold.split(), "score": 1.0, "prediction": prediction}


def test_entities_are_scored_by_type_and_tags_confused(tmp_path: Path) -> None:
    lines = [
        tags_line("1", "Anna sees Rome", "B-PER O B-LOC", "B-PER O B-PER", [0.9, 0.8, 0.7]),
        tags_line("2", "New York", "B-LOC I-LOC", "B-LOC O", [0.6, 0.99]),
    ]
    spec = {"scheme": "IOB2", "labels": ["O", "B-PER", "B-LOC", "I-LOC"]}
    run = write_run(tmp_path / "run", "tagging", lines, spec=spec)
    tables = tables_of(write_finetuning_report([run]))
    golds, predicted = [line["gold"] for line in lines], [line["prediction"]["tags"] for line in lines]
    expected = entity_scores(golds, predicted, "IOB2")
    assert tables[1][1:] == [
        ["LOC", "0.0000", "0.0000", "0.0000", "2", "1"],
        ["PER", "0.5000", "1.0000", "0.6667", "1", "2"],
        ["all", *(f"{expected[name]:.4f}" for name in ("precision", "recall", "f1")), "3", "3"],
    ]
    assert tables[2][1:] == [
        ["O", "1", "0", "0", "0"],
        ["B-PER", "0", "1", "0", "0"],
        ["B-LOC", "0", "1", "1", "0"],
        ["I-LOC", "1", "0", "0", "0"],
    ]
    assert tables[3][1:] == [["2", "York", "I-LOC", "O", "0.9900"], ["1", "Rome", "B-LOC", "B-PER", "0.7000"]]


def test_tags_without_a_scheme_are_scored_by_tag(tmp_path: Path) -> None:
    lines = [tags_line("1", "dogs bark loud", "NOUN VERB ADV", "NOUN NOUN ADV", [0.9, 0.8, 0.7])]
    spec = {"scheme": "", "labels": ["ADV", "NOUN", "VERB"]}
    tables = tables_of(write_finetuning_report([write_run(tmp_path / "run", "tagging", lines, spec=spec)]))
    assert tables[1][2] == ["NOUN", "0.5000", "1.0000", "0.6667", "1", "2"]
    assert tables[1][3] == ["VERB", "0.0000", "0.0000", "0.0000", "1", "0"]


def test_what_users_write_is_escaped(tmp_path: Path) -> None:
    nasty = "<q>&$\\x$"
    lines = [
        label_line(f"<u>{n}", nasty, {nasty: 0.2, "<s>": 0.8}, ["<script>alert(1)</script>", "$\\frac$"])
        for n in range(3)
    ]
    runs = [write_run(tmp_path / name, "classification", lines) for name in ("a<i>&$x$", "b")]
    path = write_finetuning_report(runs, tmp_path / "out.html")
    page = read(path)
    assert not {"q", "u", "s", "script"} & set(page.elements)
    for text in (nasty, "<s>", "<u>0", "<script>alert(1)</script>", "a<i>&$x$, seed-1"):
        assert text in page.text
    tagged = write_run(tmp_path / "tags", "tagging", [tags_line("<u>", "<q>", "<a>", "<em>", [0.5])])
    assert not {"u", "q", "a", "em"} & set(read(write_finetuning_report([tagged])).elements)


def test_a_score_with_dollar_signs_is_plotted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "classification", some_labels(9, 0.5))
    record = json.loads((run / "report.json").read_text(encoding="utf-8"))
    record["scores"] = {"$\\wrong$": record["scores"]["accuracy"]}
    write_json(run / "report.json", record)
    log = {"kind": "evaluation", "step": 1, "held_out_$\\wrong$": 1.0}
    write_text(run / "seed-1" / "metrics.jsonl", json.dumps(log) + "\n")
    assert "$\\wrong$" in read(write_finetuning_report([run])).text


def test_a_clear_difference_is_more_than_noise_and_a_small_one_is_not(tmp_path: Path) -> None:
    good, same, bad = some_labels(300, 0.95, 1), some_labels(300, 0.94, 2), some_labels(300, 0.6, 3)
    runs = [
        write_run(tmp_path / name, "classification", lines)
        for name, lines in (("good", good), ("same", same), ("bad", bad))
    ]
    said: list[str] = []
    path = write_finetuning_report(runs, tmp_path / "out.html", on_line=said.append)
    assert len(said) == 3
    verdict = "The difference is more than the noise of 300 examples: good is better than bad."
    assert said[0].endswith("The difference is within noise: 300 examples cannot separate the two.")
    assert said[1].endswith(verdict)
    scores = [[line["score"] for line in lines] for lines in (good, bad)]
    test = paired_test(*scores)
    assert (
        f"{test.difference:+.4f} (95% interval {test.low:+.4f} to {test.high:+.4f}), p = {test.p_value:.4f}" in said[1]
    )
    row = next(row for table in tables_of(path) for row in table if row[0] == "good against bad")
    assert row[1:] == [
        f"{test.difference:+.4f}",
        f"{test.low:+.4f} to {test.high:+.4f}",
        f"{test.p_value:.4f}",
        verdict,
    ]
    swapped: list[str] = []
    write_finetuning_report([runs[2], runs[0]], tmp_path / "swapped.html", on_line=swapped.append)
    assert swapped[0].endswith(verdict)
    page = read(path)
    assert page.elements.count("svg") == 2 + 2 * 3
    assert "good, seed-1" in page.text


def test_values_fitted_on_the_dev_examples_are_reported(tmp_path: Path) -> None:
    calibrated = {"settings": {"calibrate": True}}
    run = write_run(tmp_path / "run", "classification", some_labels(30, 0.8), spec=calibrated)
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    write_json(run / "report.json", {**report, "temperature": 1.25, "threshold": None})
    path = write_finetuning_report([run])
    facts = next(table for table in tables_of(path) if table[0][0] == "task")
    assert ["temperature", "1.25"] in facts
    assert "threshold" not in [row[0] for row in facts]
    assert "error is measured on the dev examples to which --calibrate fitted" in read(path).text
    plain = write_run(tmp_path / "plain", "classification", some_labels(30, 0.8))
    assert "--calibrate" not in read(write_finetuning_report([plain])).text


def test_sentences_are_compared_by_their_entities_and_not_by_their_many_right_words(tmp_path: Path) -> None:
    """Eight of the nine words of a sentence are O: most words are right for any model."""
    gold = "B-PER " + "O " * 8
    lines = {
        name: [
            tags_line(str(n), "w " * 9, gold, gold if n < num_right else "O " * 9, [0.9] * 9) for n in range(60)
        ]
        for name, num_right in (("good", 50), ("bad", 10))
    }  # fmt: skip
    runs = [write_run(tmp_path / name, "tagging", lines[name], spec={"scheme": "IOB2"}) for name in lines]
    said: list[str] = []
    write_finetuning_report(runs, tmp_path / "out.html", on_line=said.append)
    scores = [
        entity_scores([line["gold"] for line in part], [line["prediction"]["tags"] for line in part], "IOB2")["f1"]
        for part in lines.values()
    ]
    assert said[0].startswith(f"good against bad, f1: {scores[0] - scores[1]:+.4f} (")
    assert said[0].endswith("good is better than bad.")


def test_words_without_a_scheme_are_compared_by_their_accuracy(tmp_path: Path) -> None:
    lines = [
        [tags_line("1", "a b c", "X Y Y", tags, [0.9] * 3), tags_line("2", "a", "X", "X", [0.9])]
        for tags in ("X Y Y", "X X Y")
    ]
    runs = [write_run(tmp_path / str(number), "tagging", part) for number, part in enumerate(lines)]
    said: list[str] = []
    write_finetuning_report(runs, tmp_path / "out.html", on_line=said.append)
    assert said[0].startswith("0 against 1, accuracy: +0.2500 (")


def test_texts_with_several_labels_are_compared_by_their_micro_f1(tmp_path: Path) -> None:
    def line(name: str, gold: list[str], chosen: list[str]) -> Line:
        prediction = {"label": "a", "chosen": chosen, "probabilities": {"a": 0.5, "b": 0.5}, "cut_tokens": 0}
        return {"id": name, "gold": gold, "score": float(set(gold) == set(chosen)), "prediction": prediction}

    runs = []
    for name, second in (("one", ["b"]), ("two", [])):
        lines = [line("1", ["a"], ["a"]), line("2", ["a", "b"], second), line("3", [], [])]
        path = write_run(tmp_path / name, "classification", lines, spec={"multi_label": True})
        report = json.loads((path / "report.json").read_text(encoding="utf-8"))
        write_json(path / "report.json", {**report, "metric": "micro_f1"})
        runs.append(path)
    said: list[str] = []
    write_finetuning_report(runs, tmp_path / "out.html", on_line=said.append)
    assert said[0].startswith(f"one against two, micro_f1: {4 / 5 - 2 / 4:+.4f} (")


def test_the_scores_are_shown_above_the_published_ones_of_the_task(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "span", [answer_line(name, ["Paris"], "Paris", 1.0, 0.9) for name in "12"])
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    write_json(run / "report.json", {**report, "task": "squad"})
    scores = tables_of(write_finetuning_report([run]))[0]
    assert [row[:2] for row in scores[2:]] == [
        ["f1, published: BERT base (single) on SQuAD 1.1", "88.5000"],
        ["f1, published: BERT large (single) on SQuAD 1.1", "90.9000"],
    ]
    assert {len(row) for row in scores} == {len(scores[0])}
    both = tables_of(write_finetuning_report([run, run], tmp_path / "both.html"))[0]
    assert {len(row) for row in both} == {len(both[0])}
    assert len(both) == 1 + 2 + 2
    headline = (
        "Published test F1, in percent: 93.2 (an ensemble of BERT large, first fine-tuned on TriviaQA), 1.5 points"
    )
    for page in (run / "report.html", tmp_path / "both.html"):
        assert page.read_text(encoding="utf-8").count(headline) == 1


def test_examples_are_paired_by_their_ids(tmp_path: Path) -> None:
    first, second = some_labels(80, 0.9, 1), some_labels(80, 0.7, 2)
    run = write_run(tmp_path / "a", "classification", first)
    said: list[str] = []
    for name, lines in (("b", second), ("c", second[::-1])):
        other = write_run(tmp_path / name / "other", "classification", lines)
        write_finetuning_report([run, other], tmp_path / "out.html", on_line=said.append)
    assert said[0] == said[1]


def test_runs_on_other_dev_examples_are_refused(tmp_path: Path) -> None:
    lines = some_labels(20, 0.9)
    run = write_run(tmp_path / "a", "classification", lines)
    others = {
        "found 19 examples, without '19'": lines[:-1],
        "found 20 examples, without '3' or with a different gold": [
            {**line, "gold": "maybe"} if line["id"] == "3" else line for line in lines
        ],
        "found 21 examples;": [*lines, {**lines[0], "id": "new"}],
    }
    for number, (words, changed) in enumerate(others.items()):
        other = write_run(tmp_path / f"other {number}", "classification", changed)
        with pytest.raises(InputError, match=re.escape(words)):
            write_finetuning_report([run, other])
    assert not list(tmp_path.rglob("*.html"))
    with pytest.raises(InputError, match=r"a run of classification.*found choice"):
        write_finetuning_report([run, write_run(tmp_path / "choice", "choice", lines)])
    with pytest.raises(InputError, match=r"dev examples in '.*empty'; found none"):
        write_finetuning_report([write_run(tmp_path / "empty", "classification", []), run])


def test_a_run_without_dev_examples_has_a_page(tmp_path: Path) -> None:
    page = read(write_finetuning_report([write_run(tmp_path / "run", "classification", [])]))
    assert "0 dev examples" in page.text


def test_runs_that_cannot_be_shown_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "classification", some_labels(5, 0.9))
    for text in ("{}\n", "[1]\n"):
        write_text(run / "predictions.jsonl", text)
        with pytest.raises(InputError, match=r"line 1 of '.*predictions.jsonl'"):
            write_finetuning_report([run])
    write_json(run / "report.json", {"seed": 1, "scores": {}})
    with pytest.raises(RunError, match="the folder that contains the folders of the seeds"):
        write_finetuning_report([run])
    (run / "report.json").unlink()
    with pytest.raises(RunError, match=r"found no report\.json; resume it with --resume"):
        write_finetuning_report([run])
    with pytest.raises(RunError, match="a run in"):
        is_finetuning(tmp_path)


@pytest.mark.parametrize(
    ("p_value", "low", "clause", "verdict"),
    [
        (0.064, 0.01, " by the paired test, although the bootstrap interval excludes 0", "within noise"),
        (0.030, -0.01, " by the paired test, although the bootstrap interval contains 0", "more than"),
        (0.064, -0.01, "", "within noise"),
        (0.030, 0.01, "", "more than"),
    ],
)
def test_a_verdict_says_where_the_interval_contradicts_the_test(
    p_value: float, low: float, clause: str, verdict: str
) -> None:
    test = PairedTest(0.04, low, 0.07, p_value)
    comparison = Comparison(first="a", second="b", score="right answers", examples=40, test=test)
    assert verdict in comparison.verdict
    said = clause_of({**dataclasses.asdict(test), "examples": 40, "compared": "f1"}, "f1")
    assert f"for 40 dev examples{clause}, p = " in said
    for sentence in (comparison.verdict, said):
        assert clause in sentence
        assert ("although" in sentence) == bool(clause)


def test_the_texts_of_an_example_are_cut() -> None:
    assert texts_of(TextExample(id="1", first="a" * 300, second="b" * 301)) == ["a" * 300, "b" * 300]
    assert texts_of(ChoiceExample(id="1", context="", endings=("he sings", "she runs"))) == ["he sings", "she runs"]
    assert texts_of(QuestionExample(id="1", question="who?", context="she")) == ["who?", "she"]
    assert texts_of(TaggedExample(id="1", words=("a", "b"))) == []


def test_the_command_takes_runs_of_one_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", "classification", some_labels(40, 0.9))
    other = write_run(tmp_path / "other", "classification", some_labels(40, 0.9))
    toy_run(tmp_path / "toy", ToyWorkload(), steps=2)
    capsys.readouterr()
    assert [is_finetuning(path) for path in (run, tmp_path / "toy")] == [True, False]
    report_command(ReportRequest([run, other]))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "run against other, right answers: +0.0000 (95% interval +0.0000 to +0.0000), p = 1.0000. "
        "The difference is within noise: 40 examples cannot separate the two.",
        str(tmp_path / "report-run-other.html"),
    ]
    assert not (run / "report.html").exists()
    report_command(ReportRequest([tmp_path / "toy"]))
    assert capsys.readouterr().out == f"{tmp_path / 'toy' / 'report.html'}\n"
    with pytest.raises(ConfigError, match="expected runs of one kind"):
        report_command(ReportRequest([run, tmp_path / "toy"]))


@pytest.mark.parametrize("kind", ["pair", "tags", "answer or none"])
def test_a_real_fine_tuning_has_a_page(kind: str, tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base")
    data = TaskData(train=examples_of(kind, 16), dev=examples_of(kind, 12, seed=1))
    settings = FinetuningSettings(batch_size=8, epochs=1, precision="fp32", device="cpu")
    finetune(base, SPECS[kind], data, tmp_path / "run", settings, RecipeSettings(log_every=1), seeds=2)
    path = write_finetuning_report([tmp_path / "run"])
    assert read(path).elements.count("svg") >= 2
    header, first, *_ = tables_of(path)[0]
    assert all((tmp_path / "run" / folder / "metrics.jsonl").is_file() for folder in header[3:-2])
    record = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    score = record["scores"][SPECS[kind].metric]
    assert first[:3] == [SPECS[kind].metric.replace("_", " "), f"{score['mean']:.4f}", f"{score['deviation']:.4f}"]
    assert first[3:5] == [f"{value:.4f}" for value in score["values"]]
    said: list[str] = []
    write_finetuning_report([tmp_path / "run", tmp_path / "run"], tmp_path / "both.html", on_line=said.append)
    assert "within noise: 12 examples" in said[0]


def test_the_cost_of_pretraining_is_next_to_that_of_fine_tuning(tmp_path: Path) -> None:
    before = RunFolder.create(tmp_path / "before", {"task": "pretraining"})
    before.log({"kind": "train", "step": 1200, "seconds": 90.0})
    info = ModelMetadata.from_dict({"task": "pretraining", "steps": 1200, "tokens": 98_304})
    save_pretrained(str(before.model), untrained(CONFIG, 0), TOKENIZER, info)
    settings = FinetuningSettings(batch_size=8, epochs=1, precision="fp32", device="cpu")

    def tuned(base: Path, kind: str, out: str) -> list[list[str]]:
        data = TaskData(train=examples_of(kind, 16), dev=examples_of(kind, 12, seed=1))
        finetune(str(base), SPECS[kind], data, tmp_path / out, settings, RecipeSettings(), seeds=2)
        return next(table for table in tables_of(write_finetuning_report([tmp_path / out])) if table[0][0] == "stage")

    header, first, best, every = tuned(before.path, "single", "run")
    record = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert record["pretraining"] == {"steps": 1200, "tokens": 98_304, "seconds": 90.0}
    tokens = [run["tokens"] for run in record["runs"]]
    chosen = next(run for run in record["runs"] if run["folder"] == record["best"])
    assert header == ["stage", "steps", "tokens", "time"]
    assert first == ["pre-training", "1,200", "98,304", "1 min 30 s"]
    assert best[:3] == ["fine-tuning, the best training", str(chosen["steps"]), f"{chosen['tokens']:,}"]
    assert every[:3] == ["fine-tuning, all of 2 trainings", "4", f"{sum(tokens):,}"]
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert (
        "| | steps | tokens |\n|---|---|---|\n| pre-training | 1,200 | 98,304 |\n| fine-tuning, 2 trainings | 4 | "
        in card
    )
    assert f"Pre-training read {98_304 / sum(tokens):,.0f} times as many tokens as fine-tuning." in card
    record = json.loads((tmp_path / "run" / "model" / "bertsmith.json").read_text(encoding="utf-8"))
    assert f"- texts: {record['training']['texts']['tokens']:.1f} tokens on average, 0.0% of the pieces unk" in card
    assert card.count("98,304") == 1, "once, in the table"

    _, again, *_ = tuned(tmp_path / "run", "tags", "second")
    assert again == ["pre-training", "1,200", "98,304", "–"], "a task in between does not hide it"


def test_a_cost_that_is_not_recorded_is_said_to_be(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base")
    data = TaskData(train=examples_of("single", 16), dev=())
    settings = FinetuningSettings(batch_size=8, epochs=1, precision="fp32", device="cpu")
    finetune(base, SPECS["single"], data, tmp_path / "run", settings, RecipeSettings(), seeds=1)
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "| pre-training | not recorded | not recorded |" in card
    rows = next(table for table in tables_of(write_finetuning_report([tmp_path / "run"])) if table[0][0] == "stage")
    assert rows[1] == ["pre-training", "–", "–", "–"]
    older = write_run(tmp_path / "older", "classification", some_labels(30, 0.8))
    both = next(
        table
        for table in tables_of(write_finetuning_report([older], tmp_path / "older.html"))
        if table[0][0] == "stage"
    )
    assert [row[0] for row in both[1:]] == [
        "pre-training",
        "fine-tuning, the best training",
        "fine-tuning, all of 2 trainings",
    ]
