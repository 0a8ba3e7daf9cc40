"""What is known from the arguments alone is refused before any file is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertsmith.app.library.distillation import distill, distill_corpus
from bertsmith.app.library.finetuning import finetune
from bertsmith.app.library.training import pretrain
from bertsmith.base.core.errors import BertsmithError
from bertsmith.recipes.adaptation.run import adapt
from bertsmith.recipes.comparison.request import CompareRequest
from bertsmith.recipes.comparison.run import compare_systems
from bertsmith.training.pretraining.request import PretrainRequest

ABSENT = "absent"  # neither a model nor a file


def tuned(out: Path, **settings: Any) -> None:
    finetune(ABSENT, settings.pop("task", "classification"), out, train=ABSENT, **settings)


def distilled(out: Path, **settings: Any) -> None:
    distill(ABSENT, out, train=ABSENT, **settings)


def taught(out: Path, **settings: Any) -> None:
    distill_corpus(ABSENT, ABSENT, out, **settings)


def pretrained(out: Path, **settings: Any) -> None:
    pretrain(ABSENT, out, **{"size": "tiny", "steps": 10, **settings})


def adapted(out: Path, **settings: Any) -> None:
    adapt(ABSENT, [ABSENT], out, **settings)


def compared(out: Path, **settings: Any) -> None:
    compare_systems(ABSENT, out, systems=["tf-idf"], **settings)


COMMANDS = (tuned, distilled, taught, pretrained, adapted, compared)


@pytest.mark.parametrize(
    ("command", "settings", "said"),
    [
        (tuned, {"epochs": 0}, "epochs"),
        (tuned, {"learning_rate": -1.0}, "learning_rate"),
        (tuned, {"max_length": 0}, "max_length"),
        (tuned, {"metric": "acuracy"}, "did you mean 'accuracy'"),
        (tuned, {"metric": "f2", "task": "squad2"}, "unknown metric of squad2: 'f2'"),
        (tuned, {"metric": "spearmann", "task": "similarity"}, "did you mean 'spearman'"),
        (tuned, {"hard_negatives": 2}, "the task pairs"),
        (tuned, {"task": "pairs", "negative_margin": 0.1}, "negative_margin"),
        (tuned, {"task": "pairs", "hard_negatives": 2, "negative_ranks": "5,6"}, "two ranks at least 2 apart"),
        (tuned, {"task": "pairs", "hard_negatives": 2, "negative_ranks": "5"}, "two ranks at least 2 apart"),
        (tuned, {"list_loss": "lambda"}, "list_loss"),
        (tuned, {"list_loss": "lamda", "task": "reranking"}, "did you mean 'lambda'"),
        (distilled, {"epochs": 0}, "epochs"),
        (distilled, {"task": "clasification"}, "did you mean 'classification'"),
        (distilled, {"temperature": 0}, "temperature"),
        (pretrained, {"steps": 0}, "steps"),
        (pretrained, {"size": "huge"}, r"'auto', 'base', .*'tiny'"),
        (pretrained, {"size": "autos"}, "did you mean 'auto'"),
        (pretrained, {"size": "base", "architecture": "albret"}, "did you mean 'albert'"),
        (adapted, {"minutes": 0}, "minutes"),
        (adapted, {"task": "clasification"}, "did you mean 'classification'"),
        (compared, {"metric": "acuracy"}, "did you mean 'accuracy'"),
        (compared, {"kind": "clasification"}, "did you mean 'classification'"),
        (compared, {"labels": ["many"]}, "labels as numbers above 0"),
        (compared, {"max_length": 0}, "max_length"),
    ],
)
def test_a_wrong_setting_is_refused_before_a_file_is_read(
    command: Callable[..., None], settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(BertsmithError, match=said):
        command(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_is_in_use_is_refused_before_a_file_is_read(command: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("not a run")
    with pytest.raises(BertsmithError, match=r"a new folder '.*'; found (one|a folder) that is not empty"):
        command(tmp_path)


def test_a_size_of_networks_to_compare_is_checked_first(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="unknown model size 'huge'; use one of 'auto'"):
        compare_systems(ABSENT, tmp_path / "run", systems=["bert"], corpus=[ABSENT], size="huge")


def test_a_wrong_choice_is_refused_by_the_request_which_needs_no_torch(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="unknown model size 'tny'; did you mean 'tiny'"):
        PretrainRequest(ABSENT, tmp_path, size="tny")
    with pytest.raises(BertsmithError, match="unknown model size 'xlarge'"):
        PretrainRequest(ABSENT, tmp_path, size="xlarge")
    assert PretrainRequest(ABSENT, tmp_path, size="xlarge", architecture="albert").size == "xlarge"
    with pytest.raises(BertsmithError, match="did you mean 'tf-idf'"):
        CompareRequest(ABSENT, tmp_path, systems=["bert", "tfidf"])
    with pytest.raises(BertsmithError, match="found 'absent:frozen'"):
        CompareRequest(ABSENT, tmp_path, systems=[f"{ABSENT}:frozen"])
    assert CompareRequest(ABSENT, tmp_path, systems=["starter:frozen", "absent/model"]).systems
