"""Where a run's settings come from (sizes, configuration files, models), and what it refuses."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from bertsmith.app.library.training import pretrain as library_pretrain
from bertsmith.base.core.errors import BertsmithError, CheckpointError, ConfigError, CorpusError, TrainingError
from bertsmith.base.machine.runtime import Runtime
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.models.checkpoints.assembly import load_pretrained, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import BertConfig
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.pretraining import run as run_module
from bertsmith.training.pretraining.run import PretrainingRunSettings, pretrain, settings_of_run
from bertsmith.training.pretraining.settings import PretrainingDataSettings
from corpus.samples import write_corpus

VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"a b c d e f g h .".split()])
SHAPE = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("settings")
    rng = np.random.default_rng(0)
    # The held-out documents are not like the others: their frequencies differ.
    documents = [
        "\n".join(" ".join(rng.choice(list("abcdefgh"), 6, p=[0.3, *[0.1] * 7])) for _ in range(5)) for _ in range(30)
    ]
    return write_corpus(folder, documents, WordPieceTokenizer(VOCABULARY, TextRules()), held_out=0.2)


@pytest.fixture
def config_file(tmp_path) -> Path:
    path = tmp_path / "config.json"
    fields = {"hidden_dropout_prob": 0.0, "position_embedding_type": "sinusoidal"}
    path.write_text(json.dumps({**SHAPE, **fields}), encoding="utf-8")
    return path


def run(corpus: Path, out: Path, *, data=None, train=None, **settings: object):
    return pretrain(
        corpus,
        out,
        PretrainingRunSettings(
            **{"rows_per_step": 4, "evaluation_rows": 8, "device": "cpu", "precision": "fp32", **settings}
        ),
        PretrainingDataSettings(**{"max_length": 24, **(data or {})}),
        TrainSettings(**{"steps": 2, **(train or {})}),
    )


def test_the_values_of_a_configuration_file_are_kept(corpus, config_file, tmp_path):
    run(corpus, tmp_path / "run", config=str(config_file))
    config = load_pretrained(load_any(tmp_path / "run" / "model")).model.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.0, 0.1)
    assert config.position_embedding_type == "sinusoidal"
    run(corpus, tmp_path / "other", config=str(config_file), dropout=0.3)
    assert load_pretrained(load_any(tmp_path / "other" / "model")).model.config.hidden_dropout_prob == 0.3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "one of a model size"),
        ({"size": "tiny", "init": "somewhere"}, "size and init"),
        ({"init": "somewhere", "positions": "none"}, "--positions needs --size; "),
        ({"size": "tiny", "dropout": 1.0}, "dropout"),
        ({"size": "tiny", "long_share": 0.0}, "long_share"),
    ],
)
def test_contradicting_settings_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        PretrainingRunSettings(**settings)


@pytest.mark.parametrize(
    "values", [{"minutes": math.inf}, {"steps": 1, "learning_rate": math.inf}, {"minutes": math.nan}]
)
def test_infinite_numbers_are_refused(values):
    with pytest.raises(ConfigError):
        TrainSettings(**values)


def test_invalid_files_and_sizes_are_refused_in_one_line(corpus, tmp_path):
    as_list, huge = tmp_path / "list.json", tmp_path / "huge.json"
    as_list.write_text("[1, 2]", encoding="utf-8")
    huge.write_text(json.dumps({**SHAPE, "hidden_size": 10**8, "num_attention_heads": 1}), encoding="utf-8")
    for settings, words in (
        ({"config": str(as_list)}, "JSON object"),
        ({"config": str(huge)}, "fits into the memory"),
        ({"config": str(tmp_path / "none.json")}, "no such file"),
    ):
        with pytest.raises(BertsmithError, match=words):
            run(corpus, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_an_altered_shard_is_refused_by_name_before_training(corpus, config_file, tmp_path):
    copy = tmp_path / "corpus"
    for path in corpus.rglob("*"):
        if path.is_file():
            (copy / path.relative_to(corpus)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(corpus)).write_bytes(path.read_bytes())
    shard = copy / "shard-00000.arrow"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorpusError, match=r"shard-00000\.arrow"):
        run(copy, tmp_path / "run", config=str(config_file))


def test_a_model_with_nan_parameters_is_not_written(corpus, config_file, tmp_path):
    """One step at an absurd learning rate leaves NaN parameters."""
    with pytest.raises(TrainingError, match="lower"):
        run(
            corpus,
            tmp_path / "run",
            config=str(config_file),
            train={"steps": 1, "learning_rate": 1e39, "schedule": "constant", "warmup_steps": 0},
        )
    assert not (tmp_path / "run" / "model").exists()


def test_a_precision_that_would_be_emulated_is_replaced_with_a_warning(corpus, config_file, tmp_path, capsys):
    run(corpus, tmp_path / "run", config=str(config_file), precision="fp16")
    assert "fp16 would be emulated" in capsys.readouterr().err
    load_pretraining_heads(str(tmp_path / "run" / "model"), device="cpu", precision="fp16")
    assert "so fp32 is used" in capsys.readouterr().err


def test_a_left_to_right_model_fills_no_masks(tmp_path):
    model = untrained(BertConfig(**SHAPE, is_causal=True), seed=0)
    save_pretrained(
        tmp_path / "model",
        model,
        WordPieceTokenizer(VOCABULARY, TextRules()),
        ModelMetadata.from_dict({}),
        trained=("mlm",),
    )
    with pytest.raises(CheckpointError, match="found a language model"):
        load_pretraining_heads(str(tmp_path / "model"), device="cpu").fill("a [MASK] c")


def test_the_held_out_line_is_the_loss_of_the_corpus_frequencies_on_held_out_text(corpus, config_file, tmp_path):
    result = run(corpus, tmp_path / "run", config=str(config_file))
    opened = Corpus.open(corpus)
    held_out = opened.held_out()
    counts = np.zeros(len(VOCABULARY)) + 1
    for document in range(opened.num_documents):
        for piece in opened.document_tokens(document).tolist():
            counts[piece] += 1
    losses = [
        -math.log(counts[piece] / counts.sum())
        for document in range(held_out.num_documents)
        for piece in held_out.document_tokens(document).tolist()
    ]
    assert result.metrics["held_out_unigram_entropy"] == pytest.approx(np.mean(losses))


def test_long_rows_have_their_own_figures(corpus, config_file, tmp_path):
    result = run(corpus, tmp_path / "run", config=str(config_file), long_length=40)
    assert result.metrics["held_out_long_mlm_loss"] > 0
    assert result.metrics["held_out_mlm_loss"] > 0


def test_a_run_resumes_after_its_corpus_was_moved(corpus, config_file, tmp_path):
    run(corpus, tmp_path / "run", config=str(config_file))
    other = tmp_path / "linked"
    other.symlink_to(corpus)
    result = pretrain(
        other,
        tmp_path / "run",
        PretrainingRunSettings(
            config=str(config_file), rows_per_step=4, evaluation_rows=8, device="cpu", precision="fp32"
        ),
        PretrainingDataSettings(max_length=24),
        TrainSettings(steps=2),
        resume=True,
    )
    assert result.steps == 2


def test_fp16_is_refused_where_the_hardware_has_it(corpus, config_file, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "choose", lambda *_: Runtime(device="cpu", precision="fp16"))
    with pytest.raises(ConfigError, match="found fp16, whose gradients underflow without loss scaling"):
        run(corpus, tmp_path / "run", config=str(config_file))
    assert not (tmp_path / "run").exists()


def test_a_compiled_run_is_resumed_as_one(corpus, config_file, tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(run_module, "compile_layers", lambda encoder, device: compiled.append(device))
    run(corpus, tmp_path / "plain", config=str(config_file))
    assert RunFolder.open(tmp_path / "plain").record["settings"]["run"]["compile"] is False
    assert compiled == []
    run(corpus, tmp_path / "run", config=str(config_file), compile=True)
    assert compiled == ["cpu"]
    assert settings_of_run(tmp_path / "run")[1].compile
    with pytest.raises(BertsmithError, match="compile"):
        library_pretrain(corpus, tmp_path / "run", resume=True, compile=False)
