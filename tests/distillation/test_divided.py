"""Students and adapted models that are divided among processes are trained like whole ones."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from adaptation.domain_samples import write_base, write_domain, write_general, write_labelled
from bertsmith.base.storage.files import read_json
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from distillation.distillation_samples import write_examples, write_teacher
from distillation.of_divided import OF_A_CORPUS, OF_A_TASK, STOPPED, adapted, taught, taught_on_text
from tasks.task_samples import TOKENIZER
from training.launched import launched
from training.logs import steps_of

PROGRAM = Path(__file__).with_name("of_divided.py")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Teachers, examples and text."""
    inputs = tmp_path_factory.mktemp("place")
    write_teacher(inputs, "single")
    shutil.rmtree(inputs / "base")
    write_base(inputs / "base")
    write_examples(inputs / "train", "single", 24, 0)
    write_examples(inputs / "dev", "single", 1, 1)  # on which no model can collapse
    write_domain(inputs / "field.txt")
    write_general(inputs / "general.txt")
    lines = write_labelled(inputs / "train.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (inputs / "dev.csv").write_text("".join([lines[0], *lines[1::2]]), encoding="utf-8")  # one label
    settings = CorpusSettings(held_out=0.1)
    build_corpus([inputs / "field.txt"], TOKENIZER, inputs / "corpus", **vars(settings), workers=1)
    return inputs


@pytest.fixture(scope="module")
def two(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that two processes write."""
    out = tmp_path_factory.mktemp("two")
    launched(PROGRAM, 2, inputs, out)
    return out


def values(run: Path) -> dict[str, list[float]]:
    """Each loss of the log by its name, step after step."""
    steps = steps_of(run)
    return {name: [step[name] for step in steps] for name in steps[0] if name.endswith("loss")}


def assert_same(actual: Path, expected: Path, run: str, steps: int) -> None:
    """The same curves and model, up to sums in another order."""
    first, two = values(expected / run), values(actual / run)
    assert first.keys() == two.keys()
    for name, curve in first.items():
        assert len(set(curve)) == steps
        assert two[name] == pytest.approx(curve, rel=1e-3), name
    models = [load_file(inputs / run / "model" / "model.safetensors") for inputs in (actual, expected)]
    assert models[0].keys() == models[1].keys()
    for name, tensor in models[0].items():
        assert_close(tensor, models[1][name], rtol=0.0, atol=5e-3)
    names = [
        {path.relative_to(inputs) for path in inputs.rglob("*") if path.is_file()} for inputs in (actual, expected)
    ]
    written = [{file for file in files if "checkpoints" not in file.parts} for files in names]
    assert written[0] == written[1], "everything but the parts of checkpoints is written once; nothing is left over"


@pytest.mark.parametrize("run", OF_A_TASK)
def test_a_divided_student_of_a_task_is_taught_like_a_whole_one(
    inputs: Path, two: Path, tmp_path: Path, run: str
) -> None:
    taught(inputs, tmp_path / "one", **OF_A_TASK[run])
    for folder in ("seed-1", "first-stage/seed-1") if "first_stage" in OF_A_TASK[run] else ("seed-1",):
        assert_same(two / run, tmp_path / "one", folder, steps=3)


@pytest.mark.parametrize("run", OF_A_CORPUS)
def test_a_divided_student_of_a_corpus_is_taught_like_a_whole_one(
    inputs: Path, two: Path, tmp_path: Path, run: str
) -> None:
    taught_on_text(inputs, tmp_path / "one", **OF_A_CORPUS[run])
    assert_same(two / run, tmp_path / "one", ".", steps=4)


def test_a_divided_student_with_a_projection_is_resumed_by_one_process(inputs: Path, two: Path, tmp_path: Path) -> None:
    checkpoint = two / STOPPED / "seed-1" / "checkpoints" / "step-00000002"
    parts = [load_file(checkpoint / f"model-0000{number}-of-00002.safetensors") for number in (1, 2)]
    assert [part["projection.weight"].shape[0] for part in parts] == [16, 16], "of the 32 rows each process has half"
    shutil.copytree(two / STOPPED, tmp_path / "again")
    taught(inputs, tmp_path / "again", resume=True, **OF_A_TASK["projected"])
    taught(inputs, tmp_path / "one", **OF_A_TASK["projected"])
    assert_same(tmp_path / "again", tmp_path / "one", "seed-1", steps=3)


def test_a_divided_model_is_adapted_like_a_whole_one(inputs: Path, two: Path, tmp_path: Path) -> None:
    adapted(inputs, tmp_path / "one", shard=False)
    assert_same(two / "adapted" / "run", tmp_path / "one" / "run", ".", steps=1)  # that are logged
    actual, expected = (read_json(out / "report.json") for out in (two / "adapted", tmp_path / "one"))
    for text in ("field", "general"):
        assert actual["losses"][text]["before"] == expected["losses"][text]["before"]
        after = [report["losses"][text]["after"]["per_word"] for report in (actual, expected)]
        assert after[0] == pytest.approx(after[1], rel=1e-3)
    assert actual["task"]["arms"].keys() == {"as-it-is", "adapted"}
    for arm, score in expected["task"]["arms"].items():
        assert actual["task"]["arms"][arm]["mean"] == score["mean"]
        assert read_json(two / "adapted" / "task" / arm / "settings.json")["settings"]["train"]["shard"]
