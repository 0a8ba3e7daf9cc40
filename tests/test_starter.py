"""The model in the package: small, complete, readable by others, and found by its name without a network."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM, AutoTokenizer

import bertsmith
from bertsmith.app.library.training import pretrain
from bertsmith.base.core.errors import CheckpointError, VocabularyError
from bertsmith.inference.predictors.loading import load_predictor, load_pretraining_heads
from bertsmith.models.checkpoints.hub import resolve
from bertsmith.models.checkpoints.load import load_any

FOLDER = Path(bertsmith.__file__).parent / "starter"
MOST_BYTES = 16 * 10**6


@pytest.fixture(scope="module")
def model():
    return bertsmith.load("starter", device="cpu")


def test_the_folder_is_complete_and_small():
    assert {"config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "bertsmith.json", "README.md"} <= {
        path.name for path in FOLDER.iterdir()
    }
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MOST_BYTES


def test_every_file_is_as_it_was_when_it_was_made():
    report = bertsmith.inspect_model("starter")
    assert (report.digests, report.altered) == ("verified", ())


def test_messages_call_it_by_the_name_that_the_user_typed():
    model = load_any("starter")
    report = [*bertsmith.inspect_model("starter").lines(), *model.report.lines()]
    assert report[0].startswith("starter: Hugging Face folder")
    assert str(FOLDER) not in "\n".join(report)
    with pytest.raises(
        CheckpointError, match="expected a fine-tuned model in 'starter'; found one without a task head"
    ):
        load_predictor("starter")
    with pytest.raises(CheckpointError, match="expected a model with a trained nsp head in 'starter'"):
        load_pretraining_heads(model, needs=["nsp"])


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("the president of the united [MASK] said on monday .", {"states"}),
        ("She opened the [MASK] and looked out into the street.", {"door", "window"}),
        ("she shook her [MASK] .", {"head", "hand", "hands"}),
    ],
)
def test_it_has_learned_english(model, text: str, pieces: set[str]) -> None:
    guesses = [guess.piece for guess in model.fill([text], top=3)[0][0]]
    assert pieces & set(guesses)


def test_no_character_of_ascii_is_unknown_to_it(model):
    characters = [chr(code) for code in range(33, 127)]
    texts = [f"{character} a{character}b {character}{character}" for character in characters]
    assert [text for text in texts if "[UNK]" in model.tokenizer.tokenize(text)] == []


def test_its_vectors_know_which_sentences_are_alike(model):
    vectors = model.embed(["The ship sailed at dawn.", "At sunrise the vessel left.", "She baked a loaf of bread."])
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_transformers_computes_the_same_probabilities(model):
    text = "it was the best of [MASK] , it was the worst of times ."
    theirs = AutoModelForMaskedLM.from_pretrained(FOLDER).eval()
    assert theirs.dtype == torch.float32  # though the file has two bytes for each number
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    batch = tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        logits = theirs(**batch).logits[0]
    chances = logits[batch["input_ids"][0] == tokenizer.mask_token_id].softmax(-1)[0]
    for guess in model.fill([text], top=5)[0][0]:
        expected = float(chances[tokenizer.convert_tokens_to_ids(guess.piece)])
        assert guess.probability == pytest.approx(expected, abs=1e-5)


def test_sentence_transformers_gives_the_same_vectors_and_misses_nothing(model, capfd):
    texts = [
        "The ship sailed at dawn.",
        "x",
        "She baked a loaf of bread, and nobody said a word about it for a long time.",
    ]
    vectors = SentenceTransformer(str(FOLDER), device="cpu").encode(texts)
    assert "MISSING" not in capfd.readouterr().err
    np.testing.assert_allclose(vectors, model.embed(texts), atol=1e-5)


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    (tmp_path / "starter").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve("starter") == Path("starter")


def test_a_corpus_of_another_casing_is_refused_in_one_line(tmp_path):
    (tmp_path / "text.txt").write_text("The judge painted the map.\n" * 20, encoding="utf-8")
    tokenizer = bertsmith.load("starter", device="cpu").tokenizer
    cased = type(tokenizer)(tokenizer.vocabulary, bertsmith.TextRules(lowercase=False))
    bertsmith.build_corpus([tmp_path / "text.txt"], cased, tmp_path / "corpus", workers=1)
    with pytest.raises((VocabularyError, bertsmith.ConfigError), match="text rules of 'starter'"):
        pretrain(tmp_path / "corpus", tmp_path / "run", init="starter", steps=1)


def test_the_command_line_finds_it_without_a_network(tmp_path):
    command = [sys.executable, "-m", "bertsmith", "fill", "--model", "starter", "the [MASK] of england ."]
    environment = {"PYTHONPATH": str(FOLDER.parent.parent), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "%" in done.stdout or "0." in done.stdout
