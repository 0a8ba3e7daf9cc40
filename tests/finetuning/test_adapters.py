"""Fine-tuning a low-rank adapter: the base model stays as it is, and model and adapter say the same."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import bertsmith
from bertsmith.app.library.finetuning import finetune
from bertsmith.app.library.loading import load_models
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.storage.files import read_json
from bertsmith.models.checkpoints.load import load_any
from written_files import file_with

OPTIONS: dict[str, Any] = {
    "epochs": 12.0,
    "batch_size": 16,
    "max_length": 16,
    "device": "cpu",
    "precision": "fp32",
    "baselines": False,
    "learning_rate": 1e-2,
    "lora_rank": 2,
}
TEXTS = ["the good film was bad .", "great and fine", "who was carl"]


@pytest.fixture(scope="module")
def run(base: str, mails: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two seeds, averaged, with few examples: the start is a part of the average."""
    out = tmp_path_factory.mktemp("adapters") / "run"
    finetune(base, "classification", out, train=mails, seeds=2, reads="mean", **OPTIONS)
    assert read_json(out / "report.json")["best"] == "average"
    return out


def test_only_the_targets_and_the_head_of_a_base_model_change(run: Path, base: str) -> None:
    before, after = load_any(base).tensors, load_any(run / "seed-1" / "model").tensors
    changed = {name for name in after if name not in before or not torch.equal(before[name], after[name])}
    assert changed == {
        *(f"bert.layers.{number}.{name}.weight" for number in (0, 1) for name in ("query", "value")),
        "classifier.weight",
        "classifier.bias",
    }


@pytest.mark.parametrize("part", ["seed-1", "all/seed-2", "."])
def test_the_base_model_with_the_adapter_is_the_model(part: str, run: Path, base: str) -> None:
    model, config = load_any(run / part / "model"), read_json(run / part / "adapter" / "adapter_config.json")
    assert (config["r"], config["lora_alpha"]) == ((4, 8) if part == "." else (2, 4))
    for merged in (load_any(run / part / "adapter"), load_any(base, adapter=run / part / "adapter")):
        assert merged.tensors.keys() - model.tensors.keys() == {"bert.pooler.weight", "bert.pooler.bias"}
        for name, tensor in model.tensors.items():
            torch.testing.assert_close(merged.tensors[name], tensor, rtol=0, atol=1e-6)
        assert merged.metadata.spec == model.metadata.spec
        assert merged.metadata.scores == model.metadata.scores


def test_an_adapter_is_a_model_for_every_command_and_a_tenth_of_its_size(run: Path, mails: Path) -> None:
    model, adapter = bertsmith.load(run), bertsmith.load(run / "adapter")
    for ours, other in zip(model.classify(TEXTS), adapter.classify(TEXTS), strict=True):
        assert ours.label == other.label
        assert ours.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    scores = [bertsmith.evaluate(run / part, mails).scores for part in ("model", "adapter")]
    assert scores[0] == pytest.approx(scores[1])
    sizes = [(run / name).stat().st_size for name in ("model/model.safetensors", "adapter/adapter_model.safetensors")]
    assert sizes[1] < sizes[0] / 10


def test_adapters_of_one_base_are_served_next_to_each_other_by_name(run: Path) -> None:
    models = load_models([f"average={run / 'adapter'}", f"first={run / 'seed-1' / 'adapter'}"], device="cpu")
    assert list(models) == ["average", "first"]
    for name, folder in (("average", run / "model"), ("first", run / "seed-1" / "model")):
        model = models[name]
        assert isinstance(model, bertsmith.Model)
        expected = [answer.probabilities for answer in bertsmith.load(folder).classify(TEXTS)]
        for answer, probabilities in zip(model.classify(TEXTS), expected, strict=True):
            assert answer.probabilities == pytest.approx(probabilities, abs=1e-5)


def test_a_resumed_run_has_the_same_adapter(run: Path, base: str, mails: Path, tmp_path: Path) -> None:
    again = tmp_path / "run"
    shutil.copytree(run, again)
    for name in ("seed-2", "all/seed-1", "adapter", "model"):
        shutil.rmtree(again / name)
    (again / "report.json").unlink()
    finetune(base, "classification", again, train=mails, seeds=2, reads="mean", resume=True, **OPTIONS)
    for name in ("adapter", "seed-2/adapter", "model"):
        for file in (run / name).glob("*.safetensors"):
            assert (again / name / file.name).read_bytes() == file.read_bytes()


def test_vectors_and_tags_are_trained_with_adapters_too(base: str, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("text,pair\n" + "".join(f"the film {n} was good,a great film {n}\n" for n in range(12)))
    finetune(base, "pairs", tmp_path / "vectors", train=pairs, seeds=1, recipe="2018", reads="max", **OPTIONS)
    ours, merged = (bertsmith.load(tmp_path / "vectors" / name).embed(TEXTS) for name in ("model", "adapter"))
    torch.testing.assert_close(torch.from_numpy(ours), torch.from_numpy(merged), rtol=0, atol=1e-5)
    tags = file_with(tmp_path / "tags.conll", "the O\ngood O\nfilm B-X\n\n" * 12)
    options = {**OPTIONS, "lora_targets": "all-linear", "lora_alpha": 1.0}
    finetune(base, "ner", tmp_path / "tags", train=tags, dev=tags, seeds=1, recipe="2018", **options)
    config = read_json(tmp_path / "tags" / "adapter" / "adapter_config.json")
    assert (config["task_type"], config["lora_alpha"]) == ("TOKEN_CLS", 1)
    assert config["target_modules"] == [
        *(f"attention.{name}" for name in ("output.dense", "self.key", "self.query", "self.value")),
        "intermediate.dense",
        "output.dense",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora_rank": None, "lora_alpha": 4.0}, "`lora_alpha` needs `lora_rank`"),
        ({"freeze": "body"}, 'found `freeze="body"`'),
        ({"reads": "bilstm"}, 'found `reads="bilstm"`, which'),
        ({"reinit_layers": 1}, "found `reinit_layers`"),
        ({"recipe": "ulmfit"}, "found `gradual_unfreezing"),
        ({"recipe": "setfit"}, 'found `freeze="body"`'),
        ({"keep": "bag"}, "found .*`lora_rank`"),
        ({"lora_targets": "dense"}, "also names"),
    ],
)
def test_options_that_an_adapter_excludes_are_refused(
    options: dict[str, Any], message: str, base: str, mails: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        finetune(base, "classification", tmp_path / "run", train=mails, **{**OPTIONS, **options})
