"""Commands for text: learn a vocabulary, split lines into pieces, and show the input of the model."""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bertsmith.app.cli.options import note, print_table, say
from bertsmith.app.cli.usage import Refused
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.settings import require_other

if TYPE_CHECKING:
    from bertsmith.base.core.requests import Request
    from bertsmith.inference.predictors.request import CompleteRequest, FillRequest
    from bertsmith.text.documents.encodings import EncodingSettings
    from bertsmith.text.documents.request import InputsRequest, TokenizeRequest, VocabularyRequest
    from bertsmith.text.tokenizers.tokenizer import Tokenizer

_READ_BYTES = 1 << 20


def vocab(request: "VocabularyRequest") -> None:
    """Learn a vocabulary of exactly --size pieces and print its quality report.

    For each file, or with --languages for each language, the report gives the pieces per word and the fractions of
    unknown words, of covered characters and of words that are a single piece. With more than 20 files and
    --report, the rows for single files go only to that report. TEXT may be addresses such as s3://bucket. With --engine
    ray, each file is counted by one worker of a cluster, so split very large files; finished counts are kept in
    FILE.partial: --resume continues after Ctrl-C, a crash or a full disk.
    """
    from bertsmith.app.library.vocabulary import learn_vocabulary
    from bertsmith.base.core.requests import call

    learned = call(learn_vocabulary, request)
    for line in learned.notes:
        note(line)
    say(*learned.report.lines("" if request.report is None else str(request.report)))


def tokenize(request: "TokenizeRequest") -> None:
    """Split each line of stdin into pieces, and print them separated by spaces."""
    from bertsmith.text.tokenizers.spelled import SpelledLines
    from bertsmith.text.tokenizers.tokenizer import warn_of_casing

    tokenizer = tokenizer_from(request.vocab, request.model, request.cased, request.rules)
    warn_of_casing(tokenizer, request.vocab or request.model)
    pieces = tokenizer.vocabulary.pieces
    spelled = SpelledLines(list(map(str, range(len(pieces)))) if request.ids else pieces)
    for lines in stdin_lines(request):
        encoded = tokenizer.encode_batch(lines, special_tokens=request.special_tokens)
        sys.stdout.buffer.write(spelled.of(encoded))
        sys.stdout.buffer.flush()


def inputs(request: "InputsRequest") -> None:
    """Print the input for a text or a pair: token, segment and position of each piece, with a mark on special ones."""
    from bertsmith.text.tokenizers.pack import MODEL_LIMIT, pack_rows
    from bertsmith.text.tokenizers.tokenizer import warn_of_casing

    model, second = request.model, request.second
    tokenizer = tokenizer_from(request.vocab, model, request.cased, request.rules)
    warn_of_casing(tokenizer, request.vocab or model)
    longest = MODEL_LIMIT if model is None else _longest_row(model)
    max_length = longest if request.max_length is None else request.max_length
    pieces = tokenizer.vocabulary.pieces
    rows = pack_rows(
        [tokenizer.encode(request.first, special_tokens=True)],
        None if second is None else [tokenizer.encode(second, special_tokens=True)],
        template=tokenizer.template,
        max_length=max_length,
        model_limit=longest,
    )
    table = [
        (pieces[token], token, segment, position, "special" if token in tokenizer.vocabulary.special_ids else "")
        for position, (token, segment) in enumerate(
            zip(rows.token_ids.tolist(), rows.segment_ids.tolist(), strict=True)
        )
    ]
    print_table(("piece", "token", "segment", "position", ""), table)
    if rows.cut_tokens:
        note(f"tokens truncated to fit into {max_length}: {rows.cut_tokens}")


def tokenizer_from(vocab: str | Path | None, model: str | Path | None, cased: bool, rules: str | None) -> "Tokenizer":
    """The tokenizer of a vocabulary file or of a model, which has its own rules and casing."""
    if vocab is None and model is None:
        raise Refused("expected --vocab or --model; found neither")
    if vocab is not None and model is not None:
        raise Refused("expected --vocab or --model; found both", "leave one of them out")
    if model is not None:
        if cased:
            raise Refused("--cased needs --vocab", "a model has its own casing")
        if rules is not None:
            raise Refused("--rules needs --vocab", "a model has its own rules")
        return _tokenizer_of(model)
    assert vocab is not None
    vocab = Path(vocab)
    if vocab.suffix == ".json" or vocab.is_dir():
        from bertsmith.models.model_files.tokenizer_files import read_tokenizer_file

        if cased or rules is not None:
            raise Refused("--cased and --rules need a vocab.txt", "other tokenizers have their own rules")
        return read_tokenizer_file(vocab)
    from bertsmith.text.tokenizers.normalize import TextRules
    from bertsmith.text.tokenizers.vocabulary import Vocabulary
    from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

    return WordPieceTokenizer(Vocabulary.load(vocab), TextRules.named(rules or "huggingface", lowercase=not cased))


def _tokenizer_of(model: str | Path) -> "Tokenizer":
    """The tokenizer of a model; from a local folder it is read without the weights, and so without torch."""
    from bertsmith.base.storage.files import read_object
    from bertsmith.models.checkpoints.architectures import ARCHITECTURES
    from bertsmith.models.checkpoints.transformers_folder import encoder_type
    from bertsmith.models.model_files.metadata import read_metadata
    from bertsmith.models.model_files.tokenizer_files import read_tokenizer

    folder = Path(model)
    if (folder / "config.json").exists():
        metadata = read_metadata(folder)
        architecture = ARCHITECTURES.get(encoder_type(str(read_object(folder / "config.json").get("model_type"))))
        read = read_tokenizer if architecture is None else architecture.read_tokenizer
        tokenizer, _ = read(folder, metadata)
        if tokenizer is not None:
            metadata.check_vocabulary(tokenizer.vocabulary, folder)
    else:
        from bertsmith.models.checkpoints.load import load_any

        tokenizer = load_any(model).tokenizer
    if tokenizer is None:
        from bertsmith.models.checkpoints.model_folder import no_vocabulary

        raise no_vocabulary(model)
    return tokenizer


def _longest_row(model: str | Path) -> int:
    """The maximum number of tokens that a model reads at once: of its encoder, or less if it was fine-tuned on less."""
    from bertsmith.base.storage.files import read_json
    from bertsmith.models.checkpoints.architectures import read_config
    from bertsmith.models.checkpoints.load import load_any
    from bertsmith.models.model_files.metadata import read_metadata

    folder = Path(model)
    if (folder / "config.json").exists():
        config, metadata = read_config(read_json(folder / "config.json")), read_metadata(folder)
    else:
        loaded = load_any(model)
        config, metadata = loaded.config, loaded.metadata
    settings = (metadata.spec or {}).get("settings") or {}
    return min(int(settings.get("max_length", config.max_tokens)), config.max_tokens)


def stdin_bytes() -> BinaryIO:
    """The bytes of stdin.

    Raises:
        InputError: it is closed.
    """
    if sys.stdin is None:
        raise _no_text("nothing: it is closed")
    return sys.stdin.buffer


def stdin_lines(request: "Request") -> Iterator[list[str]]:
    """The lines of stdin as they arrive, read as the options of `EncodingSettings` say; see `line_blocks`."""
    from bertsmith.text.documents.encodings import EncodingSettings

    return line_blocks(stdin_bytes(), request.part(EncodingSettings))


def text_or_lines(request: "FillRequest | CompleteRequest") -> tuple[Iterable[list[str]], str]:
    """(a typed text, or for "-" the lines of stdin; a format string that names one of them in errors).

    Raises:
        ConfigError: an encoding is given for a typed text.
    """
    if request.text == "-":
        return stdin_lines(request), "line {:,} of stdin"
    for name in ("encoding", "bad_bytes"):
        option = f"--{name.replace('_', '-')}"
        require_other(name not in request.given, option, "- in place of a text, for lines on stdin")
    return [[request.text]], "text {}"


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


def line_blocks(stream: BinaryIO, reading: "EncodingSettings | None" = None) -> Iterator[list[str]]:
    """Lists of complete lines as they arrive, so that a process on a pipe gets its answers without delay.

    Only a line feed ends a line. In UTF-8, the lines before one with a byte that is not valid are yielded before it is
    refused.
    At a terminal, a message says that lines are expected.

    Args:
        reading: the encoding, and what to do with bytes that are not UTF-8.

    Raises:
        InputError: the input is not text, or a line is too long or not in the encoding.
    """
    from bertsmith.text.documents.encodings import EncodingSettings, LineDecoder, Utf8Stream
    from bertsmith.text.documents.sources import LONGEST_RECORD, binary, refusal

    reading = EncodingSettings() if reading is None else reading
    decoder = LineDecoder(reading, name="stdin")

    if stream.isatty():
        note("reading lines from the terminal; end with Ctrl-D on a line of its own")
    waiting: list[bytes] = []  # parts of the current, unfinished line
    size, number = 0, 0
    is_first = True
    text = Utf8Stream(stream.read1, name="stdin", encoding=reading.encoding)  # type: ignore[attr-defined]
    while True:
        block = text.read(_READ_BYTES)
        if is_first and (reason := (refusal if reading.bad_bytes == "drop" else binary)(block)):
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
            for part in _before_bad_line(data.removesuffix(b"\n")):
                lines = decoder.text(part, number + 1).split("\n")
                number += len(lines)
                yield lines
        if not block:
            break
        if size > LONGEST_RECORD:
            raise _no_text(f"more than {LONGEST_RECORD >> 20} MiB without a line end in line {number + 1:,}")
    if decoder.dropped:
        note(decoder.note())


def _before_bad_line(data: bytes) -> list[bytes]:
    """Lines of bytes as one part, or as two: those before the first with a byte that is not UTF-8, and the others."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        if (end := data.rfind(b"\n", 0, error.start)) >= 0:
            return [data[:end], data[end + 1 :]]
    return [data]


def _no_text(found: str) -> InputError:
    return InputError(
        expected="lines of text on stdin", found=found, fix="give one text per line, in UTF-8 or with --encoding"
    )
