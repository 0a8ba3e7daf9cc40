"""What a language model expects next: candidates, continuations, and how they are chosen."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith import load
from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.export.conversion import export
from bertsmith.inference.predictors.completion import SamplingSettings, complete, sampled
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.batch import Batch
from bertsmith.tasks.datasets.examples import named_texts
from bertsmith.tasks.encoding.forward import TorchEngine
from model.examples import shake
from tasks.architecture_samples import config_of, tokenizer_of
from tasks.task_samples import TOKENIZER

TEXTS = ["the good film", "", "a bad", "the the the and one film it a the"]
LEFT_TO_RIGHT = ("bert", "openai-gpt", "awd-lstm", "elmo")


def model_of(architecture: str) -> EncoderForPreTraining:
    config = config_of(architecture, dropout=0.0)
    if architecture == "bert":
        config = dataclasses.replace(config, is_causal=True)
    model = untrained(config, 3, TOKENIZER.vocabulary)
    shake(model)
    return model.eval()


def engine_of(architecture: str) -> TorchEngine:
    return TorchEngine(model_of(architecture), choose("cpu", "fp32"))


@torch.no_grad()
def next_logits(architecture: str, ids: list[int]) -> np.ndarray:
    """The scores of the piece after [CLS] and these, from one plain pass."""
    row = np.array([TOKENIZER.vocabulary.cls_id, *ids])
    batch = Batch.from_rows([row])
    return model_of(architecture)(batch, masked=batch.last_positions).mlm_logits[0].numpy()


@pytest.mark.parametrize("architecture", LEFT_TO_RIGHT)
def test_the_candidates_are_those_of_a_plain_pass_and_the_greedy_continuation_follows_them(architecture: str) -> None:
    vocabulary = TOKENIZER.vocabulary
    result = complete(engine_of(architecture), TOKENIZER, named_texts(TEXTS), top=4, tokens=6)
    assert [completion.text for completion in result] == TEXTS
    for text, completion in zip(TEXTS, result, strict=True):
        ids = TOKENIZER.encode(text).tolist()
        shares = torch.from_numpy(next_logits(architecture, ids)).softmax(0).numpy()
        assert [vocabulary.index[item.piece] for item in completion.next] == np.argsort(-shares)[:4].tolist()
        np.testing.assert_allclose([item.probability for item in completion.next], np.sort(shares)[::-1][:4], rtol=1e-4)
        expected: list[int] = []
        while len(expected) < 6:
            logits = next_logits(architecture, ids + expected)
            logits[[vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.mask_id]] = -np.inf
            if int(logits.argmax()) == vocabulary.sep_id:
                break
            expected.append(int(logits.argmax()))
        assert [vocabulary.index[item.piece] for item in completion.pieces] == expected
        assert completion.has_ended == (len(expected) < 6)
        assert TOKENIZER.encode(completion.text + completion.continuation).tolist() == ids + expected


@pytest.mark.parametrize("architecture", LEFT_TO_RIGHT)
@pytest.mark.parametrize("sampling", [SamplingSettings(), SamplingSettings(temperature=1.5, seed=4)])
def test_with_the_memory_it_continues_as_without(architecture: str, sampling: SamplingSettings) -> None:
    engine = engine_of(architecture)
    options = {"tokens": 12, "sampling": sampling}
    known, plain = (
        complete(engine, TOKENIZER, named_texts(TEXTS), **options, remembers=remembers) for remembers in (True, False)
    )
    assert [completion.continuation for completion in known] == [completion.continuation for completion in plain]
    for completion, other in zip(known, plain, strict=True):
        chances = [item.probability for item in other.pieces]
        np.testing.assert_allclose([item.probability for item in completion.pieces], chances, rtol=1e-4)
    assert any(completion.pieces for completion in known)


def test_a_continuation_depends_on_the_seed_and_not_on_other_texts() -> None:
    engine = engine_of("openai-gpt")

    def drawn(texts: list[str], seed: int) -> list[str]:
        sampling = SamplingSettings(temperature=1.0, seed=seed)
        return [
            completion.continuation
            for completion in complete(engine, TOKENIZER, named_texts(texts), tokens=9, sampling=sampling)
        ]

    assert drawn(TEXTS, 5) == [drawn([text], 5)[0] for text in TEXTS] == drawn(TEXTS, 5)
    assert drawn(TEXTS, 5) != drawn(TEXTS, 6)


def test_pieces_are_drawn_with_their_probabilities_and_only_among_those_allowed() -> None:
    logits = np.log(np.array([0.05, 0.4, 0.3, 0.15, 0.1], dtype=np.float32))

    def counts(**settings: float) -> np.ndarray:
        drawn = [sampled(SamplingSettings(**settings, seed=seed), logits, 0) for seed in range(2000)]
        return np.bincount(drawn, minlength=5) / 2000

    np.testing.assert_allclose(counts(temperature=1.0), [0.05, 0.4, 0.3, 0.15, 0.1], atol=0.04)
    np.testing.assert_allclose(counts(top_k=2), [0, 4 / 7, 3 / 7, 0, 0], atol=0.04)
    # 0.4 + 0.3 + 0.15 is the first sum of at least 0.8.
    np.testing.assert_allclose(counts(top_p=0.8), [0, 0.4 / 0.85, 0.3 / 0.85, 0.15 / 0.85, 0], atol=0.04)
    sharp = np.exp(logits / 0.5)
    np.testing.assert_allclose(counts(temperature=0.5), sharp / sharp.sum(), atol=0.04)
    assert counts(temperature=0.0)[1] == counts(top_k=1)[1] == counts(top_p=0.01)[1] == 1
    first = [sampled(SamplingSettings(top_k=3, seed=1), logits, number) for number in range(30)]
    assert len(set(first)) == 3, "each draw has a number of its own"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "temperature must be at least 0"),
        ({"temperature": math.nan}, "finite|temperature"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"temperature": 0.0, "top_k": 3}, "needs a temperature above 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SamplingSettings(**settings)


def test_texts_that_do_not_fit_and_other_models_are_refused() -> None:
    engine = engine_of("openai-gpt")
    complete(engine, TOKENIZER, named_texts(["the " * 60]), tokens=4)
    with pytest.raises(InputError, match=r"at most 59 pieces.* with 5 more, in text 2; found 60; shorten the text"):
        complete(engine, TOKENIZER, named_texts(["a", "the " * 60]), tokens=5)
    masked = TorchEngine(untrained(config_of("bert"), 1), choose("cpu", "fp32"))
    with pytest.raises(CheckpointError, match=r"predicts the next piece; found a bidirectional one"):
        complete(masked, TOKENIZER, named_texts(["a"]))
    assert complete(engine, TOKENIZER, named_texts([])) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gpt") / "model"
    info = ModelMetadata.from_dict({"task": "pretraining"})
    save_pretrained(path, model_of("openai-gpt"), tokenizer_of("openai-gpt"), info)
    return path


def test_the_library_and_an_onnx_export_say_the_same(folder: Path, tmp_path: Path) -> None:
    model = load(folder, device="cpu")
    assert model.abilities[:2] == ("complete", "perplexity")
    wanted = complete(engine_of("openai-gpt"), TOKENIZER, named_texts(TEXTS), tokens=4)
    export(folder, tmp_path / "onnx", to="onnx")
    for other in (model, load(tmp_path / "onnx")):
        result = other.complete(TEXTS, tokens=4)
        assert [completion.continuation for completion in result] == [completion.continuation for completion in wanted]
        for completion, same in zip(result, wanted, strict=True):
            chances = [item.probability for item in same.next]
            np.testing.assert_allclose([item.probability for item in completion.next], chances, rtol=1e-4)
    with pytest.raises(ConfigError, match="tokens must be at least 0"):
        model.complete(["a"], tokens=-1)
    with pytest.raises(CheckpointError, match="the ability fill"):
        model.fill(["[MASK]"])


@torch.no_grad()
def test_a_model_that_reads_backward_continues_at_the_beginning() -> None:
    """The candidates are those of a plain pass over the text and its end."""
    vocabulary = TOKENIZER.vocabulary
    config = dataclasses.replace(config_of("awd-lstm", dropout=0.0), direction="backward")
    model = untrained(config, 3, vocabulary)

    def previous_logits(ids: list[int]) -> np.ndarray:
        batch = Batch.from_rows([np.array([*ids, vocabulary.sep_id])])
        return model(batch, masked=batch.first_positions).mlm_logits[0].numpy()

    result = complete(TorchEngine(model, choose("cpu", "fp32")), TOKENIZER, named_texts(TEXTS), top=4, tokens=6)
    for text, completion in zip(TEXTS, result, strict=True):
        ids = TOKENIZER.encode(text).tolist()
        shares = torch.from_numpy(previous_logits(ids)).softmax(0).numpy()
        assert [vocabulary.index[item.piece] for item in completion.next] == np.argsort(-shares)[:4].tolist()
        expected: list[int] = []
        while len(expected) < 6:
            logits = previous_logits(expected + ids)
            logits[[vocabulary.pad_id, vocabulary.unk_id, vocabulary.sep_id, vocabulary.mask_id]] = -np.inf
            if int(logits.argmax()) == vocabulary.cls_id:
                break
            expected.insert(0, int(logits.argmax()))
        assert [vocabulary.index[item.piece] for item in completion.pieces] == expected[::-1]
        assert completion.direction == "backward"
        assert completion.whole.endswith(text)
        whole = [vocabulary.pieces[id].removeprefix("##") for id in expected + ids]
        assert completion.whole.replace(" ", "").replace("##", "") == "".join(whole[: len(expected)]) + text.replace(
            " ", ""
        )
    assert any(completion.pieces for completion in result)
