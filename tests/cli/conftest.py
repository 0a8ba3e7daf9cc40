"""Runs commands in this process, with real byte streams instead of the terminal's."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from bertsmith.app.cli.app import main
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from model.examples import small_config
from written_files import file_with

PIECES = """[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e ##a ##b ##c ##d ##e the man went to store he bought ##ed tweet
##ing xa ##nax . , ? ! [ ] mask é""".split()
SPAM, HAM = "he bought the mask a b", "the man went to store c d"


class Result(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    def succeeds(self, *words: str) -> "Result":
        """The result of a command that did its work, and printed these words."""
        assert self.code == 0, self.err
        for part in words:
            assert part in self.out
        return self

    def refuses(self, *words: str) -> None:
        """The command printed nothing but one line of error, which has these words."""
        assert (self.code, self.out, self.err.count("\n")) == (1, "", 1), self
        for part in words:
            assert part in self.err


Run = Callable[..., Result]


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs `bertsmith` with arguments and the bytes of stdin; its output may go to a terminal."""

    def call(*arguments: object, stdin: bytes = b"", terminal: bool = False) -> Result:
        kind = Terminal if terminal else io.TextIOWrapper
        streams = {name: kind(io.BytesIO(), encoding="utf-8", newline="") for name in ("stdout", "stderr")}
        for name, stream in streams.items():
            monkeypatch.setattr(sys, name, stream)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin))))
        monkeypatch.setattr(sys, "argv", ["bertsmith", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        texts = []
        for stream in streams.values():
            stream.flush()
            texts.append(stream.buffer.getvalue().decode("utf-8"))
        return Result(code, *texts)

    return call


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    """A vocabulary file of a few pieces."""
    return file_with(tmp_path / "vocab.txt", "".join(f"{piece}\n" for piece in PIECES))


@pytest.fixture
def model(tmp_path: Path, vocabulary: Path) -> Path:
    """A tiny model folder with random weights."""
    tokenizer = WordPieceTokenizer(Vocabulary.load(vocabulary))
    config = small_config(
        vocab_size=len(tokenizer.vocabulary), num_attention_heads=2, intermediate_size=64, max_position_embeddings=32
    )
    tensors = {
        name: tensor.detach() for name, tensor in EncoderForPreTraining(new_encoder(config)).state_dict().items()
    }
    folder = tmp_path / "model"
    write_model_folder(
        folder,
        config=config,
        tensors=tensors,
        tokenizer=tokenizer,
        metadata=ModelMetadata.from_dict({"task": "pretraining"}),
    )
    return folder


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    return write_mails(tmp_path / "mails.csv", SPAM, HAM)


def write_mails(path: Path, spam: str, ham: str) -> Path:
    """24 labelled texts, half of them spam."""
    rows = [f"{spam if number % 2 else ham},{'Spam' if number % 2 else 'Not Spam'}" for number in range(24)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path
