"""complete and perplexity as a user types them, against the library; a GPT through the other commands."""

import json
import math
from pathlib import Path

import pytest

from bertsmith import load
from bertsmith.inference.predictors.perplexity import Perplexity
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.encoders.gpt import GptConfig
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from cli.conftest import PIECES
from inference.test_completion import model_of
from model.examples import shake
from tasks.task_samples import TOKENIZER

CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt") / "model"
    config = GptConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=24,
    )
    model = EncoderForPreTraining(new_encoder(config), seed=1)
    shake(model)
    info = ModelMetadata.from_dict({"task": "pretraining", "objective": "left-to-right"})
    tokenizer = WordPieceTokenizer(Vocabulary(PIECES))
    write_model_folder(folder, config=config, tensors=model.state_dict(), tokenizer=tokenizer, metadata=info)
    return folder


def test_the_next_pieces_of_a_text_are_those_of_the_library(run, gpt: Path) -> None:
    (wanted,) = load(gpt, device="cpu").complete(["the man"], top=3)
    result = run("complete", "--model", gpt, "the man", "--top", 3, *CPU)
    assert result == (0, "".join(f"{guess.probability:.4f}  {guess.piece}\n" for guess in wanted.next), "")
    everything = json.loads(run("complete", "--model", gpt, "the man", "--top", 999, "--json", *CPU).out)
    assert math.isclose(sum(guess["probability"] for guess in everything["next"]), 1, abs_tol=1e-5)
    assert (everything["continuation"], everything["pieces"], everything["has_ended"]) == ("", [], False)


def test_lines_are_continued_and_drawn_again_with_the_same_seed(run, gpt: Path) -> None:
    drawn = {"tokens": 5, "temperature": 1.5, "top_k": 20, "top_p": 0.95, "seed": 7}
    options = [item for name, value in drawn.items() for item in (f"--{name.replace('_', '-')}", value)]
    wanted = load(gpt, device="cpu").complete(["the man", "he bought"], **drawn)
    result = run("complete", "--model", gpt, "-", *options, *CPU, stdin=b"the man\nhe bought\n")
    assert result == (0, "".join(f"{completion.text}{completion.continuation}\n" for completion in wanted), "")
    shown = [json.loads(line) for line in run("complete", "--model", gpt, "-", *options, "--json", *CPU,
                                              stdin=b"the man\nhe bought\n").out.splitlines()]  # fmt: skip
    assert [completion["continuation"] for completion in shown] == [completion.continuation for completion in wanted]
    assert all(len(record["pieces"]) == 5 or record["has_ended"] for record in shown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("the man", "--top-p", 2), "top_p must be above 0 and at most 1, not 2.0"),
        (
            ("the man", "--temperature", 0, "--top-k", 3),
            "--top-k needs a temperature above 0; raise --temperature, or leave one of them out",
        ),
        (
            ("the man", "--tokens", 30),
            "expected at most 0 pieces, the most that the model reads with 30 more, in text 1",
        ),
    ],
)
def test_what_cannot_be_completed_is_one_line(run, gpt: Path, arguments: tuple[object, ...], message: str) -> None:
    run("complete", "--model", gpt, *arguments, *CPU).refuses(message)


def test_a_bidirectional_model_is_refused_by_both(run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the man\n", encoding="utf-8")
    for command, more in (
        (("complete", "the man"), ""),
        (("perplexity", tmp_path / "texts.txt"), ", or the one before"),
    ):
        result = run(*command, "--model", model, *CPU)
        result.refuses(f"expected a model that predicts the next piece{more}; found a bidirectional one")


def test_the_perplexity_of_both_directions_is_shown(run, tmp_path: Path) -> None:
    info = ModelMetadata.from_dict({"task": "pretraining", "objective": "forward+backward"})
    save_pretrained(tmp_path / "elmo", model_of("elmo"), TOKENIZER, info)
    lines = ["the good film", "and one film it"]
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = load(tmp_path / "elmo", device="cpu")
    assert "perplexity" in model.abilities
    wanted = Perplexity.of_all(model.perplexity(lines))
    arguments = ("perplexity", tmp_path / "texts.txt", "--model", tmp_path / "elmo", *CPU)
    shown = json.loads(run(*arguments, "--json").out)
    for perplexity, record in ((wanted, shown), (wanted.backward, shown["backward"])):
        assert (record["direction"], record["pieces"]) == (perplexity.direction, 7)
        assert record["nll"] == pytest.approx(perplexity.nll, rel=1e-5)
    result = run(*arguments).out
    for perplexity, name in ((wanted, "forward"), (wanted.backward, "backward")):
        assert f"perplexity of a piece, {name}: {perplexity.perplexity:,.2f} (7 pieces)" in result
        assert f"bits per character, {name}: {perplexity.bits_per_character:.3f} (28 characters)" in result


def test_the_perplexity_of_a_file_is_that_of_its_lines(run, gpt: Path, tmp_path: Path) -> None:
    lines = ["the man went to the store", "", "he bought xanax xyzzy", "a b c " * 30]
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    wanted = Perplexity.of_all(load(gpt, device="cpu").perplexity(lines))
    shown = json.loads(run("perplexity", tmp_path / "texts.txt", "--model", gpt, "--json", *CPU).out)
    assert (shown.pop("direction"), shown.pop("backward")) == ("forward", None)
    assert shown == pytest.approx({name: wanted.to_dict()[name] for name in shown}, rel=1e-5)
    assert (shown["unknown"], shown["words"]) == (1, 6 + 4 + 90)
    result = run("perplexity", tmp_path / "texts.txt", "--model", gpt, *CPU)
    assert f"perplexity of a piece: {wanted.perplexity:,.2f} ({wanted.pieces:,} pieces)" in result.out
    assert "stand for unknown words" in result.err
    assert "forward" not in result.out
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("the man\ncafé\n".encode("cp1252"))
    (tmp_path / "utf-8.txt").write_bytes("the man\ncafé\n".encode())
    refused = run("perplexity", tmp_path / "latin.txt", "--model", gpt, *CPU)
    refused.refuses("found the byte 0xe9 in line 2, not UTF-8; save it as UTF-8, or name its encoding")
    of_text = run("perplexity", tmp_path / "utf-8.txt", "--model", gpt, *CPU).out
    assert run("perplexity", tmp_path / "latin.txt", "--model", gpt, "--encoding", "cp1252", *CPU).out == of_text
    run("perplexity", tmp_path / "empty.txt", "--model", gpt, *CPU).refuses("expected")


def test_other_formats_and_vectors(run, gpt: Path, tmp_path: Path) -> None:
    run("convert", gpt, tmp_path / "there", "--to", "huggingface").succeeds("transformers: logits differ")
    assert load_any(tmp_path / "there").parts == ("mlm",)
    run("convert", gpt, tmp_path / "google", "--to", "google").refuses("model_type 'openai-gpt'")
    (tmp_path / "texts.txt").write_text("the man\nhe went\n", encoding="utf-8")
    embed = ("embed", tmp_path / "texts.txt", "--model", gpt, "--out", tmp_path / "x.npy", *CPU)
    run(*embed, "--pooling", "pooler").refuses("expected a model with a trained pooler")
    run(*embed, "--pooling", "cls").succeeds()
