"""The preparation of an adaptation: the checked model, the text, the new vocabulary, the forecast."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bertsmith.adaptation.domain_text import DomainText, general_text, read_domain
from bertsmith.adaptation.forecast import (
    LEAST_WORDS,
    WORDS_PER_PIECE,
    Forecast,
    figures_of,
    require_enough,
    training_speed,
)
from bertsmith.adaptation.grafting import grafted_tokenizer, words_to_add
from bertsmith.adaptation.settings import ENOUGH_WORDS, FEW_TOKENS, GRAFT, KEEP, NEW, AdaptationSettings
from bertsmith.checkpoints.assembly import load_pretrained
from bertsmith.checkpoints.model_folder import ModelFolder
from bertsmith.documents.readers import ReadingSettings
from bertsmith.errors import CheckpointError, ConfigError
from bertsmith.runtime import choose
from bertsmith.settings import AUTO, require
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.wordpiece import WordPieceTokenizer
from bertsmith.vocabularies.learn import learn_vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """What an adaptation starts from.

    Attributes:
        folder: the model as it was.
        paths: the files and folders of the text.
        reading: how they are read.
        text: what the text says about the domain.
        general: sentences of documents of general text; empty if there is none.
        tokenizer: that of the adapted model.
        added: the words that its vocabulary has in addition.
        forecast: what is known before training.
        max_length: tokens per row.
        settings: those of the adaptation, with the way that was chosen.
    """

    folder: ModelFolder
    paths: Sequence[Path]
    reading: ReadingSettings
    text: DomainText
    general: tuple[tuple[str, ...], ...]
    tokenizer: Tokenizer
    added: tuple[str, ...]
    forecast: Forecast
    max_length: int
    settings: AdaptationSettings


def prepare(
    folder: ModelFolder,
    paths: Sequence[Path],
    settings: AdaptationSettings,
    reading: ReadingSettings,
    *,
    general: Sequence[Path] | None = None,
) -> Prepared:
    """The model and the text, read and checked, with the vocabulary of the adapted model.

    Args:
        general: files of general text; if empty, the documentation on this machine; None to read none.

    Raises:
        ConfigError, CheckpointError: the model has no masked-LM head or no WordPieces.
        InputError: the text cannot be read, or is too short.
    """
    _require_adaptable(folder)
    before = folder.require_tokenizer()
    text = read_domain(paths, before.rules, reading, held_out=settings.held_out, most_words=settings.score_words)
    chosen = settings
    if settings.vocabulary == AUTO:
        chosen = dataclasses.replace(settings, vocabulary=way_for(folder.metadata.all_tokens, text.words))
    require_enough(text, chosen)
    others = () if general is None else general_text(general, reading, most_words=settings.score_words)
    tokenizer, added = _vocabulary_of(before, text, chosen)
    runtime = choose(settings.device, settings.precision)
    length = min(settings.max_length, folder.config.max_tokens)
    return Prepared(
        folder=folder,
        paths=paths,
        reading=reading,
        text=text,
        general=others,
        tokenizer=tokenizer,
        added=tuple(added),
        forecast=_forecast(
            folder,
            text,
            tokenizer,
            len(added),
            training_speed(load_pretrained(folder).model, length, runtime),
            chosen,
            is_chosen=chosen is not settings,
        ),
        max_length=length,
        settings=chosen,
    )


def way_for(tokens_read: int | None, words: int) -> str:
    """How a model is adapted if the user does not say: a new model if the old one has read little and there is text.

    Args:
        tokens_read: tokens of the pre-training of the model; None if unknown.
        words: of the text.

    >>> way_for(5_000_000, 136_000), way_for(5_000_000, 2_000), way_for(None, 136_000)
    ('new', 'keep', 'keep')
    """
    has_read_little = tokens_read is not None and tokens_read < FEW_TOKENS
    return NEW if has_read_little and words >= ENOUGH_WORDS else KEEP


def prepared_from_scratch(prepared: Prepared) -> Prepared:
    """The same for a new model with a vocabulary of the domain."""
    settings = dataclasses.replace(prepared.settings, vocabulary=NEW)
    tokenizer, _ = _vocabulary_of(prepared.folder.require_tokenizer(), prepared.text, settings)
    return dataclasses.replace(prepared, tokenizer=tokenizer, added=(), settings=settings)


def _forecast(
    folder: ModelFolder,
    text: DomainText,
    after: Tokenizer,
    added: int,
    speed: float,
    settings: AdaptationSettings,
    *,
    is_chosen: bool,
) -> Forecast:
    before = folder.require_tokenizer()
    figures = figures_of(before, text.held_out_words, "before")
    return Forecast(
        documents=text.documents,
        words=text.words,
        before=figures,
        after=figures if after is before else figures_of(after, text.held_out_words, "after"),
        added=added,
        tokens_per_second=speed,
        settings=settings,
        tokens_read=folder.metadata.all_tokens,
        is_chosen=is_chosen,
    )


def _vocabulary_of(
    before: Tokenizer, text: DomainText, settings: AdaptationSettings
) -> tuple[Tokenizer, Sequence[str]]:
    """The tokenizer of the adapted model, and the words that were added to that of the model."""
    if settings.vocabulary == NEW:
        pieces = settings.pieces or min(len(before.vocabulary), max(LEAST_WORDS, text.words) // WORDS_PER_PIECE)
        rules = before.rules
        learned = learn_vocabulary(text.training, pieces, max_word_characters=rules.max_word_characters)
        return WordPieceTokenizer(learned, rules), ()
    if settings.vocabulary == GRAFT:
        words = words_to_add(text.training, before, settings.add)
        require(
            bool(words),
            expected="words of the domain to add to the vocabulary",
            found="none that it splits and that occur often enough",
            fix="use --vocabulary keep",
        )
        return grafted_tokenizer(before, words), words
    return before, ()


def _require_adaptable(folder: ModelFolder) -> None:
    """Checks that the model predicts masked pieces, and that its tokenizer is one of WordPieces.

    Raises:
        CheckpointError, ConfigError: it does not, or is not.
    """
    config, tokenizer = folder.config, folder.require_tokenizer()
    if config.is_causal or config.always_causal or config.two_directions or config.is_recurrent:
        raise ConfigError(
            expected="a model that predicts masked pieces",
            found=f"the language model '{folder.name}' ({config.display_name})",
            fix="continue its pre-training with `bertsmith pretrain CORPUS --init MODEL`",
        )
    if "mlm" not in folder.parts:
        raise CheckpointError(
            expected=f"a masked-LM head in '{folder.name}', whose loss is compared before and after",
            found=", ".join(folder.parts) or "an encoder without heads",
            fix="use the model as it was after pre-training, or give it a new head with "
            "`bertsmith pretrain CORPUS --init MODEL`",
        )
    require(
        tokenizer.settings == tokenizer.rules.record(),
        expected="a model with a tokenizer of WordPieces",
        found=f"one of {tokenizer.kind} in '{folder.name}'",
        fix="name a model with a vocab.txt",
    )
