"""Classifiers of `transformers`, whatever their labels and problem types: the answers of a pipeline, or one line."""

import copy
import itertools
import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import transformers

import bertsmith
from bertsmith.base.core.errors import BertsmithError
from bertsmith.models.checkpoints.huggingface import read_model_folder
from bertsmith.models.model_files.tokenizer_files import lowercased
from checkpoints.tiny import write_folder
from tasks.architecture_samples import change_json, write_peer

TEXTS = ["the good film", "a bad film ?", "", "the " * 90]
PROBLEMS = (None, "regression", "single_label_classification", "multi_label_classification")
NAMES = {
    "none": None,
    "named": {"0": "no", "1": "yes", "2": "both"},
    "equal": {"0": "yes", "1": "yes", "2": "no"},
    "gaps": {"0": "a", "2": "b", "5": "c"},
    "numbers": {"0": 7, "1": 8, "2": 9},
    "null": {"0": None, "1": "b", "2": "c"},
}


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """Folders of classifiers, by their number of outputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folders = {count: tmp_path_factory.mktemp("model") / "x" for count in (1, 2, 3)}
        for count, path in folders.items():
            write_peer(path, "electra", "ForSequenceClassification", num_labels=count)
        yield folders
    logging.getLogger("transformers").handlers.clear()


def theirs(path: Path) -> list[dict[str, float]] | None:
    """The scores of a pipeline by label; None if it cannot answer, or two labels have one name."""
    try:
        pipe = transformers.pipeline("text-classification", str(path), top_k=None, truncation=True, max_length=64)
        shares = [{record["label"]: record["score"] for record in answer} for answer in pipe(TEXTS)]
    except Exception:  # noqa: BLE001 - whatever that library raises
        return None
    return shares if len(shares[0]) == len(pipe.model.config.id2label) else None


def ours(path: Path) -> list[dict[str, float]]:
    """Our scores by label; of a number, under the name of the only label."""
    model = bertsmith.load(path)
    if "score" in model.abilities:
        return [{"": prediction.value} for prediction in model.score(TEXTS)]
    return [dict(zip(prediction.labels, prediction.probabilities, strict=True)) for prediction in model.classify(TEXTS)]


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.parametrize(
    ("count", "problem", "names"),
    [*itertools.product((1, 2, 3), PROBLEMS, ("none", "named")), *((3, None, n) for n in NAMES)],
)
def test_scores_are_those_of_a_pipeline_or_the_folder_is_refused(classifiers, tmp_path, count, problem, names):
    path = shutil.copytree(classifiers[count], tmp_path / "x")
    values = json.loads((path / "config.json").read_text())
    labels = None if NAMES[names] is None else dict(itertools.islice(NAMES[names].items(), count))
    if labels is None and count == 1:
        labels = {"0": "LABEL_0"}
    for key in ("id2label", "label2id", "problem_type"):
        values.pop(key, None)
    values |= {"id2label": labels, "problem_type": problem}
    (path / "config.json").write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    expected = theirs(path)
    numbers = problem == "regression" and count > 1  # of which theirs gives one after the other, under names of labels
    no_choice = problem == "single_label_classification" and count == 1
    if names in ("equal", "gaps", "null") or numbers or no_choice:
        with pytest.raises(BertsmithError):
            ours(path)
        return
    scores = ours(path)
    if labels is None and count == 3:  # theirs expects two labels, ours are numbered
        assert expected is None
        assert list(scores[0]) == ["LABEL_0", "LABEL_1", "LABEL_2"]
        return
    for mine, wanted in zip(scores, expected, strict=True):
        values = list(mine.values()) if "" in mine else [mine[str(label)] for label in wanted]
        np.testing.assert_allclose(values, list(wanted.values()), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("quiet_transformers")
def test_a_number_of_labels_that_contradicts_their_names_is_refused(classifiers, tmp_path):
    path = shutil.copytree(classifiers[3], tmp_path / "x")
    change_json(path / "config.json", num_labels=5)
    assert theirs(path) is None
    with pytest.raises(BertsmithError, match=r"num_labels 3 .* found 5"):
        ours(path)


def test_multiple_choice_has_one_output_whatever_its_labels(tmp_path):
    write_peer(tmp_path, "electra", "ForMultipleChoice")
    change_json(tmp_path / "config.json", id2label={"0": "first", "1": "second"})
    assert "choose" in bertsmith.load(tmp_path).abilities


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.filterwarnings("ignore")
def test_both_texts_are_in_one_segment_if_the_inputs_of_the_model_lack_segments(
    classifiers: dict[int, Path], tmp_path: Path
) -> None:
    path = tmp_path / "model"
    shutil.copytree(classifiers[3], path)
    change_json(path / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    pipe = transformers.pipeline("text-classification", str(path), top_k=None)
    expected = {record["label"]: record["score"] for record in pipe({"text": "the film", "text_pair": "a good film"})}
    folder = read_model_folder(path)
    write_folder(tmp_path / "copy", folder)
    for source in (path, tmp_path / "copy"):
        (answer,) = bertsmith.load(source).classify([("the film", "a good film")])
        assert dict(zip(answer.labels, answer.probabilities, strict=True)) == pytest.approx(expected, abs=1e-5)
    tokenizer = folder.require_tokenizer()
    assert not tokenizer.template.has_segments
    assert copy.deepcopy(tokenizer).template == lowercased(tokenizer).template == tokenizer.template
    change_json(path / "tokenizer_config.json", model_input_names=["input_ids"])
    with pytest.raises(BertsmithError, match="model_input_names with input_ids and attention_mask"):
        read_model_folder(path)
