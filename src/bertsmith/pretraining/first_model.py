"""The model that a pre-training starts from: a new one, or one that is continued; refused where it does not fit."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.checkpoints.architectures import read_config, require_architecture
from bertsmith.checkpoints.assembly import load_pretrained, untrained
from bertsmith.checkpoints.load import load_any
from bertsmith.checkpoints.model_folder import fit_vocabulary
from bertsmith.checkpoints.weights import digest_of_tensors
from bertsmith.corpus.shards import PIPELINE, Corpus
from bertsmith.errors import VocabularyError
from bertsmith.files import read_json
from bertsmith.heads.models import EncoderForPreTraining
from bertsmith.model.config import EncoderConfig
from bertsmith.pretraining.objectives import OBJECTIVES
from bertsmith.pretraining.recipes import objective_for
from bertsmith.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.progress import tell, warn
from bertsmith.runtime import memory_bytes
from bertsmith.settings import require
from bertsmith.text.normalize import TextRules
from bertsmith.text.wordpiece import WordPieceTokenizer

# Parameter, gradient and two moments, four bytes each.
BYTES_PER_PARAMETER = 16


def first_model(
    settings: PretrainingRunSettings, data: PretrainingDataSettings, seed: int, corpus: Corpus
) -> tuple[EncoderForPreTraining, dict[str, str], tuple[str, ...], Mapping[str, Any] | None]:
    """The initial model, the digest of its source, the parts that are kept though nothing trains them, and its history.

    The history is `continued_from` of the metadata, None for a new model.
    The pooler is such a part: fine-tuning starts better from the pooler of the source than from a random one.
    """
    objective = OBJECTIVES[data.objective]
    changes: dict[str, Any] = {"is_causal": objective.is_causal}
    if settings.init is not None:
        folder = load_any(settings.init)
        if settings.dropout is not None:
            changes |= folder.config.dropout_changes(settings.dropout)
        loaded = load_pretrained(folder, seed=seed, changes=changes)
        theirs, ours = loaded.tokenizer, corpus.tokenizer
        if theirs is not None and theirs.vocabulary.digest != ours.vocabulary.digest:
            raise VocabularyError(
                expected=f"a corpus made with the vocabulary of '{settings.init}'",
                found="one made with another vocabulary",
                fix=f"build the corpus again with `bertsmith corpus TEXT --model {settings.init} --out CORPUS`",
            )
        if theirs is not None:
            _check_rules(theirs.rules, corpus.rules, settings.init)
        _check_fit(loaded.model.config, settings, data, corpus)
        if missing := sorted(set(loaded.new_heads) & set(OBJECTIVES[data.objective].trained_parts)):
            tell(f"missing from the initial model, so randomly initialized: {', '.join(missing)}")
        carried = () if "pooler" in loaded.new_heads or changes["is_causal"] else ("pooler",)
        digests = {"init": digest_of_tensors(loaded.model.state_dict())}
        return loaded.model, digests, carried, folder.metadata.as_initial_model()
    config = _config(settings, len(corpus.tokenizer.vocabulary), changes)
    of_architecture: dict[str, Any] = dict(config.direction_changes(backward=objective.is_backward))
    if settings.dropout is not None:
        of_architecture |= config.dropout_changes(settings.dropout)
    config = dataclasses.replace(config, **of_architecture)
    _check_fit(config, settings, data, corpus)
    return untrained(config, seed, corpus.tokenizer.vocabulary), {}, (), None


def new_model(
    settings: PretrainingRunSettings, data: PretrainingDataSettings, seed: int, corpus: Corpus
) -> EncoderForPreTraining:
    """The model that a run with these settings starts from, before what it may take from the corpus.

    Raises:
        BertsmithError: the settings do not fit the corpus or each other.
    """
    return first_model(settings, data, seed, corpus)[0]


def _check_rules(theirs: TextRules, ours: TextRules, init: str) -> None:
    """Refuses a corpus that was built with other text rules than those of the model.

    Rules that differ only in rare characters or in very long words are allowed: a corpus from the vocab.txt of a Google
    checkpoint usually has them.
    """
    compared = ("lowercase", "strips_accents", "split_cjk", "split_unspaced")
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


def _config(settings: PretrainingRunSettings, pieces: int, changes: Mapping[str, Any]) -> EncoderConfig:
    if settings.config is not None:
        return dataclasses.replace(read_config(read_json(Path(settings.config))), **changes)
    assert settings.size is not None
    longest = 512 if settings.long_length is None else max(512, settings.long_length)
    shape: dict[str, Any] = {"vocab_size": pieces, "max_position_embeddings": longest}
    new = require_architecture(settings.architecture or "bert").config
    own = {
        "heads": ("num_attention_heads", settings.heads),
        "positions": ("position_embedding_type", settings.positions),
    }
    for option, (field, value) in own.items():
        if value is not None:
            require(
                field not in new.omitted,
                expected=f"an architecture with a choice of {option}",
                found=new.display_name,
                fix=f"leave --{option} out",
            )
            shape[field] = value
    return new.named(settings.size, **shape, **changes)


def _check_fit(
    config: EncoderConfig, settings: PretrainingRunSettings, data: PretrainingDataSettings, corpus: Corpus
) -> None:
    """Refuses an objective that does not fit the architecture, and rows longer than the model reads."""
    objective = OBJECTIVES[data.objective]
    require(
        config.two_directions == objective.two_directions,
        expected=f"an objective for the architecture {config.display_name}",
        found=data.objective,
        fix=f"use --objective {objective_for(config)}",
    )
    require(
        config.has_next_sentence or not data.pairs,
        expected=f"an objective without pairs for {config.display_name}, which has no next-sentence head",
        found=data.objective,
        fix=f"use --objective {objective_for(config)}",
    )
    require(
        not config.is_causal or config.always_causal or "is_causal" not in config.omitted,
        expected=f"a bidirectional objective for {config.display_name}, whose config.json cannot say left-to-right",
        found=data.objective,
        fix="use --objective mlm",
    )
    require(
        config.is_causal or not config.always_causal,
        expected=f"an objective that reads from left to right for {config.display_name}",
        found=data.objective,
        fix=f"use --objective {objective_for(config)}",
    )
    require(
        config.is_recurrent or not objective.carries_state,
        expected=f"an objective that reads rows for {config.display_name}, which has no state to carry",
        found=data.objective,
        fix=f"use --objective {objective_for(config)}",
    )
    require(
        config.reads_backward == objective.is_backward,
        expected=f"an objective that reads {'backward' if config.reads_backward else 'forward'}, as the model does",
        found=data.objective,
        fix=f"use --objective {objective_for(config)}",
    )
    require(
        settings.sampled_pieces is None or config.two_directions,
        expected=f"the whole vocabulary in the loss of the architecture {config.display_name}",
        found=f"{settings.sampled_pieces} sampled pieces",
        fix="leave --sampled-pieces out",
    )
    is_wordpiece = isinstance(corpus.tokenizer, WordPieceTokenizer)
    require(
        is_wordpiece or not config.spells_pieces,
        expected=f"a corpus of WordPieces for {config.display_name}, which reads how a piece is spelled",
        found=f"pieces of '{corpus.folder / PIPELINE}'",
        fix="build the corpus with a vocab.txt, or train another architecture",
    )
    require(
        is_wordpiece or not data.whole_word,
        expected="a corpus of WordPieces for masks of whole words",
        found=f"pieces of '{corpus.folder / PIPELINE}'",
        fix="leave --whole-word out, or build the corpus with a vocab.txt",
    )
    longest = max(data.max_length, settings.long_length or 0)
    require(
        longest <= config.max_tokens,
        expected=f"rows of at most {config.max_tokens} tokens, the model's positions",
        found=longest,
        fix="lower max_length or long_length",
    )
    needed = BYTES_PER_PARAMETER * config.num_parameters(heads=True)
    available = memory_bytes()
    require(
        not available or needed < available,
        expected=f"a model that fits into the memory of {available / 2**30:.0f} GiB",
        found=f"one that needs {needed / 2**30:.0f} GiB for parameters, gradients and moments",
        fix="choose a smaller model",
    )
    fit_vocabulary(corpus.tokenizer.vocabulary, config, "the model to train")
