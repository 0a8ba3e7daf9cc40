"""Outputs and inputs at addresses where only local paths are possible: refused in one line, and nothing is made."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bertsmith import build_corpus, embed_file, learn_vocabulary
from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.files import (
    atomic_file,
    atomic_folder,
    read_json,
    require_file,
    require_file_place,
    write_json,
)
from bertsmith.base.storage.locks import locked_file, locked_folder
from bertsmith.models.checkpoints.rewriting import convert
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining.run import pretrain
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from corpus.samples import small_tokenizer
from tasks.task_samples import TOKENIZER, write_base_model

OUT = Path("s3://bucket/out")


def entered(block: Callable[[Path], object]) -> Callable[[], object]:
    def enter() -> None:
        with block(OUT):
            pytest.fail("the work began")

    return enter


def trained() -> object:
    build_corpus(["a.txt"], small_tokenizer(), "corpus")
    data = PretrainingDataSettings(max_length=16)
    return pretrain("corpus", OUT, PretrainingRunSettings(size="tiny"), data, TrainSettings(steps=1))


CALLS: dict[str, Callable[[], object]] = {
    "a file": entered(atomic_file),
    "a folder": entered(atomic_folder),
    "JSON": lambda: write_json(OUT, {}),
    "the place of a file": lambda: require_file_place(OUT),
    "a locked file": entered(locked_file),
    "a locked folder": entered(locked_folder),
    "a run": lambda: RunFolder.create(OUT, {}),
    "build_corpus": lambda: build_corpus(["a.txt"], small_tokenizer(), str(OUT)),
    "embed_file": lambda: embed_file("a.txt", "base", "gs://bucket/x.npy"),
    "LearnedVocabulary.save": lambda: learn_vocabulary(["a.txt"], 40).save(OUT),
    "Vocabulary.save": lambda: TOKENIZER.vocabulary.save(OUT),
    "convert": lambda: convert("base", OUT, to="huggingface"),
    "pretrain": trained,
}


@pytest.mark.parametrize("name", CALLS)
def test_an_output_at_an_address_is_refused_and_nothing_is_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("The boat came home.\nNobody was in it.\n\nA new story.\nIt rained.\n" * 9)
    write_base_model(Path("base"))
    with pytest.raises(InputError, match=r"on this machine; found the address '(s3|gs)://bucket/.*'; name a local"):
        CALLS[name]()
    assert {path.name for path in tmp_path.iterdir()} <= {"a.txt", "base", "corpus"}


def test_an_input_that_is_read_from_a_disk_alone_is_refused_by_its_address() -> None:
    for read in (lambda: read_json(OUT), lambda: require_file(OUT, "model weights")):
        with pytest.raises(InputError, match=r"on this machine; found the address 's3://bucket/out'"):
            read()
