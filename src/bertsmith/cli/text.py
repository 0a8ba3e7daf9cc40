"""Commands for text: split lines into pieces, and show the input of the model."""

import itertools
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from bertsmith.cli.options import CasedOption, print_table
from bertsmith.errors import InputError

if TYPE_CHECKING:
    from bertsmith.text.tokenizer import Tokenizer

VocabularyOption = Annotated[
    Path | None, typer.Option("--vocab", metavar="FILE", help="vocabulary, one piece per line")
]
ModelFolderOption = Annotated[str | None, typer.Option("--model", metavar="DIR", help="use the tokenizer of a model")]

_READ_BYTES = 1 << 20


def tokenize(
    vocab: VocabularyOption = None,
    model: ModelFolderOption = None,
    cased: CasedOption = False,
    ids: Annotated[bool, typer.Option("--ids", help="print ids instead of pieces")] = False,
    special_tokens: Annotated[
        bool, typer.Option(help="parse [MASK] and the like as special tokens, as fill does")
    ] = True,
) -> None:
    """Split each line of stdin into pieces, and print them separated by spaces."""
    tokenizer = tokenizer_from(vocab, model, cased)
    _warn_of_casing(tokenizer)
    pieces = tokenizer.vocabulary.pieces
    for lines in line_blocks(stdin_bytes()):
        encoded = tokenizer.encode_batch(lines, special_tokens=special_tokens)
        every, ends = encoded.ids.tolist(), encoded.offsets.tolist()
        words = [str(one) for one in every] if ids else [pieces[one] for one in every]
        rows = (" ".join(words[start:end]) for start, end in itertools.pairwise(ends))
        sys.stdout.buffer.write("".join(f"{row}\n" for row in rows).encode("utf-8"))
        sys.stdout.buffer.flush()


def inputs(
    first: Annotated[str, typer.Argument(metavar="A", help="a text")],
    second: Annotated[str | None, typer.Argument(metavar="B", help="a second text")] = None,
    vocab: VocabularyOption = None,
    model: ModelFolderOption = None,
    cased: CasedOption = False,
    max_length: Annotated[int, typer.Option(help="maximum tokens, special ones included")] = 512,
) -> None:
    """Print the model's input for a text or a pair: the token, segment and position of each piece."""
    from bertsmith.text.pack import pack_rows

    tokenizer = tokenizer_from(vocab, model, cased)
    _warn_of_casing(tokenizer)
    pieces = tokenizer.vocabulary.pieces
    rows = pack_rows(
        [tokenizer.encode(first, special_tokens=True)],
        None if second is None else [tokenizer.encode(second, special_tokens=True)],
        template=tokenizer.template,
        max_length=max_length,
    )
    table = [
        (pieces[token], token, segment, position)
        for position, (token, segment) in enumerate(
            zip(rows.token_ids.tolist(), rows.segment_ids.tolist(), strict=True)
        )
    ]
    print_table(("piece", "token", "segment", "position"), table)
    if rows.cut_tokens:
        typer.echo(f"bertsmith: tokens truncated to fit into {max_length}: {rows.cut_tokens}", err=True)


def tokenizer_from(vocab: Path | None, model: str | None, cased: bool) -> "Tokenizer":
    """The tokenizer of a vocabulary file or of a model, which has its own casing."""
    if vocab is None and model is None:
        raise typer.BadParameter("give --vocab or --model")
    if vocab is not None and model is not None:
        raise typer.BadParameter("only one of --vocab and --model may be given")
    if model is not None:
        if cased:
            raise typer.BadParameter("--cased needs --vocab; a model has its own casing")
        return _tokenizer_of(model)
    assert vocab is not None
    from bertsmith.text.normalize import TextRules
    from bertsmith.text.vocabulary import Vocabulary
    from bertsmith.text.wordpiece import WordPieceTokenizer

    return WordPieceTokenizer(Vocabulary.load(vocab), TextRules(lowercase=not cased))


def _warn_of_casing(tokenizer: "Tokenizer") -> None:
    from bertsmith.text.vocabulary import casing_mismatch

    if wrong := casing_mismatch(tokenizer.vocabulary, lowercase=tokenizer.rules.lowercase):
        typer.echo(f"bertsmith: {wrong}", err=True)


def _tokenizer_of(model: str) -> "Tokenizer":
    """The tokenizer of a model; from a local folder it is read without the weights, and so without torch."""
    from bertsmith.checkpoints.metadata import read_metadata
    from bertsmith.checkpoints.tokenizer_files import read_tokenizer

    folder = Path(model)
    if (folder / "config.json").exists():
        metadata = read_metadata(folder)
        tokenizer, _ = read_tokenizer(folder, metadata)
        if tokenizer is not None:
            metadata.check_vocabulary(tokenizer.vocabulary, folder)
    else:
        from bertsmith.checkpoints.load import load_any

        tokenizer = load_any(model).tokenizer
    if tokenizer is None:
        from bertsmith.checkpoints.model_folder import no_vocabulary

        raise no_vocabulary(model)
    return tokenizer


def stdin_bytes() -> BinaryIO:
    """The bytes of stdin.

    Raises:
        InputError: it is closed.
    """
    if sys.stdin is None:
        raise _no_text("nothing: it is closed")
    return sys.stdin.buffer


def count_lines(stream: BinaryIO) -> int | None:
    """The number of remaining lines of a file redirected to stdin; None for a pipe or a terminal."""
    try:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return None
    except OSError:  # a stream in memory
        return None
    start = stream.tell()
    count, last = 0, b"\n"
    while block := stream.read(_READ_BYTES):
        count, last = count + block.count(b"\n"), block[-1:]
    stream.seek(start)
    return count + (last != b"\n")


def line_blocks(stream: BinaryIO) -> Iterator[list[str]]:
    """Lists of complete lines as they arrive, so that a process on a pipe gets its answers without delay.

    Only a line feed ends a line. Bytes that are not UTF-8 become U+FFFD and are counted on stderr. At a terminal, a
    message says that lines are expected.

    Raises:
        InputError: the input is not text, or a line is too long.
    """
    from bertsmith.corpus.sources import LONGEST_RECORD, refusal

    if stream.isatty():
        typer.echo("bertsmith: reading lines from the terminal; end with Ctrl-D on a line of its own", err=True)
    waiting: list[bytes] = []  # parts of the current, unfinished line
    size, number, bad = 0, 0, []
    is_first = True
    while True:
        block = stream.read1(_READ_BYTES)  # type: ignore[attr-defined]
        if is_first and (reason := refusal(block)):
            raise _no_text(reason)
        is_first = False
        cut = block.rfind(b"\n") + 1
        data = b""
        if cut or not block:
            data = b"".join([*waiting, block[:cut]])
            waiting, size = [], 0
        waiting.append(block[cut:])
        size += len(block) - cut
        if data:
            lines = []
            for raw in data.removesuffix(b"\n").split(b"\n"):
                number += 1
                try:
                    lines.append(raw.decode("utf-8"))
                except UnicodeDecodeError:
                    bad.append(number)
                    lines.append(raw.decode("utf-8", errors="replace"))
            yield lines
        if not block:
            break
        if size > LONGEST_RECORD:
            raise _no_text(f"more than {LONGEST_RECORD >> 20} MiB without a line end in line {number + 1:,}")
    if bad:
        typer.echo(
            f"bertsmith: lines that are not UTF-8: {len(bad)} of {number}, the first is line {bad[0]}; "
            "undecodable bytes became U+FFFD",
            err=True,
        )


def _no_text(found: str) -> InputError:
    return InputError(expected="lines of text on stdin", found=found, fix="give one text per line, in UTF-8")
