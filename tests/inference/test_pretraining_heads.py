"""Predictions of a pre-trained model: filled masks and continuations."""

from pathlib import Path

import pytest
import torch

from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.inference.predictors.pretraining_heads import PretrainedPredictor
from bertsmith.models.checkpoints.assembly import load_pretrained, save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from model.examples import small_config

VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the a man dog went sat ran to on . ,".split()])
CONFIG = small_config(
    vocab_size=len(VOCABULARY), num_attention_heads=2, intermediate_size=64, max_position_embeddings=16
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model"
    save_pretrained(
        path,
        untrained(CONFIG, seed=4),
        WordPieceTokenizer(VOCABULARY, TextRules()),
        ModelMetadata.from_dict({"task": "pretraining"}),
    )
    return path


@pytest.fixture(scope="module")
def predictor(folder) -> PretrainedPredictor:
    return load_pretraining_heads(str(folder), device="cpu")


def test_every_mask_of_a_text_gets_its_own_candidates(predictor):
    """Probabilities over the whole vocabulary, most likely first."""
    gaps = predictor.fill("the [MASK] went to [MASK] .", top=100)
    assert len(gaps) == 2
    for gap in gaps:
        chances = [filling.probability for filling in gap]
        assert {filling.piece for filling in gap} == set(VOCABULARY.pieces)
        assert sum(chances) == pytest.approx(1, abs=1e-5)
        assert chances == sorted(chances, reverse=True)
    assert len(predictor.fill("the [MASK] ran .", top=3)[0]) == 3


def test_a_pair_gets_the_same_score_alone_and_among_others(predictor):
    """Each candidate has its own probability, whatever pairs are next to it."""
    candidates = ["a dog ran .", "the man sat on a dog , the dog ran .", "the man"]
    together = predictor.next_sentence("the man went to a dog .", candidates)
    for candidate, score in zip(candidates, together, strict=True):
        alone = predictor.next_sentence("the man went to a dog .", [candidate])[0]
        assert score.text == candidate
        assert score.probability == pytest.approx(alone.probability, abs=BATCH_TOLERANCE)
    assert [score.cut_tokens for score in together] == [0, 5, 0], "16 positions hold 13 pieces of text"


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda p: p.fill("the man sat ."), r"a \[MASK\] in text 1"),
        (lambda p: p.fill("[MASK] " + "the dog " * 20), "at most 14 pieces"),
        (lambda p: p.next_sentence("the man", ["  "]), "an empty one"),
        (lambda p: p.next_sentence("", ["the man"]), "an empty one"),
    ],
)
def test_invalid_inputs_are_refused_in_one_line(predictor, ask, words):
    with pytest.raises(InputError, match=words):
        ask(predictor)


def test_a_model_without_the_head_that_is_needed_says_so(folder, tmp_path):
    loaded = load_pretrained(load_any(folder))
    save_pretrained(tmp_path / "mlm", loaded.model, loaded.tokenizer, ModelMetadata.from_dict({}), trained=("mlm",))
    assert load_pretrained(load_any(tmp_path / "mlm")).new_heads == ("nsp", "pooler")
    load_pretraining_heads(str(tmp_path / "mlm"), needs=["mlm"])
    with pytest.raises(CheckpointError, match=r"trained nsp head .* pretrain CORPUS --init MODEL --objective nsp"):
        load_pretraining_heads(str(tmp_path / "mlm"), needs=["nsp"])


def test_a_loaded_model_has_the_saved_parameters_and_a_seeded_start_elsewhere(folder, tmp_path):
    loaded = load_pretrained(load_any(folder))
    assert loaded.new_heads == ()
    for name, value in untrained(CONFIG, seed=4).state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value), name
    save_pretrained(tmp_path / "bare", loaded.model, loaded.tokenizer, ModelMetadata.from_dict({}), trained=())
    first, other = (load_pretrained(load_any(tmp_path / "bare"), seed=seed).model for seed in (1, 2))
    assert torch.equal(first.encoder.layers[1].key.weight, other.encoder.layers[1].key.weight)
    assert not torch.equal(first.mlm.transform.weight, other.mlm.transform.weight)


def test_changes_that_would_reshape_a_model_are_refused(folder):
    with pytest.raises(ConfigError, match="do not change the sizes"):
        load_pretrained(load_any(folder), changes={"hidden_size": 64})
    assert (
        load_pretrained(load_any(folder), changes={"hidden_dropout_prob": 0.3}).model.config.hidden_dropout_prob == 0.3
    )


def test_low_precision_errors_are_no_larger_than_they_must_be(predictor):
    """The error of bf16 predictions is about one rounding of the logits."""
    text = "the [MASK] went to a [MASK] ."
    exact, rough = (
        predictor.fill(text, top=16),
        PretrainedPredictor(
            predictor.model, predictor.tokenizer, predictor.runtime.__class__(device="cpu", precision="bf16")
        ).fill(text, top=16),
    )
    for gap, other in zip(exact, rough, strict=True):
        chances = {filling.piece: filling.probability for filling in other}
        assert all(filling.probability == pytest.approx(chances[filling.piece], abs=5e-3) for filling in gap)


def test_an_encoder_is_initialized_the_same_alone_and_under_its_heads():
    alone, whole = TransformerEncoder(CONFIG, seed=4), untrained(CONFIG, seed=4)
    for name, value in alone.state_dict().items():
        assert torch.equal(value, whole.encoder.state_dict()[name]), name


def test_a_model_of_sentence_order_says_that_it_judges_order(tmp_path, predictor):
    assert predictor.next_sentence("the man", ["went"])[0].to_dict()["relation"] == "follows"
    info = {"task": "pretraining", "objective": "mlm+sop"}
    tokenizer = WordPieceTokenizer(VOCABULARY, TextRules())
    save_pretrained(tmp_path / "m", untrained(CONFIG, seed=4), tokenizer, ModelMetadata.from_dict(info))
    result = load_pretraining_heads(str(tmp_path / "m"), device="cpu").next_sentence("the man", ["went"])
    assert result[0].to_dict()["relation"] == "in order"
