"""Entities with labels that are only named: rows, draws of labels, answers for other labels, and refusals."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.predictors.named_labels import asking, entity_labels
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import EntityExample, TaggedExample
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_entities import NamedEntitiesTask
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_examples, read_task
from tasks.architecture_samples import encoder_of
from tasks.task_samples import SPECS, TOKENIZER, examples_of, write_base_model

SPEC = SPECS["by name"]
TEXT = "anna of oslo was in a plot"


def task_of(**changes: Any) -> NamedEntitiesTask:
    settings = {
        name: changes.pop(name) for name in ("max_length", "stride", "overlap", "entity_words") if name in changes
    }
    spec = dataclasses.replace(SPEC, settings=dataclasses.replace(SPEC.settings, **settings), **changes)
    task = task_for(spec)
    assert isinstance(task, NamedEntitiesTask)
    return task


def sentence(words: str, *entities: tuple[int, int, str], labels: tuple[str, ...] = ()) -> EntityExample:
    plain = TaggedExample(id="0", words=tuple(words.split()), location="line 1 of 'x'")
    return dataclasses.replace(EntityExample.of(plain, entities), labels=labels)


def predictor_of(**changes: Any) -> Predictor:
    task = task_of(threshold=0.0025, **changes)
    return Predictor(EncoderForTask(encoder_of("bert"), task.head, seed=2), task, TOKENIZER, choose("cpu", "fp32"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose weights were drawn."""
    path = tmp_path_factory.mktemp("model") / "model"
    predictor = predictor_of()
    spec = predictor.task.spec
    metadata = ModelMetadata(task=spec.kind, labels=spec.labels, spec=spec.to_dict())
    save_pretrained(path, predictor.model, TOKENIZER, metadata, trained=("classifier",))
    return path


def test_a_row_has_the_labels_each_with_a_mask_and_then_the_words() -> None:
    features = task_of().encode([sentence("anna was bad", (0, 1, "who"))], TOKENIZER)
    pieces = [TOKENIZER.vocabulary.pieces[id] for id in features.rows.token_ids]
    assert pieces == "[CLS] one [MASK] where [MASK] who [MASK] [SEP] anna was bad [SEP]".split()
    assert features.rows.segment_ids.tolist() == [0] * 8 + [1] * 4
    assert features.read is not None
    assert [pieces[position] for position in features.read] == ["[MASK]"] * 3 + ["anna", "was", "bad"]


def test_scores_are_those_of_the_definition() -> None:
    task, example = task_of(overlap="any", threshold=0.0), sentence("anna was bad")
    features = task.encode([example], TOKENIZER)
    logits = np.random.default_rng(1).standard_normal((6, 3 * 256 + 1)).astype(np.float32)
    (prediction,) = task.decode([example], features, logits, TOKENIZER)
    chances = dict(prediction.candidates)
    assert len(chances) == (3 + 2) * 3, "spans of at most two words, and three labels"
    for (start, end, label), chance in chances.items():
        of_label, first, last = logits[SPEC.labels.index(label)], logits[3 + start], logits[3 + end - 1]
        units = [max(0.0, float(a) + float(b)) for a, b in zip(first[:256], last[256:512], strict=True)]
        score = sum(u * float(w) for u, w in zip(units, of_label[512:768], strict=True)) / 16 + float(of_label[768]) - 6
        assert chance == pytest.approx(1 / (1 + np.exp(-score)), rel=1e-4)


def test_every_span_of_a_long_sentence_is_scored_once_where_its_first_word_is() -> None:
    task = task_of(overlap="any", threshold=0.0, max_length=16, labels=("who",), stride=4)
    example = sentence("a plot of it and one film was in the film of a plot and of one bad film it was")
    features = task.encode([example], TOKENIZER)
    assert len(features) > 2
    assert features.read is not None
    logits = np.zeros((len(features.read), 769), dtype=np.float32)
    (prediction,) = task.decode([example], features, logits, TOKENIZER)
    spans = [(span.start, span.end) for span, _ in prediction.candidates]
    words = len(example.words)
    assert sorted(spans) == [(start, end) for start in range(words) for end in (start + 1, start + 2) if end <= words]


def test_the_loss_is_that_of_all_spans_and_labels_of_a_row() -> None:
    task, example = task_of(), sentence("anna was bad", (0, 1, "who"), (1, 3, "one"), (0, 2, "unknown"))
    features = task.encode([example], TOKENIZER)
    (batch,) = micro_batches(features, np.arange(1), micro_tokens=100, device="cpu")
    logits = torch.from_numpy(np.random.default_rng(1).standard_normal((6, 769)))
    loss, sums = task.loss(logits, batch)
    open_task = task_of(overlap="any", threshold=0.0)
    (prediction,) = open_task.decode([example], features, logits.numpy(), TOKENIZER)
    gold = {(0, 1, "who"), (1, 3, "one")}
    chances = [chance if tuple(span) in gold else 1 - chance for span, chance in prediction.candidates]
    assert float(loss) == pytest.approx(-np.log(chances).sum())
    assert int(sums["gold"]) == 2


def test_a_sentence_is_read_with_several_draws_of_labels_of_its_file() -> None:
    first = sentence("anna was in oslo", (0, 1, "who"), labels=("who", "where", "one"))
    other = sentence("anna was in oslo", (3, 4, "plot"), labels=("plot", "film"))
    task = task_of(labels=("film", "one", "plot", "where", "who"))
    features = task.encode([first, other] * 10, TOKENIZER, training=True)
    drawn = features.extra["labels"]
    assert isinstance(drawn, list)
    assert len(drawn) == len(features) == 20 * 4
    for example, labels in zip(features.example_of_row.tolist(), drawn, strict=True):
        assert set(labels) <= set((first, other)[example % 2].labels)
    assert len(set(drawn)) > 8, "orders and choices differ"
    shares = [
        np.mean([gold in labels for labels in drawn[n * 4 : n * 4 + 4]]) for n, gold in enumerate(["who", "plot"] * 10)
    ]
    assert 0.5 < np.mean(shares) < 1
    again = task.encode([first, other] * 10, TOKENIZER, training=True)
    assert again.rows.token_ids.tobytes() == features.rows.token_ids.tobytes()


def test_the_draws_of_labels_follow_the_seed_of_the_run(tmp_path: Path) -> None:
    base = str(write_base_model(tmp_path / "base"))
    data = TaskData(train=[sentence("anna was in oslo", (0, 1, "who"))] * 10, dev=())
    rows = [
        FinetuningJob.prepare(
            base, SPEC, data, FinetuningSettings(device="cpu"), RecipeSettings(seed=seed)
        ).train.rows.token_ids.tobytes()
        for seed in (1, 1, 2)
    ]
    assert rows[0] == rows[1] != rows[2]


def test_of_a_file_with_one_label_the_labels_of_other_files_are_drawn_too() -> None:
    task = task_of(labels=("film", "one", "who"))
    features = task.encode([sentence("anna", (0, 1, "who"), labels=("who",))] * 10, TOKENIZER, training=True)
    drawn = features.extra["labels"]
    assert isinstance(drawn, list)
    assert {label for labels in drawn for label in labels} == {"film", "one", "who"}


def test_a_description_follows_its_name_and_is_left_out_of_some_draws() -> None:
    task = task_of(descriptions=("", "", "the good"))
    pieces = [TOKENIZER.vocabulary.pieces[id] for id in task.encode([sentence("anna")], TOKENIZER).rows.token_ids]
    assert " ".join(pieces[5:10]) == "who [UNK] the good [MASK]"
    lengths = set(task.encode([sentence("anna", (0, 1, "who"))] * 20, TOKENIZER, training=True).rows.lengths.tolist())
    assert {5 + 3, 5 + 6} <= {*lengths}


def test_labels_are_known_by_file_and_several_files_are_trained_together(tmp_path: Path) -> None:
    paths = []
    for name, label in (("a", "who"), ("b", "where")):
        lines = [{"tokens": ["anna", "oslo"], "entities": [[0, 1, label]]}, {"tokens": ["it"], "entities": []}] * 10
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    example, *_ = read_examples("entities-by-name", paths[0]).examples
    assert isinstance(example, EntityExample)
    assert example.labels == ("who",)
    spec, data = read_task("entities-by-name", paths[0], None, also=paths[1:])
    assert spec.labels == ("where", "who")
    assert spec.settings.entity_words == 12
    assert {getattr(example, "labels", None) for example in data.train} == {("who",), ("where",)}
    assert {"train", "also 1"} <= set(data.digests)
    _, other = read_task("entities-by-name", paths[0], paths[1])
    with_labels = other.dev[0]
    assert isinstance(with_labels, EntityExample)
    assert with_labels.labels == ("where",), "a dev file may have labels that training does not"


def test_other_labels_are_answered_and_no_others() -> None:
    examples = examples_of("by name", 6)
    predictor = asking(predictor_of(), [("film", ""), ("plot", "the bad")], threshold=0.0, overlap="any")
    labels = {entity.type for answer in predictor.predict(examples) for entity in answer.entities}  # type: ignore[attr-defined]
    assert labels == {"film", "plot"}
    alone = [predictor.predict([example])[0] for example in examples]
    for together, single in zip(predictor.predict(examples), alone, strict=True):
        assert {tuple(span) for span in together.spans} == {tuple(span) for span in single.spans}  # type: ignore[attr-defined]
        np.testing.assert_allclose(together.probabilities, single.probabilities, rtol=1e-5)  # type: ignore[attr-defined]


def test_threshold_and_overlap_choose_among_the_same_spans(folder: Path) -> None:
    model = bertsmith.load(folder)
    every, nested, flat, none = (
        {(entity.start, entity.end) for entity in model.tag([TEXT], ["who"], **options)[0].entities}
        for options in (
            {"overlap": "any", "threshold": 0.0},
            {"overlap": "nested", "threshold": 0.0},
            {"overlap": "none", "threshold": 0.0},
            {"threshold": 1.0},
        )
    )
    assert every >= nested >= flat
    assert len(every) == 7 + 6 > len(nested) > len(flat)
    assert not none


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "names of labels"),
        (["who", "who"], "different labels"),
        ([" "], "a blank one"),
        (["\x00", "who"], r"names of labels in pieces; found '\\x00' without any"),
        (["a film " * 20], "labels of at most 21 pieces, which leave room for words .* found 1 label of 41 pieces"),
        ([f"it{number}" for number in range(15)], "found 15 labels of 30 pieces"),
    ],
)
def test_labels_that_cannot_be_asked_for_are_refused(folder: Path, labels: list[str], message: str) -> None:
    with pytest.raises((ConfigError, InputError), match=message):
        bertsmith.load(folder).tag([TEXT], labels)


def test_labels_of_a_file_have_descriptions_and_no_examples(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("name,description\nwho,a person\nwhere,\n")
    assert entity_labels(path) == (("who", "a person"), ("where", ""))
    path.write_text("name,examples\nwho,anna\n")
    with pytest.raises(ConfigError, match="labels without examples"):
        entity_labels(path)


def test_only_a_model_for_entities_by_name_takes_labels(tmp_path: Path) -> None:
    spec = SPECS["nested"]
    task = task_for(spec)
    predictor = Predictor(EncoderForTask(encoder_of("bert"), task.head, seed=2), task, TOKENIZER, choose("cpu", "fp32"))
    assert asking(predictor, threshold=0.5).task.spec.threshold == 0.5
    with pytest.raises(ConfigError, match="a model for entities-by-name, which takes labels; found one for nested-ner"):
        asking(predictor, [("who", "")])
    with pytest.raises(ConfigError, match='`also` needs `task="entities-by-name"`'):
        bertsmith.finetune("starter", "ner", tmp_path / "run", train="x", also=["y"])


def test_the_labels_of_training_are_those_of_the_model(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base")
    rows = [{"tokens": ["anna", "was"], "entities": [[0, 1, "who"]]}, {"tokens": ["it"], "entities": []}] * 8
    for name, label in (("a", "who"), ("b", "where")):
        text = "".join(json.dumps(row).replace("who", label) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    options: Any = {"seeds": 1, "epochs": 1, "device": "cpu", "max_length": 32, "baselines": False}
    run = bertsmith.finetune(
        base, "entities-by-name", tmp_path / "run", train=tmp_path / "a.jsonl", also=[tmp_path / "b.jsonl"],
        labels={"who": "a film"}, **options,
    )  # fmt: skip
    assert run is not None
    model = bertsmith.load(tmp_path / "run")
    assert model.labels == ("where", "who")
    stored = json.loads((tmp_path / "run" / "model" / "bertsmith.json").read_text())["spec"]
    assert stored["descriptions"] == ["", "a film"]
