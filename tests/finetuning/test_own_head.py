"""A head that the user wrote: trained, saved, loaded elsewhere, resumed, converted; and what is not a head."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bertsmith
from bertsmith.app.library.own_heads import head_from_file
from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError, RunError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.rewriting import convert
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.specs.kinds import KINDS, task_for
from bertsmith.tasks.task_data.split import TaskData
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, examples_of
from training.interruptions import assert_resumes
from training.logs import assert_learns
from written_files import file_with

EVERY = pytest.mark.parametrize(
    "kind", ["single", "number", "choice", "tags", "nested", "by name", "answer", "sentences", "lists"]
)
SETTINGS = FinetuningSettings(batch_size=16, epochs=12, precision="fp32", dropout=0.0)
RECIPE = RecipeSettings(learning_rate=3e-3, log_every=1)

PROGRAM = """
import bertsmith
from torch import Tensor, nn


class TwoLayers(bertsmith.OwnHead):
    def __init__(self, config, outputs: int) -> None:
        super().__init__(config, outputs)
        width = config.hidden_size
        self.layers = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, outputs))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.layers(hidden)


class Narrow(TwoLayers):
    def __init__(self, config, outputs: int) -> None:
        super().__init__(config, outputs)
        self.layers = nn.Sequential(nn.Linear(config.hidden_size, 8), nn.Tanh(), nn.Linear(8, outputs))


class Bare(nn.Linear):
    pass
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return file_with(tmp_path_factory.mktemp("head") / "my_head.py", PROGRAM)


@pytest.fixture(scope="module")
def two_layers(file: Path) -> type[OwnHead]:
    return head_from_file(f"{file}:TwoLayers")


@pytest.fixture(scope="module")
def tuned(base: str, two_layers: type[OwnHead], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a classification with the head."""
    out = tmp_path_factory.mktemp("tuned") / "run"
    settings = dataclasses.replace(SETTINGS, epochs=4)
    finetune(base, SPECS["single"], data_of("single"), out, settings, RECIPE, seeds=1, head=two_layers)
    return out


def data_of(kind: str, count: int = 64) -> TaskData:
    return TaskData(train=examples_of(kind, count), dev=examples_of(kind, 24, seed=1))


def test_every_kind_of_task_is_tried() -> None:
    without_a_layer_on_top = {"similarity", "selection", "generation"}
    too_slow_to_learn = {"coreference"}
    assert {SPECS[kind].kind for kind in EVERY.args[1]} == set(KINDS) - without_a_layer_on_top - too_slow_to_learn


@pytest.mark.parametrize(
    ("kind", "does"),
    [("scored vectors", "trains vectors"), ("replies by vectors", "trains vectors"), ("text to write", "writes texts")],
)
def test_a_task_without_a_layer_on_top_is_refused(
    kind: str, does: str, base: str, two_layers: type[OwnHead], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"a task with a layer on top.*own; found one that {does}; leave your head"):
        finetune(base, SPECS[kind], data_of(kind), tmp_path / "run", SETTINGS, RECIPE, seeds=1, head=two_layers)


@EVERY
def test_it_learns_saves_and_answers_the_same_in_another_process(
    kind: str, base: str, file: Path, two_layers: type[OwnHead], tmp_path: Path
) -> None:
    data = data_of(kind)
    result = finetune(base, SPECS[kind], data, tmp_path / "run", SETTINGS, RECIPE, seeds=1, head=two_layers)
    assert_learns(tmp_path / "run/seed-1", 0.7)
    predictor = load_predictor(tmp_path / "run" / "model", head=two_layers)
    scores, predictions = predictor.evaluate(data.dev)
    assert scores == pytest.approx(dict(result.runs[result.best].scores), abs=1e-9)
    program = (
        "import sys; sys.path.insert(0, sys.argv[2]); from tasks.task_samples import examples_of; import json;"
        "from bertsmith.inference.predictors.loading import load_predictor;"
        "from bertsmith.app.library.own_heads import head_from_file;"
        "p = load_predictor(sys.argv[1], head=head_from_file(sys.argv[4]));"
        "print(json.dumps([one.to_dict() for one in p.predict(examples_of(sys.argv[3], 24, seed=1))]))"
    )
    location, folder = f"{file}:TwoLayers", str(Path(__file__).parent.parent)
    command = [sys.executable, "-c", program, str(tmp_path / "run" / "model"), folder, kind, location]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(answer) == json.loads(json.dumps([prediction.to_dict() for prediction in predictions]))


@EVERY
def test_a_killed_training_resumes_to_the_same_bytes(
    kind: str, base: str, two_layers: type[OwnHead], tmp_path: Path
) -> None:
    settings = dataclasses.replace(SETTINGS, epochs=2, dropout=0.1, batch_size=8)
    recipe = dataclasses.replace(RECIPE, save_every=3)
    job = FinetuningJob.prepare(base, SPECS[kind], data_of(kind, 32), settings, recipe, two_layers)
    assert_resumes(job, tmp_path)


@pytest.mark.parametrize("kind", ["single", "tags"])
def test_all_of_it_learns_at_the_full_rate_and_with_a_frozen_body_too(
    kind: str, base: str, two_layers: type[OwnHead], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, first = data_of(kind, 16), load_any(base).tensors
    for freeze in ("nothing", "body"):
        settings = dataclasses.replace(SETTINGS, epochs=1, freeze=freeze, layer_decay=0.5)
        job = FinetuningJob.prepare(base, SPECS[kind], data, settings, RECIPE, two_layers)
        start = load_for_task(job.folder, job.head, keep_head=False, seed=1).model
        job.train_once(tmp_path / freeze, 1)
        after = load_any(tmp_path / freeze / "model").tensors
        names = {name for name in after if name.startswith("own_head.")}
        assert names == {name for name, _ in start.named_parameters() if not name.startswith("bert.")}
        assert not {name for name in names if torch.equal(after[name], start.get_parameter(name).detach())}
        below = [name for name in after if name.startswith("bert.embeddings.")]
        assert all(torch.equal(after[name], first[name]) == (freeze == "body") for name in below)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
        work = Finetuning(start, job.task, job.train, None, TOKENIZER, settings, choose("cpu", "fp32"), seed=1)
        assert {work.rate_factor(name) for name in names} == {1.0}
        assert work.lanes == 1, "a head of the user's own may draw from torch's generators"


def test_its_first_values_are_drawn_like_all_others(two_layers: type[OwnHead]) -> None:
    head = dataclasses.replace(task_for(SPECS["single"]).head, own=two_layers)
    first, two = (EncoderForTask(new_encoder(CONFIG), head, seed=seed).output_layer for seed in (1, 2))
    weights = first.get_parameter("layers.0.weight")
    assert weights.abs().max() <= 2 * CONFIG.initializer_range
    assert not torch.equal(weights, two.get_parameter("layers.0.weight"))
    assert torch.equal(first.get_parameter("layers.2.weight"), torch.ones(32))
    assert all(not values.any() for name, values in first.named_parameters() if name.endswith("bias"))


def test_the_library_trains_and_loads_it(base: str, two_layers: type[OwnHead], tmp_path: Path) -> None:
    assert bertsmith.OwnHead is OwnHead
    rows = [f"the {word} film,{label}" for word, label in (("good", "yes"), ("bad", "no"))] * 12
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    out = tmp_path / "run"
    options = {"train": tmp_path / "train.csv", "seeds": 1, "epochs": 1, "batch_size": 8, "max_length": 16}
    bertsmith.finetune(base, "classification", out, head=two_layers, **options)
    model = bertsmith.load(out, head=two_layers, device="cpu")
    assert model.abilities == ("classify", "embed", "features")
    assert sum(model.classify(["the good film"])[0].probabilities) == pytest.approx(1)
    assert json.loads((out / "model" / "bertsmith.json").read_text())["own_head"] == "TwoLayers"
    assert json.loads((out / "settings.json").read_text())["settings"]["head"] == "TwoLayers"
    assert "bertsmith predict --model . --head my_head.py:TwoLayers" in (out / "model" / "README.md").read_text()
    bertsmith.finetune(base, "classification", out, head=two_layers, resume=True, **options)
    for other in (None, type("Other", (two_layers,), {})):
        with pytest.raises(RunError, match=r"; found head = (None|'Other') \(was 'TwoLayers'\)"):
            bertsmith.finetune(base, "classification", out, head=other, resume=True, **options)


def test_without_its_class_a_model_says_what_it_needs_and_still_gives_vectors(
    tuned: Path, two_layers: type[OwnHead]
) -> None:
    message = (
        rf"expected the class of the head in '{tuned}/model'; found none; the model was fine-tuned with the user's "
        "head 'TwoLayers'; pass the class with "
    )
    with pytest.raises(CheckpointError, match=f"{message}`head=...`"):
        bertsmith.load(tuned)
    with pytest.raises(CheckpointError, match=f"{message}--head FILE:CLASS"):
        load_predictor(tuned / "model")
    words = [["the", "good", "film"]]
    without = bertsmith.WordEncoder(str(tuned))(words)[0]
    torch.testing.assert_close(without[0], bertsmith.load(tuned, head=two_layers).features(words)[0])
    assert load_frozen_encoder(load_any(tuned)).has_pooler


def test_a_class_that_does_not_fit_is_reported(
    base: str, tuned: Path, file: Path, two_layers: type[OwnHead], tmp_path: Path
) -> None:
    narrow = head_from_file(f"{file}:Narrow")
    with pytest.raises(CheckpointError, match=r"the parameters of Narrow in .* written by TwoLayers; pass the class"):
        bertsmith.load(tuned, head=narrow)
    linear = FinetuningJob.prepare(
        base, SPECS["single"], data_of("single", 16), dataclasses.replace(SETTINGS, epochs=1), RECIPE
    )
    linear.train_once(tmp_path / "linear", 1)
    with pytest.raises(
        CheckpointError, match=r"with the head 'TwoLayers' in .*; found pooler, classifier; omit the head"
    ):
        bertsmith.load(tmp_path / "linear", head=two_layers)
    with pytest.raises(CheckpointError, match="expected a fine-tuned model"):
        bertsmith.load(base, head=two_layers)


def test_a_model_with_it_is_the_base_of_another_with_any_head(
    tuned: Path, file: Path, two_layers: type[OwnHead], tmp_path: Path
) -> None:
    settings = dataclasses.replace(SETTINGS, epochs=1)
    for head in (None, two_layers, head_from_file(f"{file}:Narrow")):
        job = FinetuningJob.prepare(tuned, SPECS["single"], data_of("single", 16), settings, RECIPE, head)
        name = "linear" if head is None else head.__name__
        job.train_once(tmp_path / name, 1)
        assert load_predictor(tmp_path / name, head=head).predict(examples_of("single", 2))


def test_hugging_face_keeps_it_and_other_formats_refuse_it(
    tuned: Path, two_layers: type[OwnHead], tmp_path: Path
) -> None:
    convert(tuned, tmp_path / "copy", to="huggingface")
    asked = examples_of("single", 4)
    before, after = (load_predictor(model, head=two_layers).predict(asked) for model in (tuned, tmp_path / "copy"))
    assert before == after
    with pytest.raises(
        ConfigError, match="a model whose head Google's code supports; found the user's head 'TwoLayers'"
    ):
        convert(tuned, tmp_path / "google", to="google")
    assert not (tmp_path / "google").exists()


class WithDropout(OwnHead):
    def __init__(self, config: EncoderConfig, outputs: int) -> None:
        super().__init__(config, outputs)
        self.inner = nn.Sequential(nn.Linear(config.hidden_size, outputs), nn.Dropout(0.1))

    def forward(self, hidden: Tensor) -> Tensor:
        return self.inner(hidden)


class WithBatchNorm(WithDropout):
    def __init__(self, config: EncoderConfig, outputs: int) -> None:
        super().__init__(config, outputs)
        self.inner = nn.Sequential(nn.Linear(config.hidden_size, outputs), nn.BatchNorm1d(outputs))


class WithAttention(WithDropout):
    def __init__(self, config: EncoderConfig, outputs: int) -> None:
        super().__init__(config, outputs)
        self.inner = nn.MultiheadAttention(config.hidden_size, 2, dropout=0.5)


class Tied(WithDropout):
    def __init__(self, config: EncoderConfig, outputs: int) -> None:
        super().__init__(config, outputs)
        width = config.hidden_size
        self.inner = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
        self.inner[1].weight = self.inner[0].weight


class Empty(WithDropout):
    def __init__(self, config: EncoderConfig, outputs: int) -> None:
        super().__init__(config, outputs)
        self.inner = nn.Identity()


class TooWide(WithDropout):
    def __init__(self, config: EncoderConfig, outputs: int) -> None:
        super().__init__(config, outputs)
        self.inner = nn.Linear(config.hidden_size, outputs + 1)


class Unfinished(OwnHead):
    pass


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            WithDropout,
            r"expected a head without dropout, .* WithDropout receives; found dropout in inner\.1; remove it",
        ),
        (WithAttention, "found dropout in inner; remove it"),
        (WithBatchNorm, r"no other state; found inner\.1\.num_batches_tracked, .*; remove buffers, batch norms"),
        (Tied, r"each under one name, and no other state; found inner\.1\.weight; remove"),
        (Empty, "expected parameters in Empty, .* found none; build its layers"),
        (TooWide, r"expected logits of shape \[16, 2\] from TooWide; found \[16, 3\]; return one row"),
        (Unfinished, "a head with a method `forward`; found Unfinished without one"),
        (nn.Linear, "expected a subclass of bertsmith.OwnHead as head; found the class Linear; derive"),
        ("my_head.py:MyHead", "found an object, 'my_head.py:MyHead'; derive"),
    ],
)
def test_what_cannot_be_a_head_is_reported_in_one_line(base: str, head: type, message: str, tmp_path: Path) -> None:
    data = TaskData(train=examples_of("single", 16), dev=())
    with pytest.raises(ConfigError, match=message):
        finetune(base, SPECS["single"], data, tmp_path / "run", SETTINGS, RECIPE, seeds=1, head=head)


def test_a_dropout_of_nothing_is_none(base: str, tmp_path: Path) -> None:
    class WithoutDropout(WithDropout):
        def __init__(self, config: EncoderConfig, outputs: int) -> None:
            super().__init__(config, outputs)
            self.inner[1].p = 0.0

    head = dataclasses.replace(task_for(SPECS["single"]).head, own=WithoutDropout)
    assert EncoderForTask(new_encoder(CONFIG), head).output_layer.outputs == 2


@pytest.mark.parametrize(
    ("location", "error", "message"),
    [
        ("{file}:TwoLyers", ConfigError, "expected a class TwoLyers in .*; found none; did you mean 'TwoLayers'"),
        ("{file}:Bare", ConfigError, "found the class Bare; derive"),
        ("{file}:OwnHead", ConfigError, "found none; use one of 'Narrow', 'TwoLayers'"),
        ("{file}", ConfigError, r"expected a head as FILE:CLASS; found '.*my_head\.py'; write it like my_head\.py:My"),
        ("{file}:", ConfigError, "expected a head as FILE:CLASS"),
        ("absent.py:MyHead", InputError, r"the Python file of a head at 'absent\.py'; found no such file"),
        ("{broken}:MyHead", InputError, r"expected Python in '.*broken\.py'; found .* in line 2; correct the file"),
        ("{text}:MyHead", InputError, r"found '.*my_head\.txt'; name a file that ends with \.py"),
        ("{other}:MyHead", ConfigError, r"found none; write a subclass of bertsmith\.OwnHead there"),
    ],
)
def test_a_place_that_has_no_head_is_reported_in_one_line(
    location: str, error: type[Exception], message: str, file: Path, tmp_path: Path
) -> None:
    files = {"file": file, **{name: tmp_path / f"{name}.py" for name in ("broken", "other")}}
    files["text"] = tmp_path / "my_head.txt"
    files["broken"].write_text("import bertsmith\nclass MyHead(:\n", encoding="utf-8")
    for name in ("other", "text"):
        files[name].write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(error, match=message):
        head_from_file(location.format(**files))


def test_a_file_of_a_head_hides_no_module_that_is_installed(tmp_path: Path) -> None:
    path = file_with(tmp_path / "json.py", PROGRAM)
    before = sys.modules["json"]
    assert head_from_file(f"{path}:TwoLayers").__name__ == "TwoLayers"
    assert sys.modules["json"] is before
