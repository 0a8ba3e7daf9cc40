"""Checks that a pre-training is possible: corpus and initial model, objective and architecture, model and memory."""

import numpy as np

from bertsmith.base.core.errors import VocabularyError
from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import memory_bytes
from bertsmith.models.checkpoints.model_folder import fit_vocabulary
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.text.corpus.manifest import PIPELINE
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.pack import require_positions
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.recipes import objective_for
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings

# Parameter, gradient and two moments, four bytes each.
BYTES_PER_PARAMETER = 16
FEW_HELD_OUT = 2_000  # tokens, of which about 300 are masked: the loss is then known to about 0.2 nats


def check_vocabulary(theirs: Vocabulary, corpus: Corpus, init: str) -> None:
    """Refuses a corpus that was built with another vocabulary than the model's."""
    if theirs.digest != corpus.tokenizer.vocabulary.digest:
        raise VocabularyError(
            expected=f"a corpus made with the vocabulary of '{init}'",
            found="one made with another vocabulary",
            fix=f"build the corpus again with `bertsmith corpus TEXT --model {init} --out CORPUS`",
        )


def check_rules(theirs: TextRules, ours: TextRules, init: str) -> None:
    """Refuses a corpus that was built with other text rules than the model's.

    Rules that differ only in rare characters or in very long words are allowed: a corpus from the vocab.txt of a Google
    checkpoint usually has them.
    """
    compared = ("lowercase", "strips_accents", "split_cjk", "split_unspaced", "keeps_letter_marks")
    differing = [name for name in compared if getattr(theirs, name) != getattr(ours, name)]
    require(
        not differing,
        expected=f"a corpus built with the text rules of '{init}': "
        + ", ".join(f"{name} {getattr(theirs, name)}" for name in differing),
        found=", ".join(f"{name} {getattr(ours, name)}" for name in differing),
        fix=f"build the corpus again with --model {init}",
    )
    if (theirs.control_rule, theirs.max_word_characters) != (ours.control_rule, ours.max_word_characters):
        warn(
            f"'{init}' has the text rules {theirs.control_rule}, with words of at most {theirs.max_word_characters} "
            f"characters; the corpus, and so the new model, has {ours.control_rule} and {ours.max_word_characters}"
        )


def check_precision(precision: str) -> None:
    """Refuses fp16, which has no loss scale here; see docs/decisions/0027-training-on-a-gpu.md."""
    require(
        precision != "fp16",
        expected="bf16 or fp32 for training",
        found="fp16, whose gradients underflow without loss scaling",
        fix="use --precision bf16 or fp32",
    )


def tell_of_few_held_out(held_out: Corpus | None) -> None:
    """Tells the user if the held-out part is so short that its scores are a matter of chance."""
    if held_out is not None and held_out.num_tokens < FEW_HELD_OUT:
        tell(
            f"held out: {counted(held_out.num_tokens, 'token')}, too few for scores that mean something; for more, "
            "set another --held-out in `bertsmith corpus`, or give more and shorter documents (--form)"
        )


def check_row_lengths(config: EncoderConfig, settings: PretrainingRunSettings, data: PretrainingDataSettings) -> None:
    """Returns if the model has a position for each token of the longest rows.

    Raises:
        ConfigError: it has fewer.
    """
    for name, length in (("max_length", data.max_length), ("long_length", settings.long_length or 0)):
        require_positions(length, config.max_tokens, name=name, fix="a longer document fills several rows")


def check_fit(
    config: EncoderConfig, settings: PretrainingRunSettings, data: PretrainingDataSettings, corpus: Corpus
) -> None:
    """Refuses an objective that does not fit the architecture, and rows longer than the model reads."""
    objective = OBJECTIVES[data.objective]
    require(
        not config.is_static,
        expected="an encoder whose vectors depend on the neighbors of a token, for pre-training",
        found=config.display_name,
        fix="make static vectors from an encoder with `bertsmith vectors static`",
    )

    def fits(condition: bool, expected: str) -> None:
        require(condition, expected=expected, found=data.objective, fix=f"use --objective {objective_for(config)}")

    fits(
        config.two_directions == objective.two_directions,
        f"an objective for the architecture {config.display_name}",
    )
    fits(
        config.has_next_sentence or not data.pairs,
        f"an objective without pairs for {config.display_name}, which has no next-sentence head",
    )
    require(
        not config.is_causal or config.always_causal or "is_causal" not in config.omitted,
        expected=f"a bidirectional objective for {config.display_name}, whose config.json cannot say left-to-right",
        found=data.objective,
        fix="use --objective mlm",
    )
    fits(
        config.is_causal or not config.always_causal,
        f"an objective that reads from left to right for {config.display_name}",
    )
    fits(
        config.is_recurrent or config.two_directions or not objective.carries_state,
        f"an objective that reads rows for {config.display_name}, which has no state to carry",
    )
    fits(
        config.reads_backward == objective.is_backward,
        f"an objective that reads {'backward' if config.reads_backward else 'forward'}, as the model does",
    )
    require(
        settings.sampled_pieces is None or config.two_directions,
        expected=f"the whole vocabulary in the loss of the architecture {config.display_name}",
        found=f"{settings.sampled_pieces} sampled pieces",
        fix="leave --sampled-pieces out",
    )
    is_wordpiece, pieces = isinstance(corpus.tokenizer, WordPieceTokenizer), f"pieces of '{corpus.folder / PIPELINE}'"
    require(
        is_wordpiece or not config.spells_pieces,
        expected=f"a corpus of WordPieces for {config.display_name}, which reads how a piece is spelled",
        found=pieces,
        fix="build the corpus with a vocab.txt, or train another architecture",
    )
    require(
        is_wordpiece or not data.whole_word,
        expected="a corpus of WordPieces for masks of whole words",
        found=pieces,
        fix="leave --whole-word out, or build the corpus with a vocab.txt",
    )
    check_row_lengths(config, settings, data)
    needed = BYTES_PER_PARAMETER * config.num_parameters(heads=True)
    available = memory_bytes()
    require(
        not available or needed < available,
        expected=f"a model that fits into the memory of {available / 2**30:.0f} GiB",
        found=f"one that needs {needed / 2**30:.0f} GiB for parameters, gradients and moments",
        fix="choose a smaller model",
    )
    fit_vocabulary(corpus.tokenizer.vocabulary, config, "the model to train")


# The share of documents that may be single sentences: the corpus checks give advice from the same one on.
MOST_SINGLE = 0.5


def warn_without_running_text(corpus: Corpus, data: PretrainingDataSettings) -> str:
    """Warns if a run reads text in order, but most documents are single sentences; returns the warning, or "".

    What is before such a sentence, in the state of the model or in its row, then says nothing about it: the sentences
    are in random order, or blank lines divide them.
    """
    if data.contiguous:
        use = f"rows of up to {data.max_length} tokens hold one sentence each"
    elif OBJECTIVES[data.objective].carries_state:
        use = "the state that is carried from one to the next says nothing about it"
    else:
        return ""
    single = int((corpus.sentence_counts == 1).sum())
    if single <= MOST_SINGLE * corpus.num_documents:
        return ""
    result = (
        f"{single:,} of {corpus.num_documents:,} documents are a single sentence, with a median of "
        f"{np.median(corpus.document_lengths):.0f} tokens, so {use}; for running text, keep the sentences in order and "
        "put blank lines only between documents"
    )
    warn(result)
    return result
