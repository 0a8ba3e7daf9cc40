"""Entities that may be inside one another: their files, scores, answers and refusals."""

import cmath
import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import quiet
from bertsmith.tasks.datasets.examples import EntityExample, TaggedExample, WordSpan
from bertsmith.tasks.encoding.units import Logits, micro_batches
from bertsmith.tasks.metrics.entities import overlap_of, share_words
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.specs.nested_entities import EntitiesTask
from bertsmith.tasks.specs.settings import MOST_ENTITIES, TaskSettings
from bertsmith.tasks.specs.task import SEEN
from bertsmith.tasks.task_data.task_files import read_examples
from tasks.task_samples import SPECS, TOKENIZER, examples_of, write_base_model
from written_files import file_with

SPEC = SPECS["nested"]
TEXT = "Anna of Oslo University"
ENTITIES = ((0, 1, "PER"), (2, 3, "LOC"), (2, 4, "ORG"))
LABELS = len(SPEC.labels)


def task_of(**settings: Any) -> EntitiesTask:
    spec = dataclasses.replace(SPEC, settings=dataclasses.replace(SPEC.settings, **settings))
    return task_for(spec)


def sentence(words: str, *entities: tuple[int, int, str]) -> EntityExample:
    plain = TaggedExample(id="0", words=tuple(words.split()), location="line 1 of 'x'")
    return EntityExample.of(plain, entities)


def written(folder: Path, name: str, *records: Any) -> Path:
    return file_with(folder / name, "".join(json.dumps(record) + "\n" for record in records))


def read(path: Path) -> tuple[tuple[int, int, str], ...]:
    (example,) = read_examples("nested-ner", path).examples
    return example.entities


def score_by_definition(logits: Logits, first: int, last: int, label: int) -> float:
    """The score of a span from complex numbers: query and key are turned by the positions of their words."""
    query, key = (
        [complex(row[n], row[32 + n]) * cmath.exp(1j * position * 10000 ** (-n / 32)) for n in range(32)]
        for row, position in ((logits[first, :64], first), (logits[last, 64:128], last))
    )
    product = sum((a * b.conjugate()).real for a, b in zip(query, key, strict=True)) / 8
    return float(product + logits[first, 128 + label] + logits[last, 128 + LABELS + label] - 6)


def drawn_logits(words: int, scale: float = 3.0) -> Logits:
    return (np.random.default_rng(words).standard_normal((words, 128 + 2 * LABELS)) * scale).astype(np.float32)


@pytest.mark.parametrize(
    "record",
    [
        {"tokens": TEXT.split(), "entities": [list(entity) for entity in ENTITIES]},
        {"tokens": TEXT.split(), "entities": [{"type": kind, "start": a, "end": b} for a, b, kind in ENTITIES]},
        {"tokenized_text": TEXT.split(), "ner": [[a, b - 1, kind] for a, b, kind in ENTITIES]},
        {"text": TEXT, "spans": [[0, 4, "PER"], [8, 12, "LOC"], [8, 23, "ORG"], [8, 23, "ORG"]]},
    ],
)
def test_entities_inside_others_are_read_from_words_and_from_texts(tmp_path: Path, record: Any) -> None:
    assert read(written(tmp_path, "a.jsonl", record)) == ENTITIES


def test_a_folder_of_brat_keeps_the_entities_that_tags_cannot_have(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    marked = ("PER 0 4\tAnna", "LOC 8 12\tOslo", "ORG 8 23\tOslo University")
    lines = "".join(f"T{number}\t{line}\n" for number, line in enumerate(marked, start=1))
    (tmp_path / "a.ann").write_text(lines, encoding="utf-8")
    assert read(tmp_path) == ENTITIES
    (tagged,) = read_examples("ner", tmp_path).examples
    assert tagged.tags == ("B-PER", "O", "B-ORG", "I-ORG")


@pytest.mark.parametrize("tags", ["B-PER O B-ORG I-ORG", "U-PER O B-ORG L-ORG"])
def test_tags_are_read_as_the_entities_that_they_mark(tmp_path: Path, tags: str) -> None:
    path = tmp_path / "a.conll"
    rows = zip(TEXT.split(), tags.split(), strict=True)
    path.write_text("".join(f"{word} {tag}\n" for word, tag in rows), encoding="utf-8")
    assert read(path) == ((0, 1, "PER"), (2, 4, "ORG"))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"tokens": ["a", "b"], "entities": [[1, 3, "X"]]}, r"entities of at least one of the 2 words in line 1"),
        ({"tokenized_text": ["a", "b"], "ner": [[1, 2, "X"]]}, r"its end is its last word, counted from 0"),
        ({"tokens": ["a"], "entities": [[0, 1]]}, r"entities with start, end and a label in line 1"),
        ({"tokens": ["a"], "entities": [[0, 1, " "]]}, r"entities with start, end and a label in line 1"),
        ({"text": "a b", "spans": [[2, 9, "X"]]}, r"at least one of the 3 characters in line 1"),
    ],
)
def test_an_entity_outside_its_sentence_is_refused_with_its_line(tmp_path: Path, record: Any, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read(written(tmp_path, "a.jsonl", record))


def test_marked_spans_that_share_a_word_are_offered_this_task(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", {"text": TEXT, "spans": [[8, 12, "LOC"], [8, 23, "ORG"]]})
    with pytest.raises(InputError, match="use --task nested-ner, or remove one of the two"):
        read_examples("ner", path)


def test_labels_get_new_names_and_one_spelling(tmp_path: Path) -> None:
    record = {"tokens": ["a", "b"], "entities": [[0, 1, "x"], [0, 2, "y"]]}
    path = written(tmp_path, "a.jsonl", record)
    (example,) = read_examples("nested-ner", path, map_labels={"x": "Name", "y": "Name"}).examples
    assert example.entities == ((0, 1, "Name"), (0, 2, "Name"))
    record = {"tokens": ["a", "b"], "entities": [[0, 1, "1.0"], [1, 2, "1"]]}
    (example,) = read_examples("nested-ner", written(tmp_path, "b.jsonl", record)).examples
    assert {span.label for span in example.entities} == {"1"}


def test_the_spec_has_the_longest_entity_and_says_which_may_share_words() -> None:
    nested, flat = sentence("a b c", (0, 3, "X"), (0, 1, "Y")), sentence("a b c", (0, 1, "X"))
    crossing = sentence("a b c", (0, 2, "X"), (1, 3, "X"))
    for examples, expected in (([nested, flat], "nested"), ([flat], "none"), ([nested, crossing], "any")):
        spec = spec_for("nested-ner", examples)
        assert spec.settings.overlap == expected == overlap_of(example.entities for example in examples)
    assert spec_for("nested-ner", [flat, nested]).settings.entity_words == 3
    chosen = spec_for("nested-ner", [nested], TaskSettings(entity_words=1, overlap="any"))
    assert (chosen.settings.entity_words, chosen.settings.overlap) == (1, "any")
    with pytest.raises(InputError, match="entities in the training file"):
        spec_for("nested-ner", [sentence("a b")])


@pytest.mark.parametrize("words", [1, 2, 7])
def test_probabilities_are_those_of_the_definition(words: int) -> None:
    task, logits = task_of(entity_words=3, overlap="any"), drawn_logits(words)
    example = sentence(" ".join(["film"] * words))
    (prediction,) = task.decode([example], task.encode([example], TOKENIZER), logits, TOKENIZER)
    expected = {
        WordSpan(first, last + 1, SPEC.labels[label]): 1 / (1 + math.exp(-score))
        for first, last in itertools.product(range(words), repeat=2)
        for label in range(LABELS)
        if 0 <= last - first < 3
        if (score := score_by_definition(logits, first, last, label)) >= 0
    }
    assert prediction.spans == expected.keys()
    for entity, probability in zip(prediction.entities, prediction.probabilities, strict=True):
        assert probability == pytest.approx(expected[WordSpan(entity.start, entity.end, entity.type)], abs=1e-6)


def test_the_loss_is_the_cross_entropy_of_all_spans_inside_a_window() -> None:
    task = task_of(entity_words=3, max_length=6, stride=2)
    examples = [
        sentence("anna rome film was it bert oslo", (0, 2, "GROUP"), (1, 2, "LOC"), (3, 6, "PER")),
        sentence("lima the", (0, 1, "LOC")),
    ]
    features = task.encode(examples, TOKENIZER)
    assert len(features) > len(examples), "the first sentence has several windows"
    (batch,) = micro_batches(features, np.arange(len(features)), micro_tokens=10**6, device="cpu")
    logits = drawn_logits(9)
    loss, sums = task.loss(torch.from_numpy(logits[batch.chosen]), batch)
    window_of = np.repeat(np.arange(len(features)), features.read_per_row)
    expected, begin, num_gold = 0.0, 0, 0
    for example in examples:
        gold = {(begin + start, begin + end - 1, label) for start, end, label in example.entities}
        for first, last in itertools.product(range(begin, begin + len(example.words)), repeat=2):
            if not 0 <= last - first < 3 or window_of[first] != window_of[last]:
                continue
            for number, label in enumerate(SPEC.labels):
                score, is_gold = score_by_definition(logits, first, last, number), (first, last, label) in gold
                expected += math.log1p(math.exp(-score if is_gold else score))
                num_gold += is_gold
        begin += len(example.words)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert sums["gold"].item() == num_gold
    assert sums["count"].item() == 9


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("any", {(0, 3, "PER"), (1, 2, "LOC"), (2, 4, "LOC"), (0, 3, "LOC")}),
        ("nested", {(0, 3, "PER"), (1, 2, "LOC"), (0, 3, "LOC")}),
        ("none", {(0, 3, "PER")}),
    ],
)
def test_of_entities_that_may_not_share_words_the_more_probable_one_is_predicted(
    overlap: str, expected: set[Any]
) -> None:
    spans = [
        ((1, 2, "LOC"), 0.6),
        ((2, 4, "LOC"), 0.7),
        ((0, 3, "PER"), 0.9),
        ((0, 3, "LOC"), 0.5),
        ((3, 4, "PER"), 0.4),
    ]
    task = task_of(overlap=overlap)
    predicted = task.prediction(sentence("a b c d"), [(WordSpan(*span), chance) for span, chance in spans]).spans
    assert predicted == expected
    assert not any(share_words(*pair, overlap) for pair in itertools.combinations(predicted, 2) if overlap != "any")


def test_a_sentence_has_at_most_a_few_entities_for_each_word() -> None:
    task = task_of(overlap="any")
    spans = [(WordSpan(0, 1, f"{number}"), 0.9) for number in range(50)]
    assert len(task.prediction(sentence("a"), spans).entities) == MOST_ENTITIES


def chances_of(task: EntitiesTask, chances: Sequence[float]) -> list[Any]:
    words = sentence(" ".join("abcdefgh"[: len(chances)]))
    return [task.prediction(words, [(WordSpan(n, n + 1, "PER"), chance) for n, chance in enumerate(chances)])]


def test_the_threshold_is_the_one_with_the_best_f1_where_it_is_tuned() -> None:
    task, gold = task_of(tune_threshold=True), sentence("a b c d", (0, 1, "PER"), (1, 2, "PER"), (2, 3, "LOC"))
    predictions = chances_of(task, [0.9, 0.3, 0.2, 0.1])
    tuned = task.tuned([gold], predictions)
    assert tuned.threshold == pytest.approx(0.25)
    assert task.score([gold], predictions)["recall"] == pytest.approx(1 / 3)
    again = chances_of(EntitiesTask(tuned), [0.9, 0.3, 0.2, 0.1])
    assert task.score([gold], again) == pytest.approx({"precision": 1.0, "recall": 2 / 3, "f1": 0.8})
    assert task_of().tuned([gold], predictions).threshold is None
    assert spec_for("nested-ner", [gold], None).settings.tune_threshold


def test_every_sentence_is_scored_with_a_threshold_of_the_others() -> None:
    task, examples = task_of(tune_threshold=True), [sentence("a b", (0, 1, "PER"))] * 10
    predictions = chances_of(task, [0.3, 0.1]) * 9 + chances_of(task, [0.1, 0.05])
    fitted = task.cross_fitted(examples, predictions)
    assert [len(prediction.entities) for prediction in fitted] == [1] * 9 + [0]


def test_the_score_of_a_sentence_is_its_f1() -> None:
    task = task_of(overlap="any")
    golds = [sentence("a b", (0, 1, "PER"), (0, 2, "GROUP")), sentence("a b"), sentence("a b")]
    spans = ([(0, 1, "PER"), (0, 1, "LOC")], [], [(0, 1, "PER")])
    predictions = [task.prediction(golds[0], [(WordSpan(*span), 0.9) for span in of_sentence]) for of_sentence in spans]
    assert task.example_scores(golds, predictions).tolist() == [0.5, 1.0, 0.0]
    assert task.score(golds, predictions) == pytest.approx({"precision": 1 / 3, "recall": 0.5, "f1": 0.4})


def test_entities_that_the_model_cannot_predict_are_announced(capsys: pytest.CaptureFixture[str]) -> None:
    task_of(entity_words=1).check([sentence("a b", (0, 2, "GROUP"))], gold=True)
    assert "1 entity of more than 1 word, which the model never predicts" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="long_text of entities"):
        task_of(long_text="head").check([sentence("a")], gold=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that learned people, places, and groups of both."""
    folder = tmp_path_factory.mktemp("nested")
    for part, count in (("train", 96), ("dev", 32)):
        rows = examples_of("nested", count, seed=int(part == "dev"))
        records = [
            {"tokens": row.words, "entities": [list(span) for span in row.entities]}
            for row in rows
            if isinstance(row, EntityExample)
        ]
        written(folder, f"{part}.jsonl", *records)
    with quiet():
        bertsmith.finetune(
            write_base_model(folder / "base"), "nested-ner", folder / "run", train=folder / "train.jsonl",
            dev=folder / "dev.jsonl", seeds=1, epochs=12, batch_size=8, learning_rate=3e-3, max_length=32,
        )  # fmt: skip
    return folder


def test_a_training_finds_entities_inside_others(run: Path) -> None:
    report = json.loads((run / "run" / "report.json").read_text(encoding="utf-8"))
    assert report["scores"]["f1"]["mean"] > 0.9
    assert [system["name"] for system in report["baselines"]] == [SEEN]
    assert "f1" in report["intervals"]
    with quiet():
        evaluation = bertsmith.evaluate(run / "run", run / "dev.jsonl")
    assert evaluation.scores["f1"] > 0.9


def test_an_answer_has_words_characters_and_probabilities(run: Path) -> None:
    model = bertsmith.load(run / "run")
    assert (model.task, model.abilities[0]) == ("entities", "tag")
    answers = model.tag(["film anna rome", ["film", "anna", "rome"], ""])
    of_text, of_words, of_nothing = (answer.to_dict() for answer in answers)
    expected = [("GROUP", [1, 3], (5, 14)), ("PER", [1, 2], (5, 9)), ("LOC", [2, 3], (10, 14))]
    assert [(each["type"], each["words"], each["characters"]) for each in of_text["entities"]] == expected
    assert [each["words"] for each in of_words["entities"]] == [words for _, words, _ in expected]
    assert all(0.5 < each["probability"] <= 1 for each in of_text["entities"])
    assert of_nothing["entities"] == []
    assert answers[0].line() == "anna rome/GROUP\tanna/PER\trome/LOC"
    table = model.predict([{"text": "film anna rome"}])
    assert [entity["type"] for entity in table[0]["prediction"]] == ["GROUP", "PER", "LOC"]


def test_the_list_of_training_entities_is_saved_as_a_model(run: Path) -> None:
    words = bertsmith.load(run / "run" / "seen-entities")
    (answer,) = words.tag([["anna", "film"]])
    assert [(entity.type, entity.start, entity.end) for entity in answer.entities] == [("PER", 0, 1)]


def test_the_report_has_each_label_with_an_interval_and_the_card_the_call(run: Path) -> None:
    card = (run / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "nested named entity recognition" in card
    assert 'tag(["A text."])' in card
    page = bertsmith.write_report([run / "run"]).read_text(encoding="utf-8")
    assert "95% interval of F1" in page
    assert "<td>GROUP</td>" in page
