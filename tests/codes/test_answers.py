"""Predictions for subjects, improbable visits and vectors of subjects: by the library and by the commands."""

from pathlib import Path

import numpy as np
import pytest

import bertsmith
from bertsmith import BertsmithError
from bertsmith.app.library.loading import open_model
from bertsmith.base.storage.files import read_json
from bertsmith.inference.predictors.loading import _warn_once
from bertsmith.inference.word_vectors.formats import load_word_vectors
from bertsmith.recipes.codes.model_folder import read_codes_model
from codes.sample_events import DISEASES, write_events, write_tree
from written_files import file_with

KINDS = {"given_kind": "diagnosis", "wanted_kind": "medication"}
HEADER = "subject,time,code,kind\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events, a folder of codes, and two models of them."""
    folder = tmp_path_factory.mktemp("answers")
    events, tree = write_events(folder / "events.csv"), write_tree(folder / "tree.csv")
    bertsmith.build_codes([events], folder / "codes", tree=[tree])
    shared = {"width": 32, "dropout": 0.1, "learning_rate": 3e-3, "subjects_per_step": 4, "device": "cpu", "rounds": 1}
    bertsmith.train_codes(folder / "codes", folder / "recommends", **KINDS, **shared, epochs=40, pretraining_epochs=30)
    bertsmith.train_codes(folder / "codes", folder / "follows", **shared, epochs=2, pretraining_epochs=0)
    return folder


def events(path: Path, rows: list[str]) -> Path:
    path.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_codes_of_the_last_visit_are_recommended_whatever_wanted_codes_it_has(folder: Path, tmp_path: Path) -> None:
    past = ["a,2020-01-01,cold,diagnosis", "a,2020-01-01,tea,medication"]
    for number, last in enumerate(
        (["a,2020-02-01,gout,diagnosis"], ["a,2020-02-01,gout,diagnosis", "a,2020-02-01,tea,medication"])
    ):
        path = events(tmp_path / f"{number}.csv", past + last)
        (prediction,) = bertsmith.predict_codes([path], folder / "recommends", top=1, device="cpu")
        assert (prediction.subject, prediction.time) == ("a", "2020-02-01")
        assert [(code.code, code.kind) for code in prediction.codes] == [(DISEASES["gout"], "medication")]
        assert not prediction.unlike_training


def test_predictions_are_the_same_alone_and_together(folder: Path, tmp_path: Path) -> None:
    together = bertsmith.predict_codes([folder / "events.csv"], folder / "recommends", top=4, device="cpu")
    assert len(together) == 40
    lines = (folder / "events.csv").read_text(encoding="utf-8").splitlines()
    for number in (0, 7, 39):
        path = events(tmp_path / "one.csv", [line for line in lines if line.startswith(f"p{number},")])
        (alone,) = bertsmith.predict_codes([path], folder / "recommends", top=4, device="cpu")
        assert [code.code for code in alone.codes] == [code.code for code in together[number].codes]
        np.testing.assert_allclose(
            [code.probability for code in alone.codes], [code.probability for code in together[number].codes], rtol=1e-4
        )
    threshold = read_codes_model(folder / "recommends").threshold
    for prediction in bertsmith.predict_codes([folder / "events.csv"], folder / "recommends", device="cpu"):
        assert all(code.probability >= threshold for code in prediction.codes)
    every = bertsmith.predict_codes([folder / "events.csv"], folder / "recommends", threshold=0.0, device="cpu")
    assert {len(prediction.codes) for prediction in every} == {4}
    few = bertsmith.predict_codes([folder / "events.csv"], folder / "recommends", top=2, threshold=0.5, device="cpu")
    for prediction, of_all in zip(few, every, strict=True):
        assert prediction.codes == tuple(code for code in of_all.codes if code.probability >= 0.5)[:2]
    assert min(len(prediction.codes) for prediction in few) < 2


def test_the_next_visit_is_predicted_from_all_visits(folder: Path, tmp_path: Path) -> None:
    path = events(tmp_path / "a.csv", ["a,1,cold,diagnosis", "a,2,tea,medication", "b,1,new,diagnosis"])
    first, second = bertsmith.predict_codes([path], folder / "follows", top=8, device="cpu")
    assert {code.kind for code in first.codes} == {"diagnosis", "medication"}
    assert (first.time, first.unknown_codes, second.unknown_codes) == ("2", 0, 1)
    shorter = events(tmp_path / "b.csv", ["a,1,cold,diagnosis"])
    (other,) = bertsmith.predict_codes([shorter], folder / "follows", top=8, device="cpu")
    assert other.codes != first.codes


def test_a_visit_against_the_rule_is_the_most_improbable_one(folder: Path, tmp_path: Path) -> None:
    rows = [f"p{number},1,{disease},diagnosis" for number, disease in enumerate(DISEASES)]
    rows += [f"p{number},1,{cure},medication" for number, cure in enumerate(DISEASES.values())]
    rows += ["odd,1,flu,diagnosis", "odd,1,diet,medication", "new,1,plague,diagnosis"]
    path = events(tmp_path / "a.csv", rows)
    results = bertsmith.find_anomalies([path], folder / "recommends", device="cpu")
    assert [result.subject for result in results] == ["p0", "p1", "p2", "p3", "odd", "new"]
    assert (results[5].surprise, results[5].codes, results[5].unknown_codes) == (None, (), 1)
    (worst,) = bertsmith.find_anomalies([path], folder / "recommends", top=1, device="cpu")
    assert worst.subject == "odd"
    assert worst.surprise == pytest.approx(-np.mean(np.log([code.probability for code in worst.codes])))
    lone = events(tmp_path / "b.csv", rows[:1] + rows[4:5])
    (alone,) = bertsmith.find_anomalies([lone], folder / "recommends", device="cpu")
    assert alone.surprise == pytest.approx(results[0].surprise, rel=1e-4)


def test_without_pretraining_only_what_follows_a_visit_is_judged(folder: Path, tmp_path: Path) -> None:
    path = events(tmp_path / "a.csv", ["a,1,cold,diagnosis", "a,2,tea,medication"])
    first, second = bertsmith.find_anomalies([path], folder / "follows", device="cpu")
    assert (first.surprise, first.codes) == (None, ())
    assert [code.code for code in second.codes] == ["tea"]


def test_subjects_with_the_same_codes_have_the_same_vector_and_are_neighbors(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{name},1,{code},diagnosis" for name, code in (("a", "flu"), ("b", "flu"), ("c", "gout"), ("d", "new"))]
    path = events(tmp_path / "a.csv", [*rows, "e,1,tea,medication", "f,1,oak,tree"])
    vectors = bertsmith.embed_subjects([path], folder / "recommends", tmp_path / "vectors", device="cpu")
    assert vectors.width == 64
    saved = load_word_vectors(tmp_path / "vectors", lowercase=False)
    np.testing.assert_array_equal(saved.vectors, vectors.vectors)
    assert bertsmith.neighbors(saved, "a", 1)[0].word == "b"
    np.testing.assert_allclose(vectors.vector("a"), vectors.vector("b"), rtol=1e-5)
    assert not vectors.vector("a")[32:].any(), "there are no medications"
    assert not vectors.vector("e")[:32].any()
    written = capsys.readouterr().err
    assert "1 subject with no codes that the model reads: vectors of zeros" in written
    assert "1 code not in the vocabulary of the model" in written
    with pytest.raises(BertsmithError, match="exists"):  # before anything is read
        bertsmith.embed_subjects([path], folder / "none", tmp_path / "vectors", device="cpu")


def test_events_of_other_kinds_and_other_models_are_refused(folder: Path, tmp_path: Path) -> None:
    path = events(tmp_path / "a.csv", ["a,1,cold,illness"])
    with pytest.raises(BertsmithError, match="diagnosis and medication; found only illness"):
        bertsmith.predict_codes([path], folder / "recommends", device="cpu")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    with pytest.raises(BertsmithError, match="model_type 'bert'"):
        bertsmith.predict_codes([path], tmp_path / "other", device="cpu")
    with pytest.raises(BertsmithError, match="a model of visits; use it with `bertsmith codes predict` or `serve`"):
        bertsmith.load(folder / "recommends")
    report = bertsmith.inspect_model(folder / "recommends")
    assert (report.what, report.text) == ("model folder, G-BERT for codes; heads: none", "it reads no text")
    assert report.sizes["hidden_size"] == 32
    assert "max_position_embeddings" not in report.sizes, "a visit is a set"
    assert f"; {report.sizes['parameters']:,} parameters, " in " ".join(report.card)
    assert report.digests == "verified"


def test_a_log_with_codes_of_one_kind_is_continued_and_a_jump_in_it_is_improbable(tmp_path: Path) -> None:
    order = ["start", "load", "run", "save"]
    rows = [f"h{host},{step},{order[(host + step) % 4]}" for host in range(40) for step in range(8)]
    path = file_with(tmp_path / "log.csv", "host,time,event\n" + "\n".join(rows) + "\n")
    bertsmith.build_codes([path], tmp_path / "codes")
    shared = {"width": 32, "learning_rate": 3e-3, "subjects_per_step": 4, "baselines": False, "device": "cpu"}
    result = bertsmith.train_codes(tmp_path / "codes", tmp_path / "run", **shared, pretraining_epochs=0, epochs=15)
    assert result.results["systems"]["model"]["pr_auc"]["value"] > 0.9
    for first in bertsmith.predict_codes([path], tmp_path / "run", top=1, device="cpu")[:4]:
        host = int(first.subject[1:])
        assert first.codes[0].code == order[(host + 8) % 4]
    path.write_text("host,time,event\na,1,start\na,2,load\na,3,save\na,4,start\n", encoding="utf-8")
    (worst,) = bertsmith.find_anomalies([path], tmp_path / "run", top=1, device="cpu")
    assert (worst.time, worst.codes[0].code) == ("3", "save")


def test_a_model_below_the_best_baseline_says_so_with_its_predictions(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {
        **KINDS,
        "width": 8,
        "steps": 1,
        "learning_rate": 1e-6,
        "pretraining_epochs": 0,
        "epochs": 1,
        "device": "cpu",
    }
    run = tmp_path / "run"
    bertsmith.train_codes(folder / "codes", run, **few)
    results = read_json(run / "results.json")
    scores = {name: results["systems"][name]["f1"]["value"] for name in ("model", results["best_baseline"])}
    model, baseline = scores.values()
    assert model < baseline
    compared = f"the baseline {results['best_baseline']!r}: f1 {model:.3g} against {baseline:.3g}"
    sentence = f"his model is weak: on its {results['visits']} test examples it was not better than {compared}"
    _warn_once.cache_clear()
    bertsmith.predict_codes([folder / "events.csv"], run, device="cpu")
    assert f"warning: t{sentence}\n" in capsys.readouterr().err
    assert open_model(run, device="cpu").weakness == f"t{sentence}"
    assert f"**T{sentence}.**" in (run / "model/README.md").read_text(encoding="utf-8")
    bertsmith.train_codes(folder / "codes", tmp_path / "alone", **few, baselines=False)
    assert open_model(tmp_path / "alone", device="cpu").weakness == ""
