"""A run maps the weights of its base model once, builds parameters once per seed, and links what it keeps."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch

import bertsmith
from bertsmith.base.storage import files
from bertsmith.base.storage.files import link_file, read_object
from bertsmith.models.checkpoints import assembly
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.specs.classification import ClassificationTask
from bertsmith.tasks.task_data.split import TaskData
from tasks.task_samples import SPECS, examples_of

SETTINGS = FinetuningSettings(batch_size=8, epochs=1, precision="fp32", reads="probe", start="linear", device="cpu")


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often files are read, parameters get memory, and rows run through a frozen encoder."""
    counts: Counter[str] = Counter()
    read, give, vectors = safetensors.torch.load_file, assembly.give_memory, FrozenEncoder._row_vectors

    def counted_read(path: Path) -> object:
        counts[f"reads of {'the base' if 'run' not in path.parts else 'a trained model'}"] += 1
        return read(path)

    def counted_give(*arguments: object, mapped: bool = False) -> None:
        counts["frozen encoders" if mapped else "trained models"] += 1
        give(*arguments, mapped=mapped)

    def counted_vectors(self: FrozenEncoder, rows: object, choice: object, pooling: str, progress: object) -> object:
        counts[f"{pooling} of {len(rows)} rows"] += 1
        return vectors(self, rows, choice, pooling, progress)

    monkeypatch.setattr(ClassificationTask, "is_collapsed", lambda *_: False)  # a restart would be one more training
    monkeypatch.setattr(safetensors.torch, "load_file", counted_read)
    monkeypatch.setattr(assembly, "give_memory", counted_give)
    monkeypatch.setattr(FrozenEncoder, "_row_vectors", counted_vectors)
    return counts


def run(base: str, out: Path, *, seeds: int, merge: str = "best", resume: bool = False) -> None:
    data = TaskData(train=examples_of("single", 40), dev=examples_of("single", 12, seed=1))
    settings = FinetuningSettings(**{**vars(SETTINGS), "merge": merge})
    finetune(base, SPECS["single"], data, out, settings, RecipeSettings(), seeds=seeds, resume=resume)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_run_reads_its_base_once_and_builds_one_model_per_seed(
    base: str, tmp_path: Path, counts: Counter[str], seeds: int
) -> None:
    run(base, tmp_path / "run", seeds=seeds)
    assert {name: count for name, count in counts.items() if "rows" not in name} == {
        "reads of the base": 1,
        "frozen encoders": 1,  # of probe, baselines and linear start
        "trained models": seeds,
    }


def test_vectors_of_the_training_rows_are_computed_once(base: str, tmp_path: Path, counts: Counter[str]) -> None:
    run(base, tmp_path / "run", seeds=1)
    of_training = {name: count for name, count in counts.items() if name.endswith("of 40 rows")}
    assert set(of_training.values()) == {1}
    assert "mean of 40 rows" in of_training  # read by the probe, a baseline and, where it is the best, the start


def test_an_average_reads_what_it_averages(base: str, tmp_path: Path, counts: Counter[str]) -> None:
    run(base, tmp_path / "run", seeds=2, merge="average")
    assert counts["reads of the base"] == 1
    assert counts["reads of a trained model"] == 2


def test_remembered_vectors_are_those_of_an_encoder_that_remembers_nothing(base: str) -> None:
    forgetful, remembering = (
        load_frozen_encoder(base, device="cpu", remembers=remembers) for remembers in (False, True)
    )
    data = TaskData(train=examples_of("single", 40), dev=())
    rows = FinetuningJob.prepare(base, SPECS["single"], data, FinetuningSettings(), RecipeSettings()).train.rows
    last = forgetful.choice("last")
    for pooling in ("mean", "cls", "mean"):
        wanted = forgetful.row_vectors(rows, last, pooling)
        assert np.array_equal(remembering.row_vectors(rows, last, pooling), wanted)
    few = np.arange(3)
    assert np.array_equal(
        remembering.row_vectors(rows.select(few), last), forgetful.row_vectors(rows.select(few), last)
    )


@pytest.mark.usefixtures("counts")
def test_the_model_that_is_kept_is_the_file_of_its_training(base: str, tmp_path: Path) -> None:
    run(base, tmp_path / "run", seeds=1)
    kept, trained = (tmp_path / name / "model.safetensors" for name in ("run/model", "run/seed-1/model"))
    assert kept.samefile(trained)
    digests = [read_object(file.parent / "bertsmith.json")["digests"] for file in (kept, trained)]
    assert digests[0]["model.safetensors"] == digests[1]["model.safetensors"] == files.digest_file(kept)
    assert load_any(kept.parent).metadata.labels == SPECS["single"].labels


@pytest.mark.usefixtures("counts")
@pytest.mark.parametrize("lost", ["report.json", "seed-1/report.json", "model/bertsmith.json"])
def test_a_run_that_was_killed_after_the_link_is_resumed(base: str, tmp_path: Path, lost: str) -> None:
    run(base, tmp_path / "run", seeds=1)
    kept, trained = (tmp_path / name / "model.safetensors" for name in ("run/model", "run/seed-1/model"))
    before = files.digest_file(trained)
    for name in {lost, "report.json"}:
        (tmp_path / "run" / name).unlink()
    run(base, tmp_path / "run", seeds=1, resume=True)
    assert (tmp_path / "run" / "report.json").is_file()
    assert kept.samefile(trained)
    assert files.digest_file(kept) == before


@pytest.mark.usefixtures("counts")
def test_a_model_without_digests_is_linked_and_gets_them(base: str, tmp_path: Path) -> None:
    run(base, tmp_path / "run", seeds=1)
    (tmp_path / "run" / "report.json").unlink()
    metadata = tmp_path / "run" / "seed-1" / "model" / "bertsmith.json"
    files.write_json(metadata, {**read_object(metadata), "digests": {}})
    run(base, tmp_path / "run", seeds=1, resume=True)
    kept = tmp_path / "run" / "model"
    digests = read_object(kept / "bertsmith.json")["digests"]
    assert digests["model.safetensors"] == files.digest_file(kept / "model.safetensors")


@pytest.mark.usefixtures("counts")
def test_a_model_that_is_written_over_the_kept_one_leaves_that_of_the_training(base: str, tmp_path: Path) -> None:
    run(base, tmp_path / "run", seeds=1)
    kept, trained = (tmp_path / name / "model.safetensors" for name in ("run/model", "run/seed-1/model"))
    before = files.digest_file(trained)
    with files.atomic_file(kept) as file:
        file.write(b"other weights")
    assert files.digest_file(trained) == before
    bertsmith.convert(trained.parent, kept.parent, to="huggingface", replace=True)
    assert files.digest_file(trained) == before
    assert not kept.samefile(trained)
    folder = load_any(kept.parent)
    for tensor in folder.tensors.values():
        tensor.zero_()  # a private copy of the file in memory
    assert files.digest_file(kept) == files.digest_file(trained)


def test_the_file_that_a_link_names_is_linked(tmp_path: Path) -> None:
    (tmp_path / "one" / "two").mkdir(parents=True)
    (tmp_path / "weights").write_bytes(b"weights")
    (tmp_path / "one" / "link").symlink_to("../weights")
    link_file(tmp_path / "one" / "link", tmp_path / "one" / "two" / "kept")
    assert (tmp_path / "one" / "two" / "kept").samefile(tmp_path / "weights")


def test_a_link_is_a_copy_where_the_storage_has_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise OSError("no links here")

    (tmp_path / "first").write_bytes(b"weights")
    monkeypatch.setattr("os.link", refuses)
    link_file(tmp_path / "first", tmp_path / "second")
    assert (tmp_path / "second").read_bytes() == b"weights"
    assert not (tmp_path / "second").samefile(tmp_path / "first")
