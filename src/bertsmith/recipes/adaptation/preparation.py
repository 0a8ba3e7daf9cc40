"""The preparation of an adaptation: the checked model, the text, the new vocabulary, the forecast."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import warn
from bertsmith.base.core.settings import AUTO, require
from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.recipes.adaptation.domain_text import DomainText, general_text, read_domain
from bertsmith.recipes.adaptation.forecast import (
    LEAST_WORDS,
    WORDS_PER_PIECE,
    Forecast,
    figures_of,
    is_wordpiece,
    require_enough,
    training_speed,
    unknown_characters,
)
from bertsmith.recipes.adaptation.grafting import grafted_tokenizer, words_to_add
from bertsmith.recipes.adaptation.settings import ENOUGH_WORDS, FEW_TOKENS, GRAFT, KEEP, NEW, AdaptationSettings
from bertsmith.text.corpus.build import require_fit
from bertsmith.text.documents.readers import ReadingSettings
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """What an adaptation starts from."""

    folder: ModelFolder
    paths: Sequence[Path]
    reading: ReadingSettings
    text: DomainText
    general: tuple[tuple[str, ...], ...]  # sentences of documents of general text; empty if there is none
    tokenizer: Tokenizer  # that of the adapted model
    added: tuple[str, ...]  # the words that its vocabulary has in addition
    forecast: Forecast
    max_length: int  # tokens per row
    settings: AdaptationSettings  # those of the adaptation, with the way that was chosen


def prepare(
    folder: ModelFolder,
    paths: Sequence[Path],
    settings: AdaptationSettings,
    reading: ReadingSettings,
    *,
    general: Sequence[Path] | None = None,
    from_scratch: bool = False,
) -> Prepared:
    """The model and the text, read and checked, with the vocabulary of the adapted model.

    Args:
        general: files of general text; if empty, the documentation on this machine; None to read none.
        from_scratch: a new model is trained in any case, so that `AUTO` continues from this one.
    """
    before = folder.require_tokenizer()
    _require_adaptable(folder, settings.vocabulary)
    text = read_domain(paths, before.rules, reading, held_out=settings.held_out, most_words=settings.score_words)
    chosen = settings
    if settings.vocabulary == AUTO:
        read = folder.metadata.all_tokens if is_wordpiece(before) else None
        way = KEEP if from_scratch else way_for(read, text.words)
        chosen = dataclasses.replace(settings, vocabulary=way)
    require_enough(text, chosen)
    others = () if general is None else general_text(general, reading, most_words=settings.score_words)
    tokenizer, added = _vocabulary_of(before, text, chosen)
    runtime = choose(settings.device, settings.precision)
    length = min(settings.max_length, folder.config.max_tokens)
    if length < settings.max_length:
        warn(f"max_length reduced from {settings.max_length} to {length}, the positions of the model")
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
            from_scratch=from_scratch,
        ),
        max_length=length,
        settings=chosen,
    )


def way_for(tokens_read: int | None, words: int) -> str:
    """How a model is adapted if the user does not say: a new model if the old one has read little and there is text.

    Args:
        tokens_read: tokens of the pre-training of the model; None if unknown, or if its pieces allow no new model.

    >>> way_for(5_000_000, 136_000), way_for(5_000_000, 2_000), way_for(None, 136_000)
    ('new', 'keep', 'keep')
    """
    has_read_little = tokens_read is not None and tokens_read < FEW_TOKENS
    return NEW if has_read_little and words >= ENOUGH_WORDS else KEEP


def prepared_from_scratch(prepared: Prepared) -> Prepared:
    """The same for a new model with a vocabulary of the domain."""
    _require_adaptable(prepared.folder, NEW)
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
    from_scratch: bool,
) -> Forecast:
    before = folder.require_tokenizer()
    figures = figures_of(before, text.held_out_words, "before")
    return Forecast(
        model=folder.name,
        documents=text.documents,
        words=text.words,
        before=figures,
        after=figures if after is before else figures_of(after, text.held_out_words, "after"),
        unknown_characters=unknown_characters(before, text.held_out_words),
        added=added,
        tokens_per_second=speed,
        settings=settings,
        tokens_read=folder.metadata.all_tokens,
        is_chosen=is_chosen,
        from_scratch=from_scratch,
        is_wordpiece=is_wordpiece(before),
        notes=tuple(_notes(folder)),
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


def _require_adaptable(folder: ModelFolder, vocabulary: str) -> None:
    """Checks that the model can predict masked pieces, and that its tokenizer fits the way of the adaptation."""
    config, tokenizer = folder.config, folder.require_tokenizer()
    if config.is_causal or config.always_causal or config.two_directions or config.is_recurrent:
        reason = f"it is the language model {config.display_name}"
        fix = "continue its pre-training with `bertsmith pretrain CORPUS --init MODEL`"
        raise ConfigError.is_not(folder.name, "a model that predicts masked pieces", reason, fix)
    require(
        config.has_attention,
        expected="an encoder that reads its text in context",
        found=f"'{folder.name}' ({config.display_name})",
        fix="adapt the model that it was made from, or make it again",
    )
    require_fit(tokenizer, instead="")  # an adaptation takes no vocabulary
    if vocabulary not in (AUTO, KEEP) and not is_wordpiece(tokenizer):
        needed = f"a tokenizer of WordPieces, to extend or replace its pieces, not one of {tokenizer.kind}"
        raise ConfigError.needs("a new vocabulary", needed, "use --vocabulary keep, without --from-scratch")


def _notes(folder: ModelFolder) -> Iterator[str]:
    """What is different for a model without a masked-LM head, such as a sentence encoder."""
    if not has_masked_lm_head(folder):
        yield (
            f"'{folder.name}' has no masked-LM head, so a new one is trained with it, and there is no loss before the "
            "adaptation"
        )
        if read_recipe(folder.path, pooled=False) is not None:
            yield (
                "the adapted model is not a sentence encoder: train its vectors with `bertsmith finetune --task pairs`"
                ", for example with the original as --teacher"
            )


def has_masked_lm_head(folder: ModelFolder) -> bool:
    """Whether the loss of the model as it was can be measured."""
    return "mlm" in folder.parts
