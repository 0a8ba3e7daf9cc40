"""The perplexity of texts: each piece is predicted once, from those before it or from those after it."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.predictors.perplexity import Perplexity, perplexities
from bertsmith.models.checkpoints.assembly import untrained
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch
from bertsmith.tasks.datasets.examples import named_texts
from bertsmith.tasks.encoding.forward import TorchEngine
from inference.test_completion import engine_of, model_of
from model.examples import shake
from tasks.architecture_samples import config_of
from tasks.task_samples import TOKENIZER


@torch.no_grad()
def losses(architecture: str, ids: list[int]) -> list[float]:
    """The loss of each of these pieces after [CLS] and all pieces before it."""
    row = np.array([TOKENIZER.vocabulary.cls_id, *ids])
    batch = Batch.from_rows([row])
    logits = model_of(architecture)(batch, masked=torch.arange(len(ids))).mlm_logits
    return F.cross_entropy(logits, torch.tensor(ids), reduction="none").tolist()


@pytest.mark.parametrize("architecture", ["bert", "openai-gpt"])
def test_every_piece_is_predicted_from_those_before_it(architecture: str) -> None:
    texts = ["the good film", "", "xyzzy the", "and one film it"]
    result = perplexities(engine_of(architecture), TOKENIZER, named_texts(texts))
    for text, perplexity in zip(texts, result, strict=True):
        ids = TOKENIZER.encode(text).tolist()
        assert (perplexity.pieces, perplexity.words, perplexity.characters) == (len(ids), len(text.split()), len(text))
        assert perplexity.unknown == ids.count(TOKENIZER.vocabulary.unk_id)
        wanted = sum(losses(architecture, ids)) if ids else 0.0
        assert perplexity.nll == pytest.approx(wanted, rel=1e-5)
    assert math.isnan(result[1].perplexity)
    assert result[1].to_dict()["perplexity"] is None
    assert result[0].perplexity == pytest.approx(math.exp(result[0].nll / result[0].pieces))
    total = Perplexity.of_all(result)
    assert total.nll == pytest.approx(sum(perplexity.nll for perplexity in result))
    assert total.word_perplexity == pytest.approx(math.exp(total.nll / 9))
    assert total.bits_per_character == pytest.approx(total.nll / math.log(2) / sum(map(len, texts)))


@pytest.mark.parametrize("length", [63, 64, 94, 95, 200])
def test_a_long_text_is_read_in_windows_that_overlap_by_half(length: int) -> None:
    engine, rng = engine_of("openai-gpt"), np.random.default_rng(length)
    text = " ".join(rng.choice(["the", "good", "film", "a"], length))
    ids = TOKENIZER.encode(text).tolist()
    assert len(ids) == length
    room, half = engine.max_tokens - 1, (engine.max_tokens - 1) // 2
    wanted = losses("openai-gpt", ids[:room])
    while len(wanted) < length:
        begin = len(wanted) - half
        wanted += losses("openai-gpt", ids[begin : begin + room])[half:]
    (result,) = perplexities(engine, TOKENIZER, named_texts([text]))
    assert result.pieces == length == len(wanted)
    assert result.nll == pytest.approx(sum(wanted), rel=1e-5)


def backward_model(architecture: str) -> EncoderForPreTraining:
    """ELMo as it is, or an AWD-LSTM that reads from right to left."""
    if architecture == "elmo":
        return model_of("elmo")
    config = dataclasses.replace(config_of(architecture, dropout=0.0), direction="backward")
    model = untrained(config, 3, TOKENIZER.vocabulary)
    shake(model)
    return model.eval()


@torch.no_grad()
def slow_losses(model: EncoderForPreTraining, ids: list[int], room: int, *, backward: bool) -> list[float]:
    """The loss of each piece, by a pass over what the model may see of the text, and nothing else.

    The windows are followed from one end of the text to the other, a piece at a time.
    """
    special = TOKENIZER.vocabulary.sep_id if backward else TOKENIZER.vocabulary.cls_id
    order = ids[::-1] if backward else ids
    losses, begin, end = [], 0, room
    for number, piece in enumerate(order):
        if number == end:
            begin, end = end - room // 2, end - room // 2 + room
        seen = [special, *order[begin:number]]
        batch = Batch.from_rows([np.array(seen[::-1] if backward else seen)])
        if backward and model.config.two_directions:
            logits = model(batch, backward=batch.first_positions).backward_logits
        else:
            logits = model(batch, masked=batch.first_positions if backward else batch.last_positions).mlm_logits
        losses.append(float(F.cross_entropy(logits, torch.tensor([piece]))))
    return losses


@pytest.mark.parametrize("architecture", ["elmo", "awd-lstm"])
@pytest.mark.parametrize("length", [1, 5, 63, 64, 100])
def test_every_piece_is_predicted_from_those_after_it(architecture: str, length: int) -> None:
    model, rng = backward_model(architecture), np.random.default_rng(length)
    texts = [" ".join(rng.choice(["the", "good", "film", "a", "xyzzy"], length)), "", "the good film"]
    engine = TorchEngine(model, choose("cpu", "fp32"))
    result = perplexities(engine, TOKENIZER, named_texts(texts))
    room = engine.max_tokens - 1
    assert room == 63 or architecture == "awd-lstm"
    for text, example in zip(texts, result, strict=True):
        ids = TOKENIZER.encode(text).tolist()
        if architecture == "elmo":
            assert example.direction == "forward"
            assert example.nll == pytest.approx(sum(slow_losses(model, ids, room, backward=False)), rel=1e-5)
            example = example.backward
        assert (example.direction, example.backward) == ("backward", None)
        assert (example.pieces, example.words, example.characters) == (len(ids), len(text.split()), len(text))
        assert example.unknown == ids.count(TOKENIZER.vocabulary.unk_id)
        assert example.nll == pytest.approx(sum(slow_losses(model, ids, room, backward=True)), rel=1e-5)


def test_both_directions_are_summed_up_apart() -> None:
    result = perplexities(engine_of("elmo"), TOKENIZER, named_texts(["the good film", "", "and one film it"]))
    total = Perplexity.of_all(result)
    assert total.nll == pytest.approx(sum(perplexity.nll for perplexity in result))
    assert total.backward.nll == pytest.approx(sum(perplexity.backward.nll for perplexity in result))
    assert total.nll != pytest.approx(total.backward.nll, rel=1e-3)
    shown = total.to_dict()
    assert shown["backward"] == total.backward.to_dict()
    assert shown["backward"]["perplexity"] == pytest.approx(math.exp(total.backward.nll / 7))
    assert (shown["direction"], shown["backward"]["direction"]) == ("forward", "backward")


def test_a_model_that_sees_the_piece_is_refused() -> None:
    engine = TorchEngine(untrained(config_of("bert"), 1), choose("cpu", "fp32"))
    with pytest.raises(CheckpointError, match="a bidirectional one, which sees it"):
        perplexities(engine, TOKENIZER, named_texts(["a"]))
