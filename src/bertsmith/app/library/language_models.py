"""Texts through a language model: `Model.complete` and `Model.perplexity`, and both for files and streams of lines."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bertsmith.app.library.inputs import checked_texts, require_count
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress
from bertsmith.base.core.settings import from_dict, require_number
from bertsmith.inference.predictors.completion import Completion, SamplingSettings, complete
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.inference.predictors.perplexity import Perplexity, perplexities, require_directions
from bertsmith.inference.predictors.pretraining_heads import PretrainedPredictor
from bertsmith.tasks.datasets.blocks import text_blocks
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.text.documents.encodings import UTF_8, EncodingSettings

LINES = 1024  # completed together


def complete_texts(
    model: PretrainedPredictor, texts: Sequence[str], top: int, tokens: int, **sampling: Any
) -> list[Completion]:
    """The completions of some texts; see `Model.complete`."""
    require_count(top, "top")
    require_number("tokens", tokens, least=0)
    chosen = from_dict(SamplingSettings, sampling, "the options of complete")
    return complete(model.engine, model.tokenizer, checked_texts(texts), top=top, tokens=tokens, sampling=chosen)


def perplexity_of_texts(model: PretrainedPredictor, texts: Sequence[str]) -> list[Perplexity]:
    """The perplexity of each text; see `Model.perplexity`."""
    return perplexities(model.engine, model.tokenizer, checked_texts(texts))


def complete_lines(
    model: str | Path,
    blocks: Iterable[Sequence[str]],
    top: int = 5,
    tokens: int = 0,
    *,
    sampling: SamplingSettings | None = None,
    place: str = "text {:,}",
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
) -> Iterator[Completion]:
    """Each line with the `top` most likely next pieces, and a continuation of at most `tokens` pieces.

    Args:
        model: anything that `load` accepts, a language model.
        blocks: lists of lines; the lines of one list may be computed together.
        sampling: how the pieces of a continuation are chosen; by default the most likely.
        place: a format string that names a line by its number in errors.
        device, precision, products: as in `load`.
    """
    predictor = load_pretraining_heads(model, device=device, precision=precision, products=products, needs=["mlm"])
    number = 0
    for arrived in blocks:
        for lines in text_blocks(arrived, LINES):
            places = [place.format(number + 1 + index) for index in range(len(lines))]
            yield from complete(
                predictor.engine,
                predictor.tokenizer,
                lines,
                top=top,
                tokens=tokens,
                sampling=sampling,
                places=places,
            )
            number += len(lines)


def perplexity_of_file(
    file: str,
    model: str | Path,
    *,
    column: str | None = None,
    encoding: str = UTF_8,
    bad_bytes: str = "refuse",
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
) -> Perplexity:
    """How well a language model predicts the texts of a file, all together.

    Args:
        file: one text per line, or .csv, .tsv, .jsonl, .parquet (also .gz, .zst), or "-" for stdin.
        model: anything that `load` accepts, a language model.
        column: the column of a table that holds the texts.
        encoding: of a text file without a byte order mark, such as "cp1252".
        bad_bytes: "refuse" refuses a file with bytes that are not valid UTF-8; "drop" drops and counts them.
        device, precision, products: as in `load`.
    """
    source = TextLines(file, column, EncodingSettings(encoding=encoding, bad_bytes=bad_bytes))
    predictor = load_pretraining_heads(model, device=device, precision=precision, products=products, needs=["mlm"])
    require_directions(predictor.engine)
    blocks: list[Perplexity] = []
    with Progress("predicting", total=None, unit="texts") as progress:
        for lines in text_blocks(source, LINES):
            blocks.append(Perplexity.of_all(perplexities(predictor.engine, predictor.tokenizer, lines)))
            progress.advance(len(lines))
    source.tell_notes()
    total = Perplexity.of_all(blocks)
    if not total.pieces:
        raise InputError(
            expected=f"texts with pieces to predict in '{file}'", found="none", fix="give a file with text"
        )
    return total
