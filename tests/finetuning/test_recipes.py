"""Recipes: what settings become, the linear start, what the head reads, metrics, weights, thresholds."""

import dataclasses
import itertools
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.app.library.finetuning import finetune as run_command
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import load_for_task, save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.models.heads.row_vectors import apart_of_rows, pair_of_rows, pool_rows
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.head_inputs import READS
from bertsmith.models.parts.noise import NoiseOfTexts, RowNoise
from bertsmith.recipes.finetuning import linear_start
from bertsmith.recipes.finetuning.base_model import require_base
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.linear_start import LinearStart, pooler_was_trained
from bertsmith.recipes.finetuning.recipes import Situation, resolved, situation_of
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.encoding.forward import task_logits
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import metrics_of, with_metric
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from model.examples import shake
from tasks import architecture_samples
from tasks.task_samples import BAD, CONFIG, GOOD, PEOPLE, PLACES, SPECS, examples_of
from written_files import file_with

SMALL = Situation(task="classification", kind="classification", examples=900, config=CONFIG)


def prepared(
    base: str, kind: str, settings: FinetuningSettings, dev: int = 24, recipe: RecipeSettings | None = None
) -> FinetuningJob:
    data = TaskData(train=examples_of(kind, 64), dev=examples_of(kind, dev, seed=1))
    return FinetuningJob.prepare(base, SPECS[kind], data, settings, recipe or RecipeSettings())


def test_the_recipe_of_2018_changes_nothing_and_keeps_the_papers_values_of_a_task() -> None:
    assert resolved("2018", SMALL, {}) == {}
    assert resolved("2018", dataclasses.replace(SMALL, task="squad2", kind="span"), {"epochs": 1.0}) == {
        "batch_size": 48,
        "epochs": 1.0,
    }


def test_the_automatic_recipe_depends_on_examples_task_and_width() -> None:
    small = resolved("auto", SMALL, {})
    assert small == {
        "batch_size": 16,
        "epochs": 3.56,
        "learning_rate": 3e-4,  # the highest, for a width of 32
        "schedule": "hf_linear",
        "bias_correction": True,
        "keep": "last",
        "freeze": "embeddings",
        "reads": "probe",
        "start": "linear",
        "merge": "average",
        "refit": False,
    }
    assert resolved("auto", dataclasses.replace(SMALL, examples=499), {})["refit"]
    assert not {"merge", "refit"} & resolved("auto", SMALL, {"patience": 2}).keys()  # dev data decides there
    large = resolved("auto", dataclasses.replace(SMALL, examples=20_000), {})
    assert (large["batch_size"], large["epochs"], large["keep"]) == (32, 3.0, "best")
    assert "freeze" not in large
    wide = dataclasses.replace(SMALL, config=dataclasses.replace(CONFIG, hidden_size=768))
    assert resolved("auto", wide, {})["learning_rate"] == 5e-5
    narrow = dataclasses.replace(CONFIG, hidden_size=256)
    little = dataclasses.replace(SMALL, config=narrow, is_well_trained=False)
    assert resolved("auto", little, {})["learning_rate"] == 5e-4
    taught = dataclasses.replace(little, has_learned_vectors=True)
    assert resolved("auto", taught, {})["learning_rate"] == 2.5e-4
    assert "freeze" not in resolved("auto", little, {})
    assert "start" not in resolved("auto", dataclasses.replace(SMALL, kind="span"), {})
    writing = resolved("auto", dataclasses.replace(SMALL, task="summarization", kind="generation"), {})
    assert (writing["batch_size"], writing["epochs"], writing["decoder_rate"]) == (16, 40.0, 4.0)
    many = dataclasses.replace(SMALL, task="summarization", kind="generation", examples=24_000)
    assert (resolved("auto", many, {})["batch_size"], resolved("auto", many, {})["epochs"]) == (16, 3.0)
    assert "decoder_rate" not in small
    settings = resolved("auto", dataclasses.replace(SMALL, own_head=True), {})
    assert "start" not in settings
    assert "reads" not in settings


def test_embeddings_are_trained_where_the_model_read_few_tokens(base: str) -> None:
    folder = load_any(base)
    for tokens, task, frozen in (
        (None, "pretraining", False),
        (10**6, "pretraining", False),
        (10**10, "pretraining", True),
        (10**6, "classification", False),
        (None, None, True),
        (None, "classification", True),
    ):
        metadata = dataclasses.replace(folder.metadata, tokens=tokens, task=task)
        situation = situation_of("spam", "classification", 900, dataclasses.replace(folder, metadata=metadata))
        assert ("freeze" in resolved("auto", situation, {})) == frozen


@pytest.mark.parametrize(
    ("tokens", "task", "frozen"),
    [
        (10**9, "pretraining", True),
        (10**9, "classification", True),
        (10**6, "pretraining", False),
        (None, None, True),  # from another tool
        (None, "classification", True),
        (None, "pretraining", False),
    ],
)
def test_a_continued_model_is_trained_as_well_as_the_model_it_continues_from(
    base: str, tokens: int | None, task: str | None, frozen: bool
) -> None:
    """However often, and after fine-tuning too."""
    folder = load_any(base)
    metadata = dataclasses.replace(folder.metadata, tokens=tokens, task=task)
    for name in ("pretraining", "pretraining", "classification"):
        before = metadata.as_initial_model() if name == "pretraining" else metadata.continued_from
        metadata = ModelMetadata(task=name, tokens=1_000_000, continued_from=before)
        metadata = ModelMetadata.from_dict(json.loads(json.dumps(metadata.to_dict())))
        situation = situation_of("spam", "classification", 900, dataclasses.replace(folder, metadata=metadata))
        assert situation.is_well_trained == frozen


@pytest.mark.parametrize("damaged", [{}, {"tokens": "many"}, {"task": None, "tokens": 1.5}])
def test_an_unknown_beginning_counts_as_a_model_of_another_tool(base: str, damaged: dict[str, object]) -> None:
    folder = load_any(base)
    metadata = ModelMetadata.from_dict({"task": "pretraining", "tokens": 1_000, "continued_from": damaged})
    folder = dataclasses.replace(folder, metadata=metadata)
    assert situation_of("spam", "classification", 900, folder).is_well_trained


def test_a_model_that_learned_vectors_from_a_teacher_says_so(base: str) -> None:
    folder = load_any(base)
    for method, taught in (("vectors", True), ("tinybert", False)):
        metadata = ModelMetadata(task="pretraining", tokens=1_000_000, training={"method": method})
        situation = situation_of("spam", "classification", 900, dataclasses.replace(folder, metadata=metadata))
        assert situation.has_learned_vectors == taught
        assert not situation.is_well_trained


def test_what_is_given_is_kept_and_the_rest_fits_it() -> None:
    result = resolved("auto", SMALL, {"batch_size": 32, "learning_rate": 1e-5, "freeze": "body", "patience": 2})
    assert (result["batch_size"], result["learning_rate"], result["freeze"]) == (32, 1e-5, "body")
    assert result["keep"] == "best"  # patience needs it
    assert "start" not in result
    assert not {"start", "freeze"} & resolved("auto", SMALL, {"reinit_layers": 1}).keys()
    assert result["epochs"] * 900 / 32 >= 200
    settings = FinetuningSettings(batch_size=32, epochs=result["epochs"])
    assert settings.steps(900) == 200
    changed = resolved("auto", SMALL, {"reinit_layers": 1})  # a linear model knows nothing of new layers
    assert {"start", "freeze"}.isdisjoint(changed)


def test_an_unknown_recipe_is_one_line_with_the_nearest_name(base: str, mails: Path, tmp_path: Path) -> None:
    expected = r"unknown recipe '2019'; did you mean '?2018"
    with pytest.raises(ConfigError, match=expected):
        run_command(base, "classification", tmp_path / "run", train=mails, recipe="2019")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_that_cannot_be_is_refused_as_in_other_recipes(
    base: str, mails: Path, tmp_path: Path, size: int
) -> None:
    for recipe in ("auto", "2018"):
        with pytest.raises(ConfigError, match=f"batch_size must be above 0, not {size}"):
            run_command(base, "classification", tmp_path / "run", train=mails, recipe=recipe, batch_size=size)


def test_2018_is_bit_identical_to_the_old_defaults(base: str, mails: Path, tmp_path: Path) -> None:
    old = {
        "batch_size": 32,
        "epochs": 3.0,
        "freeze": "nothing",
        "reads": "pooler",
        "start": "random",
        "class_weights": "none",
        "learning_rate": 5e-5,
        "schedule": "tf_linear",
        "epsilon": 1e-6,
        "bias_correction": False,
        "keep": "best",
    }
    common = {"train": mails, "seeds": 1, "precision": "fp32", "max_length": 32}
    with quiet():
        run_command(base, "classification", tmp_path / "named", recipe="2018", **common)
        run_command(base, "classification", tmp_path / "given", recipe="auto", **old, **common)
    for file in ("model/model.safetensors", "predictions.jsonl"):
        assert (tmp_path / "named" / file).read_bytes() == (tmp_path / "given" / file).read_bytes()
    record = read_json(tmp_path / "named" / "settings.json")["settings"]
    assert record["recipe"] == "2018"
    assert record["run"]["start"] == "random"


def test_the_resolved_settings_are_recorded_and_a_resumed_run_keeps_its_recipe(
    base: str, mails: Path, tmp_path: Path
) -> None:
    common = {"train": mails, "seeds": 1, "precision": "fp32", "max_length": 32}
    with quiet():
        run_command(base, "classification", tmp_path / "run", **common)
        record = read_json(tmp_path / "run" / "settings.json")["settings"]
        assert (record["recipe"], record["run"]["start"], record["run"]["freeze"]) == ("auto", "linear", "nothing")
        assert record["run"].get("reads") == record["spec"].get("reads")  # the pooler is not recorded
        assert record["train"]["learning_rate"] == 1e-3  # the highest of a model that has read little
        before = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
        run_command(base, "classification", tmp_path / "run", resume=True, **common)
        assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == before
        run_command(base, "classification", tmp_path / "old", recipe="2018", **common)
        run_command(base, "classification", tmp_path / "old", resume=True, **common)
    assert read_json(tmp_path / "old" / "settings.json")["settings"]["recipe"] == "2018"


def test_a_resumed_run_keeps_what_its_probe_has_found(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later release may find something else."""
    path = file_with(tmp_path / "train.tsv", "text\tlabel\n" + "a good film\tx\na poor plot\ty\n" * 10)
    options = {"train": path, "seeds": 1, "epochs": 1.0, "max_length": 16, "device": "cpu", "baselines": False}
    for probed in ("cls", "mean"):
        monkeypatch.setattr(LinearStart, "best_reads", lambda *_, probed=probed, **__: probed)
        run_command(base, "classification", tmp_path / "run", reads="probe", resume=probed == "mean", **options)
        assert read_json(tmp_path / "run" / "settings.json")["settings"]["run"]["reads"] == "cls"


@pytest.mark.parametrize(
    ("kind", "reads"),
    [
        *itertools.product(("single", "several labels", "number", "windows", "tags"), ("mean", "cls", "pooler")),
        ("pair", "mean"),
        ("pair", "pair"),
        ("pair", "apart"),
        ("on the pair", None),
        ("on texts apart", None),
    ],
)
def test_before_the_first_step_the_model_is_the_linear_model(
    base: str, kind: str, reads: str | None, tmp_path: Path
) -> None:
    settings = FinetuningSettings(start="linear", reads=reads, precision="fp32", epochs=0.01)
    recipe = RecipeSettings(learning_rate=1e-12, weight_decay=0.0, warmup_share=0.0)
    job = prepared(base, kind, settings, recipe=recipe)
    job.train_once(tmp_path / "run", 1)
    trained = load_for_task(load_any(tmp_path / "run" / "model"), job.head, keep_head=True).model.eval()
    result = task_logits(trained, job.dev, job.runtime)
    frozen = load_frozen_encoder(base, device="cpu")
    if kind == "tags":
        vectors = frozen.token_vectors(job.dev.rows, frozen.choice("last"), job.dev.read)
    else:
        vectors = frozen.row_vectors(job.dev.rows, frozen.choice("last"), job.head.reads)
    np.testing.assert_allclose(result, job.linear_start.outputs(vectors), rtol=1e-4, atol=1e-4)
    assert np.abs(job.linear_start.weight).max() > 0


def test_a_linear_start_is_refused_where_there_is_none(base: str) -> None:
    for kind, changes, message in (
        ("choice", {}, "task of the kind choice"),
        ("answer", {}, "task of the kind span"),
        ("single", {"reinit_layers": 1}, "re-initialized layers"),
    ):
        with pytest.raises(ConfigError, match=message):
            prepared(base, kind, FinetuningSettings(start="linear", **changes))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"reads": "means"}, r"unknown reads 'means'; did you mean '?mean"),
        ({"start": "lineal"}, "did you mean '?linear"),
        ({"class_weights": "balance"}, "did you mean '?balanced"),
        ({"freeze": "head"}, "unknown freeze 'head'; use one of 'body', 'embeddings', 'nothing'"),
    ],
)
def test_unknown_names_are_refused(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FinetuningSettings(**wrong)


def test_an_evaluation_after_zero_steps_is_refused() -> None:
    assert RecipeSettings().training(30, 10, "accuracy").evaluate_every == 10
    with pytest.raises(ConfigError, match="evaluate_every must be above 0, not 0"):
        RecipeSettings(evaluate_every=0).training(30, 10, "accuracy")


def test_last_and_patience_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="--patience needs --keep best"):
        RecipeSettings(keep="last", patience=2)
    with pytest.raises(ConfigError, match="unknown keep 'first'; use one of 'auto', 'bag', 'best', 'last'"):
        RecipeSettings(keep="first")


def test_the_last_model_is_kept_where_it_is_asked_for(base: str, tmp_path: Path) -> None:
    settings = FinetuningSettings(batch_size=16, epochs=3, precision="fp32")
    result = prepared(base, "single", settings, recipe=RecipeSettings(keep="last")).train_once(tmp_path / "run", 1)
    assert result.best_step == result.steps == 12
    assert read_json(tmp_path / "run" / "settings.json")["settings"]["train"]["keep_best"] is None


def test_frozen_embeddings_do_not_change_and_the_layers_do(base: str, tmp_path: Path) -> None:
    settings = FinetuningSettings(freeze="embeddings", epochs=1, batch_size=16, precision="fp32")
    prepared(base, "single", settings, recipe=RecipeSettings(learning_rate=1e-3)).train_once(tmp_path / "run", 1)
    before, after = load_any(base).tensors, load_any(tmp_path / "run" / "model").tensors
    for name in before.keys() & after.keys():
        assert torch.equal(before[name], after[name]) == name.startswith("bert.embeddings."), name


def test_the_head_reads_the_vector_on_which_a_linear_model_is_best(base: str) -> None:
    job = prepared(base, "single", FinetuningSettings(reads="probe", precision="fp32"))
    assert job.settings.reads == job.task.spec.reads == job.head.reads
    assert job.head.reads in ("mean", "cls")

    class Told(LinearStart):
        """Vectors that hold the labels in one of the two."""

        best = "cls"

        def _vectors(self, units, reads):
            noise = np.random.default_rng(1).normal(size=(len(units), 4)).astype(np.float32)
            if reads == self.best:
                noise[:, 0] = self.features.targets[units]
            return noise

    for best in ("mean", "cls"):
        told = Told(job.frozen, job.train, 2)
        told.best = best
        assert told.best_reads() == best
    pairs = Told(job.frozen, prepared(base, "pair", FinetuningSettings(precision="fp32")).train, 2)
    for reads in ("pair", "apart"):
        pairs.best = reads
        assert pairs.best_reads() == reads
        assert pairs.best_reads(pairs=False) not in ("pair", "apart")


def test_the_head_reads_texts_apart_where_only_both_texts_together_tell_the_label(base: str) -> None:
    draw = generator(5, "paraphrases")
    words = [*GOOD, *BAD, *PEOPLE, *PLACES]

    def examples(count: int) -> list[Example]:
        examples_made: list[Example] = []
        for number in range(count):
            first, other = draw.choice(words, 2, replace=False).tolist()
            second = first if number % 2 else other
            location = f"line {number + 1}"
            label = "yes" if number % 2 else "no"
            examples_made.append(
                TextExample(id=str(number), first=first, second=second, label=label, location=location)
            )
        return examples_made

    spec = dataclasses.replace(SPECS["on the pair"], reads="pooler")
    data = TaskData(train=examples(300), dev=examples(10))
    job = FinetuningJob.prepare(base, spec, data, FinetuningSettings(reads="probe"), RecipeSettings())
    assert (job.head.reads, job.task.spec.reads, job.settings.reads) == ("apart", "apart", "apart")
    assert job.linear_start.weight.shape == (2, 4 * CONFIG.hidden_size)
    mixed = TaskData(train=examples_of("single", 64), dev=())
    single = FinetuningJob.prepare(base, SPECS["single"], mixed, FinetuningSettings(reads="probe"), RecipeSettings())
    assert single.head.reads not in ("pair", "apart")


@pytest.mark.parametrize(
    ("reads", "kind", "choices"),
    [("pair", "on the pair", "choice on the pair"), ("apart", "on texts apart", "choice on texts apart")],
)
def test_a_pair_is_refused_where_there_is_none(reads: str, kind: str, choices: str, base: str, tmp_path: Path) -> None:
    pairs = FinetuningSettings(reads=reads, precision="fp32")
    with pytest.raises(
        ConfigError, match=rf"two texts each.*{reads}.*sentiment .classification. of single texts.*--reads mean"
    ):
        prepared(base, "single", pairs)
    with pytest.raises(ConfigError, match="of single texts"):
        TaskSpec.from_dict(SPECS[kind].to_dict() | {"pair": None}, "here")
    task = task_for(SPECS[kind])
    alone = dataclasses.replace(examples_of(kind, 1)[0], second=None)
    with pytest.raises(InputError, match="a pair of texts in line 1 of"):
        task.check([alone], gold=False)
    choice = task_for(SPECS[choices])
    with pytest.raises(InputError, match=r"a context in line 1 of.*endings alone"):
        choice.check([dataclasses.replace(examples_of("choice", 1)[0], context=" ")], gold=False)

    class Mine(OwnHead):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden

    data = TaskData(train=examples_of(kind, 16), dev=())
    with pytest.raises(ConfigError, match=rf"a head of your own that reads.*'{reads}', 4 times as wide"):
        FinetuningJob.prepare(base, SPECS[kind], data, pairs, RecipeSettings(), Mine)
    roberta = architecture_samples.write_base_model(tmp_path / "roberta", "roberta")
    with pytest.raises(ConfigError, match=rf"'{reads}' needs .* a segment for each text.*as in RoBERTa.*--reads mean"):
        FinetuningJob.prepare(roberta, SPECS[kind], data, pairs, RecipeSettings())
    probed = FinetuningSettings(reads="probe", precision="fp32")
    job = FinetuningJob.prepare(
        roberta, SPECS["pair"], TaskData(train=examples_of("pair", 16), dev=()), probed, RecipeSettings()
    )
    assert job.head.reads not in ("pair", "apart")


@pytest.mark.parametrize("kind", ["on the pair", "on texts apart"])
@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_an_empty_second_text_gets_finite_numbers_and_does_not_change_its_neighbours(
    architecture: str, kind: str, tmp_path: Path
) -> None:
    start = architecture_samples.write_base_model(tmp_path / "base", architecture)
    data = TaskData(train=examples_of(kind, 16), dev=examples_of(kind, 8, seed=1))
    settings = FinetuningSettings(epochs=1, batch_size=8, precision="fp32")
    FinetuningJob.prepare(start, SPECS[kind], data, settings, RecipeSettings()).train_once(tmp_path / "run", 1)
    predictor = load_predictor(tmp_path / "run" / "model", device="cpu")
    full = examples_of(kind, 3)
    empty = [dataclasses.replace(full[0], second=second) for second in ("", " ")]
    result = [prediction.to_dict()["probabilities"]["yes"] for prediction in predictor.predict([*full, *empty])]
    assert np.isfinite(result).all()
    assert result[3] == result[4]
    alone = [prediction.to_dict()["probabilities"]["yes"] for prediction in predictor.predict(full)]
    np.testing.assert_allclose(result[:3], alone, atol=1e-6)


def test_a_layer_of_tags_is_fitted_to_whole_rows_and_to_no_more_than_it_needs(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = prepared(base, "tags", FinetuningSettings(start="linear", precision="fp32"))
    everything = job.linear_start
    start = LinearStart(job.frozen, job.train, job.head.outputs)
    again = start.layer(job.head)
    np.testing.assert_array_equal(again.weight, everything.weight)
    sizes = []
    of_tokens = FrozenEncoder.token_vectors

    def counted(self, rows, choice, read=None):
        vectors = of_tokens(self, rows, choice, read)
        # The vectors belong to the same tokens as among all rows.
        sizes.append((len(rows), len(vectors), rows.token_ids[read]))
        return vectors

    monkeypatch.setattr(FrozenEncoder, "token_vectors", counted)
    monkeypatch.setattr(linear_start, "MOST_FITTED", 40)
    part = start.layer(job.head)
    (rows, vectors, ids), *_ = sizes
    assert 40 <= vectors < 60
    assert rows < len(job.train.rows)
    assert part.weight.shape == everything.weight.shape
    assert not np.array_equal(part.weight, everything.weight)
    everywhere = job.train.rows.token_ids[job.train.read]
    assert set(ids.tolist()) <= set(everywhere.tolist())


def test_a_pooler_counts_only_where_a_head_was_trained_on_it(base: str, tmp_path: Path) -> None:
    assert pooler_was_trained(load_any(base))  # pre-trained with next sentences
    folder = load_any(base)
    model = load_for_task(folder, task_for(SPECS["single"]).head, keep_head=False).model
    save_pretrained(tmp_path / "encoder", model, folder.require_tokenizer(), ModelMetadata(), trained=("pooler",))
    encoder = load_any(tmp_path / "encoder")
    assert "pooler" in encoder.parts
    assert not pooler_was_trained(encoder)
    job = FinetuningJob.prepare(
        encoder,
        SPECS["choice"],
        TaskData(train=examples_of("choice", 8), dev=()),
        FinetuningSettings(reads="probe"),
        RecipeSettings(),
    )
    assert job.head.reads == "mean"


def test_the_mean_of_rows_is_that_of_each_row_alone() -> None:
    hidden = torch.randn(7, 3, generator=torch.Generator().manual_seed(1))
    result = pool_rows(hidden, (1, 4, 2))
    expected = torch.stack([hidden[:1].mean(0), hidden[1:5].mean(0), hidden[5:].mean(0)])
    torch.testing.assert_close(result, expected)
    assert pool_rows(hidden.bfloat16(), (7,)).dtype == torch.float32


def test_the_pair_of_rows_compares_the_means_of_both_segments() -> None:
    hidden = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    segments = np.array([0, 0, 1, 1, 1, 0, 1, 0])  # the last row has one segment
    batch = Batch.from_flat(np.zeros(8, int), segments, [5, 2, 1])
    pairs = [(hidden[:2].mean(0), hidden[2:5].mean(0)), (hidden[5], hidden[6]), (hidden[7], torch.zeros(3))]
    expected = torch.stack([torch.cat([a, b, (a - b).abs(), a * b]) for a, b in pairs])
    torch.testing.assert_close(pair_of_rows(hidden, batch), expected)
    assert pair_of_rows(hidden.bfloat16(), batch).dtype == torch.float32


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_texts_of_rows_are_encoded_apart_as_rows_of_their_own(architecture: str) -> None:
    config = architecture_samples.config_of(architecture)
    encoder = EncoderForTask(new_encoder(config), task_for(SPECS["on texts apart"]).head, seed=4).eval().encoder
    shake(encoder)
    ids = generator(3, "texts apart").integers(5, 30, 16)
    segments = np.array([0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 0])  # the last row has one segment
    lengths = [7, 3, 5, 1]
    batch = Batch.from_flat(ids, segments, lengths, row_ids=[4, 0, 9, 2])
    apart = batch.texts_apart
    assert list(apart.batch.lengths) == sorted(apart.batch.lengths)
    assert [apart.batch.lengths[position] for position in apart.places] == [4, 4, 1, 3, 4, 2, 1, 1]
    with torch.inference_mode():
        result = apart_of_rows(encoder(apart.batch), batch)
        for row, end in enumerate(np.cumsum(lengths)):
            tokens, of = ids[end - lengths[row] : end], segments[end - lengths[row] : end]
            texts = tokens[of == 0], np.concatenate([tokens[:1], tokens[of == 1]])
            a, b = (encoder(Batch.from_rows([text])).mean(0) for text in texts)
            expected = torch.cat([a, b, (a - b).abs(), a * b])
            torch.testing.assert_close(result[row], expected, rtol=1e-6, atol=1e-6)


def test_both_texts_of_a_row_have_noise_of_their_own_that_depends_on_the_row_alone() -> None:
    def kept(row_ids: list[int], places: tuple[int, ...], sizes: list[int]) -> list[torch.Tensor]:
        parts = NoiseOfTexts(RowNoise(1, 2, row_ids), places).keep(0.5, sizes, torch.float32).split(sizes)
        return [parts[position] for position in places]

    first, second, *_ = together = kept([7, 3], (2, 1, 0, 3), [64, 64, 64, 100])
    assert [len(part) for part in together] == [64, 64, 64, 100]
    assert not torch.equal(first, second)
    for alone, part in zip([*kept([7], (0, 1), [64, 64]), *kept([3], (0, 1), [64, 100])], together, strict=True):
        torch.testing.assert_close(alone, part)


def test_the_card_says_how_to_run_a_head_that_transformers_does_not_have(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    for kind, reads in (("single", "mean"), ("single", "cls"), ("on the pair", "pair")):
        settings = FinetuningSettings(reads=reads, epochs=0.1, precision="fp32")
        folder = prepared(base, kind, settings).train_once(tmp_path / reads, 1) and tmp_path / reads / "model"
        assert read_json(folder / "config.json")["architectures"] == ["BertsmithForSequenceClassification"]
        (code,) = re.findall(
            r"In `transformers`:\n\n```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL
        )
        monkeypatch.chdir(folder)
        names: dict[str, object] = {}
        exec(code, names)
        text, second = "it was a poor and awful plot of the one film", "in one good plot"
        texts = {"text": text, "text_pair": second} if reads == "pair" else text
        there = {record["label"]: record["score"] for record in names["model"]([texts])[0]}
        predictor = load_predictor(folder, device="cpu")
        example = dataclasses.replace(
            examples_of("single", 1)[0], first=text, second=second if reads == "pair" else None
        )
        (here,) = predictor.predict([example])
        np.testing.assert_allclose([there[label] for label in SPECS[kind].labels], here.probabilities, atol=1e-5)


def test_an_older_folder_has_a_head_on_the_pooler() -> None:
    values = SPECS["single"].to_dict()
    del values["reads"]
    assert TaskSpec.from_dict(values, "here").reads == "pooler"
    with pytest.raises(ConfigError, match=f"'middle'; use one of {', '.join(map(repr, sorted(READS)))}"):
        TaskSpec.from_dict(values | {"reads": "middle"}, "here")


def test_every_metric_of_a_task_can_be_chosen_and_no_other(base: str, mails: Path, tmp_path: Path) -> None:
    assert with_metric(SPECS["single"], "matthews").metrics == ("accuracy", "matthews")
    assert with_metric(SPECS["pair"], "accuracy").metric == "accuracy"
    assert "f1" not in metrics_of(dataclasses.replace(SPECS["single"], labels=("a", "b", "c")))
    with pytest.raises(ConfigError, match=r"unknown metric of sentiment: 'macro-f1'; did you mean '?macro_f1"):
        with_metric(SPECS["single"], "macro-f1")
    for kind, spec in SPECS.items():
        task, examples = task_for(spec), examples_of(kind, 4)
        assert spec.unanswerable or set(spec.metrics) <= set(metrics_of(spec))
        for name in metrics_of(spec):
            chosen = task_for(with_metric(spec, name))
            assert chosen.selection_metric == name or spec.kind == "span"
        task.check(examples, gold=True)
    with quiet():
        result = run_command(
            base, "classification", tmp_path / "run", train=mails, metric="macro_f1", seeds=1, epochs=0.1
        )
    assert result.report["metric"] == "macro_f1"
    assert set(result.report["scores"]) == {"accuracy", "macro_f1"}


def test_balanced_weights_make_rare_labels_count_as_much(base: str) -> None:
    data = TaskData(train=examples_of("single", 8)[:5], dev=())  # three of one label, two of the other
    plain = FinetuningJob.prepare(base, SPECS["single"], data, FinetuningSettings(precision="fp32"), RecipeSettings())
    settings = FinetuningSettings(precision="fp32", class_weights="balanced")
    even = FinetuningJob.prepare(base, SPECS["single"], data, settings, RecipeSettings())
    before, after = _label_losses(plain), _label_losses(even)
    assert after["positive"] == pytest.approx(before["positive"] * 5 / 6)
    assert after["negative"] == pytest.approx(before["negative"] * 5 / 4)
    with pytest.raises(ConfigError, match="one label for each example"):
        prepared(base, "several labels", settings)
    with pytest.raises(ConfigError, match="one label for each example"):
        prepared(base, "number", settings)


def _label_losses(job: FinetuningJob) -> dict[str, float]:
    """The summed loss of the examples of each label."""
    model = load_for_task(job.folder, job.head, keep_head=False, seed=1).model
    work = Finetuning(model, job.task, job.train, None, job.tokenizer, job.settings, job.runtime, seed=1)
    losses = dict.fromkeys(job.task.spec.labels, 0.0)
    for number, example in enumerate(job.data.train):
        work.settings = dataclasses.replace(job.settings, batch_size=1)
        step = next(step for step in range(99) if work.units_of_step(step).tolist() == [number])
        for batch in work.plan(step, 0, 1).micro_batches:
            model.eval()
            logits = model(batch.batch, read=batch.read)
            losses[str(example.label)] += float(job.task.loss(logits, batch)[0].detach())
    return losses


def test_a_threshold_is_fitted_for_the_metric_and_used_everywhere(base: str, tmp_path: Path) -> None:
    spec = dataclasses.replace(
        with_metric(SPECS["single"], "matthews"),
        settings=dataclasses.replace(SPECS["single"].settings, tune_threshold=True),
    )
    dev = examples_of("single", 30, seed=1)
    data = TaskData(train=examples_of("single", 40), dev=dev)
    settings = FinetuningSettings(batch_size=8, epochs=1, precision="fp32", baselines=False)
    result = finetune(base, spec, data, tmp_path / "run", settings, RecipeSettings(learning_rate=1e-3), seeds=1)
    threshold = result.spec.threshold
    assert 0 < threshold < 1
    assert result.report["threshold"] == threshold
    predictor = load_predictor(tmp_path / "run" / "model", device="cpu")
    fitted, predictions = predictor.evaluate(dev)
    for prediction in predictions:
        assert prediction.label == ("positive" if prediction.probabilities[1] >= threshold else "negative")
        assert prediction.chosen == (prediction.label,)
    plain = task_for(dataclasses.replace(predictor.task.spec, threshold=None))
    logits = task_logits(predictor.model, plain.encode(dev, predictor.tokenizer), predictor.runtime)
    usual = plain.score(dev, plain.decode(dev, plain.encode(dev, predictor.tokenizer), logits, predictor.tokenizer))
    assert fitted["matthews"] >= usual["matthews"]
    # The reported score comes from thresholds that were fitted to other examples.
    crossed = task_for(spec).cross_fitted(dev, predictions)
    assert result.runs[0].scores["matthews"] == pytest.approx(task_for(spec).score(dev, crossed)["matthews"])


def test_a_threshold_of_many_labels_is_ignored_with_a_word(base: str) -> None:
    tuned = dataclasses.replace(SPECS["single"].settings, tune_threshold=True)
    spec = dataclasses.replace(SPECS["single"], labels=("a", "b", "c"), settings=tuned)
    assert task_for(spec).ignored_settings() == ["tune_threshold"]
    why = task_for(spec).why_ignored("tune_threshold")
    assert why == "the threshold decides between two labels, and this task has 3"
    assert task_for(spec).cross_fitted([], []) is None
    number = task_for(dataclasses.replace(SPECS["number"], settings=tuned))
    assert number.ignored_settings() == ["tune_threshold"]
    assert number.why_ignored("tune_threshold") == f"it has no effect on {number.spec.title}"


def test_a_few_dev_examples_with_one_answer_are_no_collapse_if_training_examples_differ(
    base: str, tmp_path: Path
) -> None:
    dev = examples_of("single", 2, seed=1)
    swapped = [dataclasses.replace(dev[0], label="positive"), dataclasses.replace(dev[0], label="negative")]
    data = TaskData(train=examples_of("single", 64), dev=swapped)
    settings = FinetuningSettings(start="linear", reads="mean", epochs=4, precision="fp32", baselines=False)
    recipe = RecipeSettings(learning_rate=1e-3, bias_correction=True, keep="last")
    assert (
        not FinetuningJob.prepare(base, SPECS["single"], data, settings, recipe).train_once(tmp_path / "a", 1).collapsed
    )
    best = dataclasses.replace(recipe, keep="best")
    assert FinetuningJob.prepare(base, SPECS["single"], data, settings, best).train_once(tmp_path / "b", 1).collapsed


def test_the_command_takes_a_recipe_and_names_the_nearest(
    base: str, mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bertsmith.app.cli.entry import main

    words = f"bertsmith finetune --model {base} --task classification --train {mails} --out {tmp_path / 'run'}"
    monkeypatch.setattr(sys, "argv", [*words.split(), "--recipe", "nosuch"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert "unknown recipe 'nosuch'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_layer_on_a_pooler_that_nothing_trained_starts_at_random(tmp_path: Path) -> None:
    folder = load_any(architecture_samples.write_base_model(tmp_path / "base", "elmo"))
    folder = dataclasses.replace(
        folder, tensors={name: tensor for name, tensor in folder.tensors.items() if "pooler" not in name}
    )
    situation = situation_of("sst-2", "classification", 100, folder)
    assert resolved("auto", situation, {})["start"] == "linear"
    assert "start" not in resolved("auto", situation, {"reads": "pooler"})
    for reads in ("pooler", None):
        with pytest.raises(ConfigError, match=r"a trained pooler, for a linear start .*; found one without"):
            require_base(folder, FinetuningSettings(start="linear", reads=reads), pooled=True)
    require_base(folder, FinetuningSettings(start="linear", reads="cls"), pooled=True)
