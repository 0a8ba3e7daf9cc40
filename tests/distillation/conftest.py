"""What all tests of distillation share."""

from pathlib import Path

import pytest

from bertsmith.recipes.distillation import report
from bertsmith.text.corpus.build import build_corpus
from tasks.task_samples import TOKENIZER, examples_of


@pytest.fixture(autouse=True)
def _short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are timed, but none is repeated until its time is exact: no test looks at a time."""
    monkeypatch.setattr(report, "LEAST_SECONDS", 0.0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    texts = (" . ".join(example.first for example in examples_of("single", 8, seed=seed)) for seed in range(20))
    (folder / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    build_corpus([folder / "text.txt"], TOKENIZER, folder / "corpus", held_out=0.05)
    return folder / "corpus"
