"""A CrossEncoder of sentence-transformers gives the scores of that library, in every layout of its folder."""

import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.base.core.errors import BertsmithError, CheckpointError
from bertsmith.models.checkpoints.rewriting import convert
from tasks.architecture_samples import change_json, write_peer

PAIRS = [("the film", "a good film"), ("good " * 30, "the film " * 30), ("the film " * 30, "good " * 30), ("", "film")]
NO_MODULES = ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")


def saved(path: Path, labels: int, **settings: object) -> object:
    """A CrossEncoder that reads 20 tokens, with the default prompt "film: ", and its folder at `path`."""
    library = pytest.importorskip("sentence_transformers", reason="needs the extra dev: sentence-transformers")
    write_peer(path / "base", "electra", "ForSequenceClassification", num_labels=labels)
    prompts = {"prompts": {"q": "film: "}, "default_prompt_name": "q"}
    model = library.CrossEncoder(str(path / "base"), max_length=20, **{**prompts, **settings})
    model.save_pretrained(str(path))
    return library.CrossEncoder(str(path))


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a CrossEncoder with one output."""
    path = tmp_path_factory.mktemp("single")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved(path, 1)
        yield path
    logging.getLogger("transformers").handlers.clear()


def scores(path: Path) -> np.ndarray:
    """The probabilities or numbers of the pairs."""
    model = bertsmith.load(path)
    if "score" in model.abilities:
        assert model.rerank(PAIRS[0][0], [PAIRS[0][1]]) == [pytest.approx(model.score([PAIRS[0]])[0].value, abs=1e-6)]
        return np.array([prediction.value for prediction in model.score(PAIRS)])
    return np.array([prediction.probabilities for prediction in model.classify(PAIRS)])


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.parametrize("activation", ["Sigmoid", "Identity", None])
@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("layout", ["new", "old"])
def test_the_scores_are_those_of_the_library(tmp_path, labels, activation, layout):
    chosen = None if activation is None else getattr(torch.nn, activation)()
    plain = {"prompts": None, "default_prompt_name": None} if layout == "old" else {}
    model = saved(tmp_path, labels, activation_fn=chosen, **plain)
    if layout == "old":  # that of versions before 6, without modules
        for name in NO_MODULES:
            (tmp_path / name).unlink()
        noted = "torch.nn.modules." + (
            f"linear.{activation}" if activation == "Identity" else f"activation.{activation}"
        )
        if activation is not None:
            change_json(tmp_path / "config.json", sentence_transformers={"activation_fn": noted, "version": "5.0.0"})
    # Logits of several labels are one step from the probabilities that a classifier gives.
    expected = model.predict(PAIRS, apply_softmax=labels > 1 and activation != "Sigmoid")
    np.testing.assert_allclose(scores(tmp_path), expected, rtol=0, atol=2e-5)


@pytest.mark.usefixtures("quiet_transformers")
def test_what_is_written_again_gives_the_same_scores(single, tmp_path):
    convert(single, tmp_path / "ours", to="huggingface")
    np.testing.assert_array_equal(scores(tmp_path / "ours"), scores(single))


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.parametrize(
    ("file", "changes", "named"),
    [
        ("config_sentence_transformers.json", {"activation_fn": "mine.Activation"}, "mine.Activation"),
        ("config_sentence_transformers.json", {"activation_fn": "torch.nn.modules.activation.GELU"}, "GELU"),
        ("config_sentence_transformers.json", {"activation_fn": "torch.nn.modules.activation.Softmax"}, "several"),
        ("config_sentence_transformers.json", {"model_type": "SparseEncoder"}, "fill-mask"),
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "default_prompt_name"),
        ("sentence_bert_config.json", {"transformer_task": "text-generation"}, "transformer_task"),
        ("sentence_bert_config.json", {"query_length": 3}, "query_length"),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 5}}}, "processing_kwargs"),
        ("sentence_bert_config.json", {"model_kwargs": {"dtype": "float16"}}, "model_kwargs"),
        ("sentence_bert_config.json", {"modality_config": {"image": {}}}, "text"),
        ("sentence_bert_config.json", {"new": 1}, "new"),
    ],
)
def test_what_is_not_followed_is_refused_by_name(single, tmp_path, file, changes, named):
    shutil.copytree(single, tmp_path / "copy")
    change_json(tmp_path / "copy" / file, **changes)
    with pytest.raises(BertsmithError, match=named):
        bertsmith.load(tmp_path / "copy")


@pytest.mark.usefixtures("quiet_transformers")
def test_modules_on_top_of_the_classifier_are_refused(single, tmp_path):
    shutil.copytree(single, tmp_path, dirs_exist_ok=True)
    modules = json.loads((tmp_path / "modules.json").read_text())
    score = {"path": "1_LogitScore", "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"}
    (tmp_path / "modules.json").write_text(json.dumps([*modules, score]))
    with pytest.raises(CheckpointError, match="LogitScore"):
        bertsmith.load(tmp_path)
