"""Pronouns with candidates: their files, rows, scores, answers and refusals."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.app.library.prediction_tables import write_predictions
from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.inference.predictors.request import PredictRequest
from bertsmith.tasks.datasets.examples import NEITHER, MentionExample
from bertsmith.tasks.datasets.mentions import read_mentions
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.metrics.mentions import counts_of, mention_scores, score_of_counts
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import BEFORE, CLOSEST, FIRST_CANDIDATE
from bertsmith.tasks.task_data.task_files import data_warnings
from bertsmith.tasks.task_data.typed_examples import example_of_line
from tasks.task_samples import SPECS, TOKENIZER, examples_of, write_base_model
from written_files import file_with

SPEC = SPECS["pronoun"]
TASK = task_for(SPEC)
HEADER = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL"
TEXT = "Anna met Carla when she was in Rome."
ROW = f"test-1\t{TEXT}\tshe\t20\tAnna\t0\tTRUE\tCarla\t9\tFALSE\thttp://x"
RECORD = {"text": TEXT, "pronoun": [20, 23], "candidates": [[0, 4], [9, 14]], "answer": 0}


def gap(folder: Path, *rows: str) -> Path:
    return file_with(folder / "gap.tsv", "\n".join([HEADER, *rows]) + "\n")


def lines(folder: Path, *records: Any) -> Path:
    return file_with(folder / "pronouns.jsonl", "".join(json.dumps(record) + "\n" for record in records))


def example(**others: Any) -> MentionExample:
    fields = {"text": "anna who bert", "pronoun": (5, 8), "candidates": ((0, 4), (9, 13)), "label": 1}
    return MentionExample(id="0", location="line 1 of 'x'", **{**fields, **others})


def test_a_table_of_gap_and_json_lines_say_the_same(tmp_path: Path) -> None:
    of_gap, of_json = (
        read_mentions(path).examples[0] for path in (gap(tmp_path, ROW), lines(tmp_path, {**RECORD, "id": "test-1"}))
    )
    assert dataclasses.replace(of_gap, location="") == dataclasses.replace(of_json, location="")
    assert [of_gap.within(span) for span in of_gap.mentions] == ["she", "Anna", "Carla"]
    assert of_gap.label == 0


def test_no_answer_is_false_twice_or_null(tmp_path: Path) -> None:
    for path in (gap(tmp_path, ROW.replace("TRUE", "FALSE")), lines(tmp_path, {**RECORD, "answer": None})):
        assert [row.label for row in read_mentions(path).examples] == [NEITHER]


def test_without_gold_no_answer_is_read(tmp_path: Path) -> None:
    bare = {key: value for key, value in RECORD.items() if key != "answer"}
    assert [row.label for row in read_mentions(lines(tmp_path, bare), gold=False).examples] == [None]


def test_the_official_files_are_read(real_data: Path) -> None:
    labels = [row.label for row in read_mentions(real_data / "coref_gap" / "gap-validation.tsv").examples]
    assert [labels.count(label) for label in (0, 1, NEITHER)] == [187, 205, 62]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\t0\t", "\t1\t", "expected 'Anna' at A-offset 1 in line 2 of '.*gap.tsv'; found 'nna '"),
        ("\t0\t", "\tx\t", "A-offset in line 2 .* found 'x'"),
        ("\t9\t", "\t999\t", "expected 'Carla' at B-offset 999 in line 2 .*; found nothing there"),
        ("\tFALSE\t", "\tTRUE\t", "at most one TRUE; found 'TRUE' and 'TRUE'"),
        ("\tFALSE\t", "\tno\t", "TRUE or FALSE as A-coref and B-coref in line 2"),
    ],
)
def test_a_wrong_row_of_gap_is_refused_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_mentions(gap(tmp_path, ROW.replace(old, new)))


def test_a_table_without_the_columns_of_gap_is_refused(tmp_path: Path) -> None:
    path = file_with(tmp_path / "x.tsv", "text\tlabel\na\tb\n")
    with pytest.raises(InputError, match=r"the columns Text, Pronoun, Pronoun-offset, A, .* of GAP in line 2"):
        read_mentions(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": " "}, "a text with a pronoun in line 1 of .*found an empty text"),
        ({"text": 3}, "a record with a text in line 1"),
        ({"pronoun": [30, 40]}, "the pronoun inside the 36 characters of the text in line 1 of .*30 to 40"),
        ({"pronoun": [23, 24]}, "found characters 23 to 24, which are blank"),
        ({"pronoun": [4, 2]}, "the pronoun inside"),
        ({"pronoun": None}, "start and end of the pronoun in line 1 of .*found none"),
        ({"candidates": [[0, 4], [18, 21]]}, "found candidate 2, 'n s', which overlaps the pronoun 'she'"),
        ({"candidates": [[0, 4], [0, 4]]}, "different candidates in line 1"),
        ({"candidates": []}, "a list of spans as 'candidates' in line 1"),
        ({"candidates": "Anna"}, "a list of spans as 'candidates' in line 1"),
        ({"candidates": [[0, 4.5]]}, "start and end of candidate 1"),
        ({"candidates": [{"start": 0, "end": 4, "text": "Carla"}]}, "'Carla' as candidate 1, at 0 to 4, in line 1"),
        ({"answer": 2}, "from 0 to 1, or null as 'answer' in line 1 of .*found 2"),
        ({"answer": True}, "found True"),
    ],
)
def test_a_wrong_record_is_refused_with_its_place(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TASK.check(read_mentions(lines(tmp_path, {**RECORD, **changes})).examples, gold=True)


def test_a_record_may_name_its_mentions(tmp_path: Path) -> None:
    named = {"start": 0, "end": 4, "text": "Anna"}
    (row,) = read_mentions(lines(tmp_path, {**RECORD, "candidates": [named, [9, 14]]})).examples
    assert row.candidates == ((0, 4), (9, 14))


def test_equal_texts_with_different_mentions_are_different_examples() -> None:
    first, second = example(label=0), example(candidates=((9, 13), (0, 4)), label=1)
    assert data_warnings([first, second], []) == ()
    assert "different labels" in data_warnings([first, example(label=1)], [])[0]


def by_hand(gold: list[int | None], answers: list[int | None]) -> tuple[float, float, float]:
    """Precision, recall and F1 as the official scorer counts them: over both names of each pronoun."""
    positives = {"tp": 0, "fp": 0, "fn": 0}
    for right, answer in zip(gold, answers, strict=True):
        for name in (0, 1):
            is_gold, is_answer = right == name, answer == name
            positives["tp"] += is_gold and is_answer
            positives["fp"] += is_answer and not is_gold
            positives["fn"] += is_gold and not is_answer
    precision = positives["tp"] / (positives["tp"] + positives["fp"]) if positives["tp"] + positives["fp"] else 0.0
    recall = positives["tp"] / (positives["tp"] + positives["fn"]) if positives["tp"] + positives["fn"] else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_official_scorer(seed: int) -> None:
    draw = generator(seed, "answers")
    choices: list[int | None] = [0, 1, None]
    gold, answers = ([choices[int(n)] for n in draw.integers(3, size=40)] for _ in range(2))
    pronouns = [("he", "His", "him", "she", "Her", "hers")[int(n)] for n in draw.integers(6, size=40)]
    scores = mention_scores(list(zip(gold, answers, strict=True)), pronouns)
    assert (scores["precision"], scores["recall"], scores["f1"]) == pytest.approx(by_hand(gold, answers))
    of_gender = []
    for name, words in (("f1_masculine", ("he", "his", "him")), ("f1_feminine", ("she", "her", "hers"))):
        chosen = [number for number, pronoun in enumerate(pronouns) if pronoun.lower() in words]
        of_gender.append(by_hand([gold[n] for n in chosen], [answers[n] for n in chosen])[2])
        assert scores[name] == pytest.approx(of_gender[-1])
    assert scores["bias"] == pytest.approx(of_gender[1] / of_gender[0])
    assert scores["accuracy"] == np.mean([a == b for a, b in zip(gold, answers, strict=True)])


def test_scores_of_genders_need_pronouns_of_both() -> None:
    assert set(mention_scores([(0, 0)], ["she"])) == {"f1", "precision", "recall", "accuracy"}
    both = mention_scores([(0, 0), (0, 1)], ["she", "he"])
    assert (both["f1_feminine"], both["f1_masculine"]) == (1, 0)
    assert "bias" not in both


def test_no_pronouns_and_no_answers_score_nothing() -> None:
    assert mention_scores([], []) == {"f1": 0, "precision": 0, "recall": 0, "accuracy": 0}
    assert score_of_counts("bias", counts_of([(None, None)], ["it"])) == 0


def test_a_row_has_the_text_once_and_reads_the_pieces_of_its_mentions() -> None:
    text = "anna bert who bert"
    features = TASK.encode([example(text=text, pronoun=(10, 13), candidates=((0, 9), (5, 9), (14, 18)))], TOKENIZER)
    assert len(features.rows) == 1
    assert features.read.tolist() == [1, 2, 3, 4]
    assert features.extra["spans"].tolist() == [[[2, 3], [0, 2], [1, 2], [3, 4]]]


def test_a_long_text_keeps_its_mentions_and_counts_what_it_lost() -> None:
    task = task_for(dataclasses.replace(SPEC, settings=dataclasses.replace(SPEC.settings, max_length=12)))
    before, after = "the " * 30, " film" * 20
    start = len(before)
    row = example(
        text=f"{before}anna who bert{after}",
        pronoun=(start + 5, start + 8),
        candidates=((start, start + 4), (start + 9, start + 13)),
    )
    features = task.encode([row], TOKENIZER)
    assert features.rows.lengths.tolist() == [12]
    pieces = [TOKENIZER.vocabulary.pieces[id] for id in features.rows.token_ids.tolist()]
    assert pieces[1:-1] == ["the"] * 3 + ["anna", "who", "bert"] + ["film"] * 4
    assert features.rows.cut_by_row.tolist() == [53 - 10]
    assert [pieces[position] for position in features.read] == ["anna", "who", "bert"]
    for shift in (0, 20):
        other = (
            example(text=f"anna who bert{after}")
            if not shift
            else example(text=f"{before}anna who bert", pronoun=row.pronoun, candidates=row.candidates)
        )
        assert task.encode([other], TOKENIZER).rows.lengths.tolist() == [12]


def test_mentions_too_far_apart_for_a_row_are_refused() -> None:
    far = f"anna {'the ' * 40}who"
    row = example(text=far, pronoun=(len(far) - 3, len(far)), candidates=((0, 4),), label=0)
    with pytest.raises(
        InputError, match="at most 30 tokens with the pronoun and all candidates in line 1 of 'x'; found 42"
    ):
        TASK.encode([row], TOKENIZER)


def test_long_text_error_refuses_what_does_not_fit() -> None:
    task = task_for(dataclasses.replace(SPEC, settings=dataclasses.replace(SPEC.settings, long_text="error")))
    with pytest.raises(InputError, match="at most 30 tokens in line 1 of 'x'; found 43 in all"):
        task.encode([example(text=f"anna who bert{' the' * 40}")], TOKENIZER)
    other = task_for(dataclasses.replace(SPEC, settings=dataclasses.replace(SPEC.settings, long_text="windows")))
    with pytest.raises(ConfigError, match="long_text of coreference"):
        other.check([example()], gold=True)


def test_the_loss_is_the_negative_log_probability_of_the_answers() -> None:
    import torch

    rows = [example(), example(text="who anna", pronoun=(0, 3), candidates=((4, 8),), label=NEITHER), example(label=0)]
    features = TASK.encode(rows, TOKENIZER)
    logits = generator(1, "logits").normal(size=(features.num_read, TASK.head.outputs)).astype(np.float32)
    answers = TASK.decode(rows, features, logits, TOKENIZER)
    chances = [answers[0].candidates[1].probability, answers[1].none_probability, answers[2].candidates[0].probability]
    (batch,) = micro_batches(features, np.array([2, 0, 1]), micro_tokens=99, device="cpu")
    loss, sums = TASK.loss(torch.from_numpy(logits[batch.chosen]), batch)
    assert float(loss) == pytest.approx(-np.log(chances).sum(), rel=1e-5)
    assert int(sums["count"]) == 3
    for answer in answers:
        assert sum(candidate.probability for candidate in answer.candidates) + answer.none_probability == pytest.approx(
            1
        )


@pytest.mark.parametrize(("name", "indices"), [(BEFORE, [1, 1, 0]), (FIRST_CANDIDATE, [0, 0, 0]), (CLOSEST, [1, 2, 0])])
def test_baselines_choose_by_place(name: str, indices: list[int]) -> None:
    text = "anna met bert in rome who , carl film"
    rows = [
        example(text=text, pronoun=(22, 25), candidates=((0, 4), (9, 13))),
        example(text=text, pronoun=(22, 25), candidates=((0, 4), (9, 13), (28, 32))),
        example(text=text, pronoun=(0, 4), candidates=((9, 13), (28, 32))),
    ]
    answers = TASK.answers_by_rule(name, rows)
    assert [answer.index for answer in answers] == indices


def test_other_baselines_are_not_rules() -> None:
    assert TASK.answers_by_rule("bag of words", [example()]) is None


def test_a_typed_line_is_a_record() -> None:
    bare = {key: value for key, value in RECORD.items() if key != "answer"}
    typed = example_of_line(SPEC, json.dumps(bare), 3)
    assert (typed.id, typed.location, typed.label) == ("3", "line 3 of stdin", None)
    with pytest.raises(InputError, match="a JSON object with a pronoun and candidates in line 1 of stdin"):
        example_of_line(SPEC, TEXT, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that learned which of two people is good."""
    folder = tmp_path_factory.mktemp("coreference")
    for part, count in (("train", 96), ("dev", 32)):
        rows = [
            {
                "text": row.text,
                "pronoun": list(row.pronoun),
                "candidates": [list(span) for span in row.candidates],
                "answer": None if row.label == NEITHER else row.label,
            }
            for row in examples_of("pronoun", count, seed=int(part == "dev"))
            if isinstance(row, MentionExample)
        ]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with quiet():
        bertsmith.finetune(
            write_base_model(folder / "base"), "coreference", folder / "run", train=folder / "train.jsonl",
            dev=folder / "dev.jsonl", seeds=1, epochs=20, batch_size=16, learning_rate=3e-3, max_length=32,
        )  # fmt: skip
    return folder


def test_a_training_learns_the_rule_and_beats_its_baselines(run: Path) -> None:
    report = json.loads((run / "run" / "report.json").read_text(encoding="utf-8"))
    assert report["scores"]["f1"]["mean"] > 0.9
    assert [system["name"] for system in report["baselines"]] == [BEFORE, FIRST_CANDIDATE, CLOSEST]
    assert all(system["scores"]["f1"] < 0.7 for system in report["baselines"])
    assert "accuracy" in report["intervals"]
    with quiet():
        evaluation = bertsmith.evaluate(run / "run", run / "dev.jsonl")
    assert evaluation.scores["f1"] == pytest.approx(report["scores"]["f1"]["mean"])


def test_an_answer_names_the_candidate_and_where_it_is(run: Path) -> None:
    model = bertsmith.load(run / "run")
    assert (model.task, model.abilities[0]) == ("coreference", "resolve")
    texts = [f"anna {first} film bert {second} it was who in" for first, second in (("good", "bad"), ("poor", "fine"))]
    spans = {"candidates": [(0, 4)]}
    asked = [{"text": text, "pronoun": (start := text.index("who"), start + 3), **spans} for text in texts]
    for record in asked:
        begin = record["text"].index("bert")
        record["candidates"] = [(0, 4), (begin, begin + 4)]
    first, second = model.resolve(asked)
    assert (first.text, first.index, second.text, second.index) == ("anna", 0, "bert", 1)
    values = second.to_dict()
    assert asked[1]["text"][values["start"] : values["end"]] == "bert"
    assert values["pronoun"]["text"] == "who"
    assert first.line().startswith("who\tanna\t")


def test_a_pronoun_alone_and_among_others_gets_the_same_answer(run: Path) -> None:
    model = bertsmith.load(run / "run")
    rows = [row for row in examples_of("pronoun", 12, seed=5) if isinstance(row, MentionExample)]
    asked = [{"text": row.text, "pronoun": row.pronoun, "candidates": row.candidates} for row in rows]
    for answer, record in zip(model.resolve(asked), asked, strict=True):
        (alone,) = model.resolve([record])
        assert alone.index == answer.index
        assert alone.none_probability == pytest.approx(answer.none_probability, abs=1e-4)


def test_equal_texts_with_pronoun_and_candidate_exchanged_are_read_apart(run: Path) -> None:
    model = bertsmith.load(run / "run")
    text = "anna good film bert bad who"
    asked = [
        {"text": text, "pronoun": (24, 27), "candidates": [(0, 4), (15, 19)]},
        {"text": text, "pronoun": (15, 19), "candidates": [(0, 4), (24, 27)]},
    ]
    together, alone = model.resolve(asked), [model.resolve([record])[0] for record in asked]
    assert [answer.pronoun[0] for answer in together] == ["who", "bert"]
    for answer, other in zip(together, alone, strict=True):
        assert answer.none_probability == pytest.approx(other.none_probability, abs=1e-4)


def test_a_span_outside_the_text_is_refused_by_the_library(run: Path) -> None:
    model = bertsmith.load(run / "run")
    with pytest.raises(InputError, match="the pronoun inside the 4 characters of the text in pronoun 1"):
        model.resolve([{"text": "anna", "pronoun": (5, 8), "candidates": [(0, 4)]}])
    with pytest.raises(BertsmithError, match="with the ability classify"):
        model.classify(["a text"])


def test_the_names_are_new_columns_of_a_table_of_gap(run: Path, tmp_path: Path) -> None:
    row = "1\tanna good bert bad who\twho\t19\tanna\t0\tTRUE\tbert\t10\tFALSE\tx"
    table = gap(tmp_path, row)
    with quiet():
        request = PredictRequest(model=str(run / "run"), data=str(table), out=str(tmp_path / "out.csv"))
        ((_, prediction),) = write_predictions(request)
    header, cells = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert header.endswith("prediction,probability")
    assert cells.endswith(f",{prediction.text},{prediction.probability:.4f}")


def test_the_report_shows_mistakes_and_the_card_the_call(run: Path) -> None:
    card = (run / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "coreference of pronouns" in card
    assert "resolve([" in card
    assert "of longer texts the part around the mentions" in card
    (record,) = re.findall(r"printf '(.*)\\n' \| bertsmith predict", card, re.MULTILINE)
    TASK.check([example_of_line(SPEC, record, 1)], gold=False)
    page = bertsmith.write_report([run / "run"]).read_text(encoding="utf-8")
    assert "candidate 1" in page
    assert "Candidates that are meant" in page
