"""fill and next as a user types them, against the library."""

import json
import math
from pathlib import Path

import pytest

from bertsmith import load
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.inference.predictors.pretraining_heads import PretrainedPredictor
from bertsmith.models.checkpoints.huggingface import read_model_folder, write_model_folder
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from checkpoints.tiny import write_folder


def test_a_mask_is_filled_with_the_pieces_of_the_library(run, model: Path) -> None:
    result = run("fill", "--model", model, "the man went to the [MASK] .", "--top", 3)
    (gap,) = load_pretraining_heads(str(model)).fill("the man went to the [MASK] .", 3)
    assert result == (0, "".join(f"{guess.probability:.4f}  {guess.piece}\n" for guess in gap), "")


def test_every_mask_has_its_own_list(run, model: Path) -> None:
    result = run("fill", "--model", model, "the [MASK] went to [MASK]", "--json")
    answer = json.loads(result.out)
    assert answer["text"] == "the [MASK] went to [MASK]"
    assert [len(gap) for gap in answer["masks"]] == [5, 5]
    everything = json.loads(run("fill", "--model", model, "the [MASK]", "--top", 1000, "--json").out)["masks"][0]
    assert math.isclose(sum(guess["probability"] for guess in everything), 1, abs_tol=1e-5)
    assert len({guess["piece"] for guess in everything}) == len(everything)
    text = run("fill", "--model", model, "the [MASK] went to [MASK]").out
    assert text.startswith("[MASK] 1 of 2\n")


def test_json_is_what_the_library_says(run, model: Path) -> None:
    loaded = load(model)
    filled = json.loads(run("fill", "--model", model, "the [MASK] went", "--top", 2, "--json").out)
    assert filled == loaded.fill(["the [MASK] went"], top=2)[0].to_dict()
    assert filled["masks"] == filled["gaps"]
    judged = json.loads(run("next", "--model", model, "the man", "he bought", "--json").out)
    assert judged == loaded.next_sentence([("the man", "he bought")])[0].to_dict()


def test_lines_of_stdin_are_filled_together_and_a_wrong_one_is_named(
    run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.app.library.lines.LINES", 2)
    sizes: list[int] = []
    fill_texts = PretrainedPredictor.fill_texts

    def count(self: PretrainedPredictor, texts: list[str], top: int) -> object:
        sizes.append(len(texts))
        return fill_texts(self, texts, top)

    monkeypatch.setattr(PretrainedPredictor, "fill_texts", count)
    good = ["the [MASK]", "he bought [MASK] .", "a [MASK] b [MASK]", "[MASK] man"]
    whole = run("fill", "--model", model, "-", "--json", stdin="".join(f"{line}\n" for line in good).encode())
    assert (whole.code, whole.err, sizes) == (0, "", [2, 2])
    for index, wrong, words in (
        (0, "", "a [MASK] in line 1 of stdin; found ''"),
        (3, "the man", "a [MASK] in line 4 of stdin; found 'the man'"),
        (4, "", "a [MASK] in line 5 of stdin"),
        (2, "the [MASK] " * 40, "at most 30 pieces, the most that the model reads, in line 3 of stdin"),
    ):
        lines = "\n".join([*good[:index], wrong, *good[index:]])
        result = run("fill", "--model", model, "-", "--json", stdin=f"{lines}\n".encode())
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert f"expected {words}" in result.err
        assert [json.loads(line)["text"] for line in result.out.splitlines()] == good[:index]


def test_an_encoding_is_that_of_lines_on_stdin(run, model: Path) -> None:
    text = "the caf\xe9 [MASK]"
    typed = run("fill", "--model", model, text, "--json")
    coded = run("fill", "--model", model, "-", "--json", "--encoding", "cp1252", stdin=text.encode("cp1252"))
    assert (coded.code, coded.out) == (0, typed.out)
    refused = run("fill", "--model", model, text, "--encoding", "cp1252")
    assert "--encoding needs - in place of a text, for lines on stdin" in refused.err


def test_lines_of_stdin_are_filled_one_by_one(run, model: Path) -> None:
    lines = ["the [MASK]", "he bought [MASK] ."]
    result = run("fill", "--model", model, "-", "--json", stdin="\n".join(lines).encode())
    alone = [run("fill", "--model", model, line, "--json").out for line in lines]
    told = [json.loads(line) for line in result.out.splitlines()]
    expected = [json.loads(line) for line in alone]
    assert [record["text"] for record in told] == lines
    for record, other in zip(told, expected, strict=True):
        for gap, wanted in zip(record["masks"], other["masks"], strict=True):
            assert [guess["piece"] for guess in gap] == [guess["piece"] for guess in wanted]
            chances = [guess["probability"] for guess in gap]
            assert chances == pytest.approx([guess["probability"] for guess in wanted], abs=BATCH_TOLERANCE)


def test_the_probability_that_a_sentence_follows(run, model: Path) -> None:
    result = run("next", "--model", model, "the man went to the store .", "he bought", "a b c", "--json")
    answers = [json.loads(line) for line in result.out.splitlines()]
    scores = load_pretraining_heads(str(model)).next_sentence("the man went to the store .", ["he bought", "a b c"])
    told = [(answer["second"], answer["probability"]) for answer in answers]
    assert told == [(score.text, score.probability) for score in scores]
    assert all(0 < answer["probability"] < 1 for answer in answers)


def test_a_pair_that_is_too_long_is_truncated_with_a_warning(run, model: Path) -> None:
    result = run("next", "--model", model, "the man " * 30, "he bought").succeeds()
    assert "tokens truncated from A and " in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fill", "the man went to the store"], "expected a [MASK] in text 1"),
        (["fill", "the [MASK] " * 40], "found"),
        (["next", "the man", ""], "expected two texts in pair 1; found an empty one"),
    ],
)
def test_invalid_input_is_one_line(run, model: Path, arguments: list[str], words: str) -> None:
    run(arguments[0], "--model", model, *arguments[1:]).refuses(words)


def test_a_missing_model_is_one_line(run, tmp_path: Path) -> None:
    run("fill", "--model", tmp_path / "absent", "the [MASK]").refuses()


COMMANDS_WITH_A_MODEL = {
    "fill": ["fill", "the [MASK]"],
    "next": ["next", "the man", "he bought"],
    "embed": ["embed", "texts.txt", "--out", "first.npy"],
    "finetune": [
        *("finetune", "--task", "classification", "--train", "mails.csv", "--dev", "mails.csv", "--out", "first"),
        *("--epochs", "1", "--seeds", "2", "--device", "cpu"),
    ],
}


@pytest.fixture
def wrong(tmp_path: Path, model: Path) -> Path:
    """The model with rules that keep capitals, which its vocabulary does not have."""
    folder = read_model_folder(model, rules=TextRules(lowercase=False))
    return write_folder(tmp_path / "wrong", folder)


@pytest.mark.parametrize("command", COMMANDS_WITH_A_MODEL)
def test_every_command_that_uses_a_model_says_once_that_its_casing_does_not_fit(
    run, tmp_path: Path, model: Path, wrong: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("the man went\nthe store\n", encoding="utf-8")
    (tmp_path / "mails.csv").write_text("text,label\n" + "the man went,a\nthe store,b\n" * 4, encoding="utf-8")
    arguments = COMMANDS_WITH_A_MODEL[command]
    fits = run(*arguments, "--model", model)
    assert (fits.code, "capital letters" in fits.err) == (0, False), fits.err
    others = [argument.replace("first", "second") for argument in arguments]
    result = run(*others, "--model", wrong).succeeds()
    warning = f"warning: '{wrong}': the vocabulary has hardly any capital letters but the text keeps them"
    assert result.err.count(warning) == result.err.count("capital letters") == 1


def test_a_library_that_loads_a_model_says_so_too(wrong: Path, capsys) -> None:
    load(wrong).fill(["the [MASK]"])
    load(wrong).embed(["the man"])
    assert capsys.readouterr().err.count("hardly any capital letters") == 1


def test_the_words_of_a_cased_vocabulary_that_lower_casing_loses_are_reported_too(
    run, tmp_path: Path, wrong: Path
) -> None:
    folder = read_model_folder(wrong)
    pieces = [{"man": "Man"}.get(piece, piece) for piece in folder.tokenizer.vocabulary.pieces]
    write_model_folder(
        tmp_path / "capitals",
        config=folder.config,
        tensors=folder.tensors,
        tokenizer=WordPieceTokenizer(Vocabulary(pieces), TextRules()),
    )
    result = run("fill", "--model", tmp_path / "capitals", "the [MASK]")
    assert result.err.count("has capital letters but the text is lower-cased") == 1
