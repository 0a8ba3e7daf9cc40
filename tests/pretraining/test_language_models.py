"""Language models from a text file to the next word: trained, resumed, read by other tools."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bertsmith import load
from bertsmith.base.core.errors import ConfigError
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import pretrain
from corpus.samples import write_corpus
from training.interruptions import assert_same_files, killed_at_evaluation

TEXT = [
    "let ' s hang out with friends .",
    "we hang out at home .",
    "the camera hung on the wall .",
    "they bought a camera .",
    "let ' s stick to the plan .",
]
PIECES = sorted({word for line in TEXT for word in line.split()} - {"."})
VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *PIECES])
SMALL = {"size": "tiny", "rows_per_step": 8, "max_length": 16, "device": "cpu", "precision": "fp32"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    rng = np.random.default_rng(0)
    documents = ["\n".join(rng.choice(TEXT, 6)) for _ in range(60)]
    return write_corpus(folder, documents, WordPieceTokenizer(VOCABULARY, TextRules()))


def trained(corpus: Path, out: Path, *, resume: bool = False, **options: object) -> Path:
    settings = {**SMALL, "architecture": "openai-gpt", **options}
    pretrain(corpus, out, *settings_from_recipe(settings), resume=resume)
    return out / "model"


@pytest.fixture(scope="module")
def gpt(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(corpus, tmp_path_factory.mktemp("gpt") / "run", steps=60)


def test_after_hang_out_is_likelier_than_camera_and_the_plan_follows(gpt: Path) -> None:
    model = load(gpt, device="cpu")
    (result,) = model.complete(["we hang"], top=len(VOCABULARY))
    chances = {guess.piece: guess.probability for guess in result.next}
    assert chances["out"] > 10 * chances["camera"]
    assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
    (result,) = model.complete(["Let's stick to"], tokens=3)
    assert [guess.piece for guess in result.pieces] == ["the", "plan", "."]
    assert result.continuation == " the plan ."
    likely, unlikely = model.perplexity(["we hang out at home .", "home at out hang we ."])
    assert likely.perplexity < 3 < unlikely.perplexity


def test_what_was_trained_gives_the_same_logits_and_ids_in_transformers(gpt: Path) -> None:
    theirs = transformers.AutoModelForCausalLM.from_pretrained(gpt).eval()
    assert type(theirs).__name__ == "OpenAIGPTLMHeadModel"
    tokenizer = transformers.AutoTokenizer.from_pretrained(gpt)
    ids = tokenizer("Let's stick to", return_tensors="pt")["input_ids"][:, :-1]
    with torch.no_grad():
        shares = theirs(ids).logits[0, -1].softmax(0)
    (result,) = load(gpt, device="cpu").complete(["Let's stick to"], top=3)
    best = shares.topk(3)
    assert [guess.piece for guess in result.next] == tokenizer.convert_ids_to_tokens(best.indices)
    np.testing.assert_allclose([guess.probability for guess in result.next], best.values.numpy(), rtol=1e-4)


def test_a_run_that_is_resumed_ends_with_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    straight = trained(corpus, tmp_path / "straight", steps=8, dropout=0.1)
    settings = settings_from_recipe(
        {**SMALL, "architecture": "openai-gpt", "dropout": 0.1, "steps": 8, "save_every": 2, "evaluate_every": 2}
    )
    with killed_at_evaluation(4):
        pretrain(corpus, tmp_path / "stopped", *settings)
    pretrain(corpus, tmp_path / "stopped", *settings, resume=True)
    assert_same_files(tmp_path / "stopped" / "model", straight, "model.safetensors")


def test_an_objective_that_looks_ahead_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reads from left to right for GPT; found mlm; use --objective left-to-right"):
        trained(corpus, tmp_path / "run", steps=2, objective="mlm")
    assert Corpus.open(corpus).num_documents > 1
