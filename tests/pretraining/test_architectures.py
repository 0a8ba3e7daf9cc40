"""Masked language models of the other architectures, trained from scratch and read by `transformers`."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertsmith import load, make_static_vectors
from bertsmith.base.core.errors import ConfigError
from bertsmith.models.checkpoints.load import load_any
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import pretrain
from corpus.samples import write_corpus
from tasks.architecture_samples import write_base_model
from tasks.task_samples import TOKENIZER

EVERY = pytest.mark.parametrize("architecture", ["electra", "albert", "modernbert", "mpnet", "deberta-v2"])
SMALL = {"size": "tiny", "steps": 8, "rows_per_step": 8, "max_length": 16, "device": "cpu", "precision": "fp32"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masked")
    draw = np.random.default_rng(0)
    lines = ["the good film was it .", "anna was in rome .", "who was it ?"]
    documents = ["\n".join(draw.choice(lines, 6)) for _ in range(40)]
    return write_corpus(folder, documents, TOKENIZER)


@EVERY
def test_a_new_model_is_trained_and_is_the_same_in_transformers(
    architecture: str, corpus: Path, tmp_path: Path
) -> None:
    pretrain(corpus, tmp_path / "run", *settings_from_recipe({**SMALL, "architecture": architecture}))
    folder = load_any(tmp_path / "run/model")
    assert (folder.config.model_type, folder.parts) == (architecture, ("mlm",))
    model = load(tmp_path / "run/model", device="cpu")
    gap = model.fill(["the [MASK] film was it ."], top=5)[0][0]
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "run/model").eval()
    ids = [*TOKENIZER.encode("[CLS] the [MASK] film was it . [SEP]", special_tokens=True)]
    with torch.no_grad():
        chances = theirs(torch.tensor([ids])).logits[0, 2].softmax(-1)
    for guess in gap:
        assert guess.probability == pytest.approx(float(chances[TOKENIZER.vocabulary.index[guess.piece]]), abs=1e-5)


@EVERY
def test_an_objective_of_pairs_is_refused_in_one_line(architecture: str, corpus: Path, tmp_path: Path) -> None:
    settings = settings_from_recipe({**SMALL, "architecture": architecture, "objective": "mlm+nsp"})
    with pytest.raises(ConfigError, match="an objective without pairs"):
        pretrain(corpus, tmp_path / "run", *settings)


def test_static_vectors_are_not_pretrained(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an architecture with named sizes; found static vectors"):
        pretrain(corpus, tmp_path / "run", *settings_from_recipe({**SMALL, "architecture": "static-vectors"}))
    make_static_vectors(write_base_model(tmp_path / "bert"), tmp_path / "static")
    with pytest.raises(ConfigError, match="depend on the neighbors of a token, for pre-training; found static vectors"):
        pretrain(corpus, tmp_path / "run", *settings_from_recipe({**SMALL, "size": None, "init": tmp_path / "static"}))
    assert not (tmp_path / "run").exists()
