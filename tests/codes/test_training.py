"""Training on visits: what a step is, resumed = straight, what is learned, scores by hand, bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

import bertsmith
from bertsmith import BertsmithError, ConfigError, RunError
from bertsmith.base.storage.files import read_json
from bertsmith.recipes.codes import run
from bertsmith.recipes.codes.baselines import FREQUENT, LINEAR, MODEL, PREVIOUS, Visits, baselines
from bertsmith.recipes.codes.encoding import Example, batch_of_examples, encode_subjects, examples_of
from bertsmith.recipes.codes.folder import read_codes_folder
from bertsmith.recipes.codes.model_folder import new_model, read_codes_model
from bertsmith.recipes.codes.request import TrainCodesRequest
from bertsmith.recipes.codes.settings import CodesSettings
from bertsmith.recipes.codes.workload import MAIN, PRETRAINING, CodesTraining, scores_of
from bertsmith.tasks.metrics.sets import (
    average_precision_of_sets,
    best_threshold,
    f1_of_sets,
    interval_by_group,
    jaccard,
    paired_test_by_group,
)
from bertsmith.text.codes.visits import Subject, Visit
from bertsmith.text.codes.vocabulary import CodeVocabulary
from codes.sample_events import write_events, write_tree
from training.interruptions import assert_same_files, interrupted
from training.whole_steps import whole_step

KINDS = {"given_kind": "diagnosis", "wanted_kind": "medication"}
FEW = {**KINDS, "width": 8, "heads": 2, "steps": 8, "pretraining_epochs": 1, "epochs": 1, "visits_per_step": 32,
       "device": "cpu", "evaluate_every": 2}  # fmt: skip


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codes")
    events, tree = write_events(folder / "events.csv"), write_tree(folder / "tree.csv")
    bertsmith.build_codes([events], folder / "codes", tree=[tree])
    return folder / "codes"


def work(codes: Path, **settings: object) -> CodesTraining:
    chosen = CodesSettings(**{"width": 8, "heads": 2, "dropout": 0.0, **KINDS, **settings})
    folder = read_codes_folder(codes)
    kinds = run.kinds_of(folder.vocabulary, chosen)
    train, dev, _ = run.divided(folder.subjects, chosen, seed=1)
    labels = run.labels_of(train, folder.vocabulary, chosen)
    encoded = [encode_subjects(part, folder.vocabulary, kinds, labels) for part in (train, dev)]
    shape = run.config_of(chosen, folder.vocabulary, folder.tree, kinds, len(labels))
    model = new_model(shape, folder.vocabulary, folder.tree, kinds, seed=1)
    return CodesTraining(model, *encoded, folder.vocabulary, kinds, torch.device("cpu"), chosen, seed=5)


def test_pretraining_and_recommendation_take_turns(codes: Path) -> None:
    workload = work(codes, visits_per_step=10, subjects_per_step=10, pretraining_epochs=2, epochs=1)
    first, second = workload.steps_of_round
    assert (first, second) == (2 * -(-len(workload.visits) // 10), -(-len(workload.subjects) // 10))
    phases = [workload.phase(step) for step in range(2 * (first + second))]
    assert phases == [
        *((PRETRAINING, number) for number in range(first)),
        *((MAIN, number) for number in range(second)),
        *((PRETRAINING, number) for number in range(first, 2 * first)),
        *((MAIN, number) for number in range(second, 2 * second)),
    ]
    assert workload.trains("pretraining.0-1.0.weight", 0)
    assert not workload.trains("recommendation.scores.weight", 0)
    assert not workload.trains("pretraining.0-1.0.weight", first)
    assert workload.trains("bert.layers.0.query.weight", first)
    seen = [
        index
        for number in range(first // 2)
        for index in workload._drawn(PRETRAINING, number, 10, len(workload.visits))
    ]
    assert sorted(seen) == list(range(len(workload.visits)))


def test_the_loss_of_pretraining_is_that_of_each_pair_of_kinds(codes: Path) -> None:
    """The binary cross-entropy of the whole set, from the visit with masks, written out for each pair."""
    workload = work(codes, visits_per_step=6)
    (batch,) = workload.plan(0, 0, 1).micro_batches
    vectors = workload.model.bert.vectors(batch.visits).detach()
    expected = 0.0
    for source in (0, 1):
        rows = (batch.kinds == source).nonzero().squeeze(1)
        for target in (0, 1):
            chances = workload.model.codes_of_visits(vectors[rows], source, target).sigmoid().detach().double()
            gold = batch.targets[target][rows].double()
            expected -= float((gold * chances.log() + (1 - gold) * (1 - chances).log()).mean())
    assert whole_step(workload, 0)[0] == pytest.approx(expected, rel=1e-5)
    assert batch.targets[0].any(dim=1).all(), "each visit has both kinds"


def test_masks_are_of_the_kind_and_a_function_of_the_step(codes: Path) -> None:
    workload = work(codes, masked_share=0.9, visits_per_step=50)
    batches = [workload.plan(step, 0, 1).micro_batches[0] for step in (0, 0, 1)]
    assert torch.equal(batches[0].visits.token_ids, batches[1].visits.token_ids)
    assert not torch.equal(batches[0].visits.token_ids, batches[2].visits.token_ids)
    vocabulary = read_codes_folder(codes).vocabulary
    ids, segments = batches[0].visits.token_ids, batches[0].visits.segment_ids
    assert (ids == vocabulary.mask_id).float().mean() > 0.3
    assert (ids[batches[0].visits.first_positions] == vocabulary.cls_id).all()
    for kind, name in enumerate(("diagnosis", "medication")):
        of_kind = set(ids[segments == kind].tolist())
        assert of_kind <= {vocabulary.cls_id, vocabulary.mask_id, *vocabulary.ids_of_kind(name).tolist()}


def test_single_visits_alone_can_be_pretrained_on(codes: Path) -> None:
    workload = work(codes, pretrain_on="single")
    assert all(len(workload.train.rows[subject]) == 1 for subject, _ in workload.visits)
    assert len(workload.visits) == 10


def test_an_example_reads_the_past_and_the_given_codes_but_never_the_wanted_ones() -> None:
    visits = [
        Visit("1", (("dx", "X"), ("rx", "R"))),
        Visit("2", (("dx", "Y"), ("rx", "S"))),
        Visit("3", (("rx", "R"),)),
    ]
    subjects = [Subject("a", tuple(visits)), Subject("b", (Visit("1", (("dx", "X"), ("dx", "new"))),))]
    vocabulary = CodeVocabulary.of(subjects[:1])
    labels = [vocabulary.id(("rx", name)) for name in ("R", "S")]
    data = encode_subjects(subjects, vocabulary, ["dx", "rx"], labels)
    assert data.rows[0].tolist() == [[0, 1], [2, 3], [-1, 4]]
    assert data.unknown == [0, 1]
    assert data.ids[5].tolist() == [vocabulary.cls_id, *sorted([vocabulary.unk_id, vocabulary.id(("dx", "X"))])]
    assert examples_of(data, 0, recommends=True, first_visits=False) == [Example(0, 1)]
    assert examples_of(data, 0, recommends=True, first_visits=True) == [Example(0, 0), Example(0, 1)]
    assert examples_of(data, 0, recommends=False, first_visits=False) == [Example(0, 1), Example(0, 2)]
    batch = batch_of_examples(data, [Example(0, 1)], torch.device("cpu"), recommends=True, labels=2)
    rows = batch.visits.row_ids
    assert set(rows) == {0, 1, 2}
    assert [rows[visit] for visit in batch.history.past[0][0]] == [0]
    assert [rows[visit] for visit in batch.history.past[1][0]] == [1]
    assert rows[batch.history.current[0]] == 2
    assert batch.targets.tolist() == [[0.0, 1.0]]
    following = batch_of_examples(data, [Example(0, 3)], torch.device("cpu"), recommends=False, labels=2)
    settings = CodesSettings(given_kind="dx", wanted_kind="rx")
    assert run.missing_codes(subjects, data, settings) == 0
    without = encode_subjects(subjects, vocabulary, ["dx", "rx"], labels[:1])
    assert run.missing_codes(subjects, without, CodesSettings()) == 2, "Y and S"
    assert following.history.current.tolist() == [-1], "the last visit has no code of the first kind"
    assert len(following.visits.row_ids) == 5


def test_scores_are_the_same_alone_and_in_a_batch(codes: Path) -> None:
    workload = work(codes)
    together, targets = workload.scores(workload.dev, workload.dev_examples)
    assert together.shape == targets.shape == (len(workload.dev_examples), 4)
    for number, example in enumerate(workload.dev_examples):
        alone, _ = scores_of(workload.model, workload.dev, [example], torch.device("cpu"), recommends=True)
        np.testing.assert_allclose(alone[0], together[number], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stopped", [1, 4])
def test_a_resumed_run_ends_as_a_straight_one(codes: Path, tmp_path: Path, stopped: int) -> None:
    """Interrupted in pre-training and after it."""
    bertsmith.train_codes(codes, tmp_path / "straight", **FEW, save_every=1)
    with interrupted(CodesTraining, "plan", lambda self, step, *_: step > stopped):
        bertsmith.train_codes(codes, tmp_path / "resumed", **FEW, save_every=1)
    bertsmith.train_codes(out=tmp_path / "resumed", resume=True)
    files = ("model/model.safetensors", "model/bertsmith.json", "results.json")
    assert_same_files(tmp_path / "straight", tmp_path / "resumed", *files)
    again = bertsmith.train_codes(out=tmp_path / "resumed", resume=True)
    assert again.results == read_json(tmp_path / "resumed/results.json")


def test_a_rule_is_learned_better_than_frequencies_and_the_model_is_read_back(codes: Path, tmp_path: Path) -> None:
    result = bertsmith.train_codes(
        codes, tmp_path / "run", **KINDS, width=32, dropout=0.1, epochs=40, pretraining_epochs=10, rounds=1,
        subjects_per_step=4, learning_rate=3e-3, device="cpu",
    )  # fmt: skip
    systems = result.results["systems"]
    assert set(systems) == {MODEL, FREQUENT, PREVIOUS, LINEAR}
    assert systems[MODEL]["pr_auc"]["value"] > systems[FREQUENT]["pr_auc"]["value"] + 0.2
    assert result.results["best_baseline"] == LINEAR
    read = read_codes_model(tmp_path / "run")
    assert (read.kinds, read.wanted) == (("diagnosis", "medication"), "medication")
    assert read.threshold == systems[MODEL]["threshold"]
    assert read.pretrained
    assert len(read.tree) == 4
    assert not read.model.training
    assert "held-out subjects" in (tmp_path / "run/model/README.md").read_text(encoding="utf-8")
    spec = json.loads((tmp_path / "run/model/bertsmith.json").read_text(encoding="utf-8"))
    spec["spec"]["labels"] = [1, 2, 3, 4]
    (tmp_path / "run/model/bertsmith.json").write_text(json.dumps(spec), encoding="utf-8")
    with pytest.raises(BertsmithError, match="codes of another model"):
        read_codes_model(tmp_path / "run")


def test_a_model_whose_files_are_not_its_own_is_refused(codes: Path, tmp_path: Path) -> None:
    bertsmith.train_codes(codes, tmp_path / "run", **FEW, baselines=False)
    tree, vocabulary = tmp_path / "run/model/tree.tsv", tmp_path / "run/model/codes.tsv"
    rows = tree.read_text(encoding="utf-8").splitlines(keepends=True)
    tree.write_text("".join(rows[:-1]), encoding="utf-8")
    with pytest.raises(BertsmithError, match="codes of another model"):
        read_codes_model(tmp_path / "run")
    tree.unlink()
    with pytest.raises(BertsmithError, match="codes of another model"):
        read_codes_model(tmp_path / "run")
    vocabulary.write_bytes(b"code\xff")
    with pytest.raises(BertsmithError, match="the byte 0xff in line 1, not UTF-8"):
        read_codes_model(tmp_path / "run")


def test_without_kinds_the_next_visit_is_predicted(codes: Path, tmp_path: Path) -> None:
    settings = {name: value for name, value in FEW.items() if name not in KINDS}
    bertsmith.train_codes(codes, tmp_path / "run", **settings, baselines=False)
    read = read_codes_model(tmp_path / "run")
    assert read.wanted is None
    assert len(read.labels) == 8
    assert read_json(tmp_path / "run/results.json")["systems"].keys() == {MODEL}


def test_scores_of_sets_are_those_of_scikit_learn_and_of_a_calculation_by_hand() -> None:
    gold = np.array([[1, 1, 0, 0], [0, 0, 0, 1]], dtype=bool)
    scores = np.array([[0.9, 0.2, 0.6, 0.2], [0.1, 0.1, 0.1, 0.1]])
    predicted = scores >= 0.5
    assert jaccard(gold, predicted).tolist() == [1 / 3, 0.0]
    assert f1_of_sets(gold, predicted).tolist() == [0.5, 0.0]
    expected = [average_precision_score(of_gold, of_scores) for of_gold, of_scores in zip(gold, scores, strict=True)]
    assert average_precision_of_sets(gold, scores) == pytest.approx(expected)
    source = np.random.default_rng(0)
    gold, scores = source.random((20, 9)) < 0.3, source.integers(0, 4, (20, 9)) / 4
    gold[:, 0] = True
    expected = [average_precision_score(of_gold, of_scores) for of_gold, of_scores in zip(gold, scores, strict=True)]
    assert average_precision_of_sets(gold, scores) == pytest.approx(expected)
    assert best_threshold(np.array([[True, False]]), np.array([[0.5, 0.3]])) == 0.4
    values, groups = np.array([0.0, 0.0, 1.0, 1.0]), [0, 0, 3, 3]
    assert interval_by_group(values, groups) == (0.0, 1.0)
    assert paired_test_by_group(values, 1 - values, groups).difference == 0


def test_baselines_are_frequencies_the_previous_visit_and_a_rule_of_counts() -> None:
    visits = [Visit(str(number), (("dx", "X"), ("rx", "RS"[number % 2]))) for number in range(3)]
    subjects = [Subject("a", tuple(visits))]
    vocabulary = CodeVocabulary.of(subjects)
    data = encode_subjects(subjects, vocabulary, ["dx", "rx"], [vocabulary.id(("rx", name)) for name in "RS"])
    examples = examples_of(data, 0, recommends=True, first_visits=False)
    encoded = Visits(data, examples, np.array([[0, 1], [1, 0]], dtype=bool))
    chances = baselines(encoded, [encoded], len(vocabulary), recommends=True, seed=1)
    assert chances[FREQUENT][0].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert chances[PREVIOUS][0].argmax(1).tolist() == [0, 1]
    assert chances[LINEAR][0].shape == (2, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"given_kind": "diagnosis"}, "`given_kind` and `wanted_kind`"),
        ({"given_kind": "diagnosis", "wanted_kind": "diagnosis"}, "twice"),
        ({"given_kind": "diagnosis", "wanted_kind": "drug"}, "found 'drug'"),
        ({**KINDS, "heads": 3, "width": 8}, "num_attention_heads"),
        ({**KINDS, "width": 0}, "width must be at least 1"),
        ({**KINDS, "dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({**KINDS, "masked_share": 0.0}, "masked_share must be above 0 and below 1"),
        ({**KINDS, "pretrain_on": "some"}, "did you mean|use one of"),
        ({**KINDS, "dev_share": 0.9, "test_share": 0.5}, "held out"),
        ({**KINDS, "keep_best": "accuracy"}, "accuracy"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_a_line(
    codes: Path, tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(BertsmithError, match=message):
        bertsmith.train_codes(codes, tmp_path / "run", device="cpu", steps=2, **settings)
    assert not (tmp_path / "run").exists()


def test_test_subjects_without_a_visit_to_score_are_refused_before_the_training(tmp_path: Path) -> None:
    lines = ["subject,time,code,kind"]
    for number in range(6):
        lines += [f"s{number},{time},{code}" for time, code in ((1, "a,dx"), (1, "r,rx"), (2, "a,dx"))]
        lines += [f"s{number},2,r,rx"] if number % 2 else []
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    bertsmith.build_codes([tmp_path / "events.csv"], tmp_path / "codes")
    settings = {"given_kind": "dx", "wanted_kind": "rx", "width": 8, "heads": 2, "steps": 2, "device": "cpu"}
    with pytest.raises(ConfigError, match="of a test subject; found none; raise `test_share`"):
        bertsmith.train_codes(tmp_path / "codes", tmp_path / "run", **settings, seed=4)
    assert not (tmp_path / "run").exists()


def test_resume_needs_a_run_of_this_command(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        bertsmith.train_codes(out=tmp_path / "none", resume=True)
    with pytest.raises(ConfigError, match="a file of codes"):
        TrainCodesRequest(out=tmp_path / "run")
