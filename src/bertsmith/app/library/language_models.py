"""Texts through a language model: `Model.complete` and `Model.perplexity`, and both for files and streams of lines."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bertsmith.app.library.abilities import OF_TASKS
from bertsmith.app.library.inputs import require_count
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress
from bertsmith.base.core.settings import from_dict, require_known, require_number
from bertsmith.inference.predictors.completion import Completion, complete
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.inference.predictors.named_labels import asking, pairs_of_labels
from bertsmith.inference.predictors.perplexity import Perplexity, perplexities, require_directions
from bertsmith.inference.predictors.predictor import Predictor, answering
from bertsmith.inference.predictors.pretraining_heads import PretrainedPredictor
from bertsmith.inference.predictors.request import (
    CompleteRequest,
    PerplexityRequest,
    SamplingSettings,
    SelectionSettings,
)
from bertsmith.inference.predictors.selective import selective
from bertsmith.inference.predictors.streaming import OnText, StreamingPredictor
from bertsmith.tasks.datasets.blocks import named_blocks, text_blocks
from bertsmith.tasks.datasets.examples import TextExample, named_texts
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.text.documents.encodings import EncodingSettings

LINES = 1024  # completed together


def complete_texts(
    model: PretrainedPredictor,
    texts: Sequence[TextExample],
    top: int,
    tokens: int,
    on_text: OnText | None = None,
    **sampling: Any,
) -> list[Completion]:
    """The completions of some texts; see `Model.complete`."""
    require_count(top, "top")
    require_number("tokens", tokens, least=0)
    chosen = from_dict(SamplingSettings, sampling, "the options of complete")
    return complete(model.engine, model.tokenizer, texts, top=top, tokens=tokens, sampling=chosen, on_text=on_text)


def searching(predictor: Predictor, on_text: OnText | None = None, **search: Any) -> Predictor:
    """A predictor with other settings of its answers; see the methods of `Model`."""
    named, question = search.pop("labels", None), search.pop("question", None)
    labels = question if named is None else pairs_of_labels(named)
    predictor = asking(predictor, labels, search.pop("threshold", None), search.pop("overlap", None))
    task, shares = predictor.task, {name: search.pop(name) for name in ("accuracy", "coverage") if name in search}
    if shares:
        return selective(predictor, SelectionSettings(**shares))
    for name in search:
        if task.settings_of_answers:
            require_known(f"option of {OF_TASKS[task.spec.kind]}:", name, task.settings_of_answers)
    predictor = answering(predictor, **search)
    return predictor if on_text is None else StreamingPredictor(predictor, on_text)


def complete_lines(
    request: CompleteRequest, blocks: Iterable[Sequence[str]], name: str = "text {:,}"
) -> Iterator[Completion]:
    """Each line with the most likely next pieces, and a continuation.

    Args:
        blocks, name: see `named_blocks`.
    """
    predictor = load_pretraining_heads(request.model, needs=["mlm"], **request.arguments(load_pretraining_heads))
    settings = request.arguments(complete)  # top and tokens
    sampling = request.part(SamplingSettings)
    for lines, names in named_blocks(blocks, LINES, name):
        texts = named_texts(lines, names)
        yield from complete(predictor.engine, predictor.tokenizer, texts, sampling=sampling, **settings)


def perplexity_of_file(request: PerplexityRequest) -> Perplexity:
    """How well a language model predicts the texts of a file, all together."""
    source = TextLines(request.file, request.column, request.part(EncodingSettings))
    predictor = load_pretraining_heads(request.model, needs=["mlm"], **request.arguments(load_pretraining_heads))
    require_directions(predictor.engine)
    blocks: list[Perplexity] = []
    with Progress("predicting", total=None, unit="texts") as progress:
        for lines in text_blocks(source, LINES):
            texts = named_texts(lines)
            blocks.append(Perplexity.of_all(perplexities(predictor.engine, predictor.tokenizer, texts)))
            progress.advance(len(lines))
    source.tell_notes()
    total = Perplexity.of_all(blocks)
    if not total.pieces:
        raise InputError(
            expected=f"texts with pieces to predict in '{request.file}'", found="none", fix="give a file with text"
        )
    return total
