"""Reads and writes the tokenizer files of a Hugging Face folder without Hugging Face's libraries.

`tokenizer.json` repeats the vocabulary and describes the rules as a pipeline; `tokenizer_config.json` names the class
and its switches. The rules of BERT's later original code (other control characters, 200 characters per word) and the
splitting of scripts without spaces have no switch there: they are written as a pipeline, with the general class that
runs it. WordPieces are those of `wordpiece_files.py`.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertsmith.checkpoints.bpe_json import (
    BYTE_LEVEL,
    END_OF_WORD,
    ONLY_UNKNOWN,
    byte_level_json,
    gpt_json,
    template_json,
)
from bertsmith.checkpoints.metadata import ModelMetadata
from bertsmith.checkpoints.wordpiece_files import (
    SPLIT_UNSPACED,
    content_of,
    read_object,
    read_wordpiece,
    tokenizer_json,
)
from bertsmith.errors import ConfigError, VocabularyError
from bertsmith.files import require_file, write_json
from bertsmith.model.config import EncoderConfig
from bertsmith.text.normalize import TextRules
from bertsmith.text.pipeline import PipelineTokenizer
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import CLS, UNK, SpecialPieces
from bertsmith.text.wordpiece import WordPieceTokenizer

Describe = Callable[[Path], tuple[Path, dict[str, Any]] | None]


def tokenizer_config(tokenizer: WordPieceTokenizer, config: EncoderConfig) -> dict[str, Any]:
    """The content of `tokenizer_config.json`."""
    rules = tokenizer.rules
    plain = TextRules(lowercase=rules.lowercase, strip_accents=rules.strip_accents, split_cjk=rules.split_cjk)
    return {
        **_special_tokens(tokenizer),
        "do_lower_case": rules.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.split_cjk,
        **({SPLIT_UNSPACED: True} if rules.split_unspaced else {}),
        "model_input_names": _model_inputs(config),
        "model_max_length": config.max_tokens,
        # BertTokenizer builds its own pipeline from the switches; the general class uses the one in tokenizer.json.
        "tokenizer_class": "BertTokenizer" if rules == plain else "PreTrainedTokenizerFast",
    }


def read_tokenizer(
    folder: Path, metadata: ModelMetadata, usual: SpecialPieces = BYTE_LEVEL, describe: Describe | None = None
) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer of a folder whose architecture does not say which kind it is, and notes; None without a vocabulary.

    Args:
        metadata: see `read_wordpiece`.
        usual, describe: see `read_pipeline`, for a vocabulary of another kind than WordPiece.

    Raises:
        BertsmithError: see `read_wordpiece` and `read_pipeline`.
    """
    description, lines = read_object(folder / "tokenizer.json"), folder / "vocab.txt"
    model = description.get("model")
    model = model if isinstance(model, dict) else {}
    kind = model.get("type")
    if kind == "WordPiece" and CLS not in model.get("vocab", ()):  # as in MPNet
        return read_pipeline(folder, metadata, BYTE_LEVEL._replace(unk=UNK))
    if kind is None and lines.exists() and CLS not in lines.read_text(encoding="utf-8").split("\n"):
        raise VocabularyError(
            expected=f"a tokenizer.json in '{folder}' for a vocab.txt without {CLS}",
            found="none",
            fix="copy the tokenizer.json of the model",
        )
    if kind == "WordPiece" or (kind is None and lines.exists()):
        return read_wordpiece(folder, metadata)
    if (kind == "BPE" and model.get("end_of_word_suffix")) or (not description and _marks_ends(folder / "vocab.json")):
        return read_gpt_tokenizer(folder, metadata)
    return read_pipeline(folder, metadata, usual, describe)


def _marks_ends(path: Path) -> bool:
    """Whether the pieces of a `vocab.json` carry GPT's mark of the end of a word."""
    return path.exists() and any(piece.endswith(END_OF_WORD) for piece in read_object(path))


def read_pipeline(
    folder: Path, metadata: ModelMetadata, usual: SpecialPieces = BYTE_LEVEL, describe: Describe | None = None
) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer in `tokenizer.json`, or a byte-level BPE from `vocab.json` and `merges.txt`.

    Args:
        metadata: not used; the description is complete.
        usual: the special pieces, where the files do not name them.
        describe: returns an older file of the folder and the description in it, or None.

    Raises:
        CheckpointError: the description cannot be run.
        VocabularyError: a special piece is missing.
        InputError: a file is damaged.
    """
    special = _special_named(folder, usual)
    description = read_object(folder / "tokenizer.json")
    if description:
        return PipelineTokenizer(description, special, source=f"'{folder / 'tokenizer.json'}'"), []
    older = None if describe is None else describe(folder)
    if older is not None:
        return PipelineTokenizer(older[1], special, source=f"'{older[0]}'"), []
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    if not (vocabulary.exists() and merges.exists()):
        return None, []
    described = byte_level_json(read_object(vocabulary), merges.read_text(encoding="utf-8").splitlines(), special)
    return PipelineTokenizer(described, special, source=f"'{vocabulary}'"), []


def _special_named(folder: Path, usual: SpecialPieces) -> SpecialPieces:
    """The special pieces that the files of a tokenizer name; the usual ones for what they leave out.

    Raises:
        InputError: a file is damaged.
    """
    config = read_object(folder / "special_tokens_map.json") | read_object(folder / "tokenizer_config.json")
    named = {field: content_of(config.get(f"{field}_token")) or piece for field, piece in usual._asdict().items()}
    return SpecialPieces(**named)


def read_gpt_tokenizer(folder: Path, metadata: ModelMetadata) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer of a folder with a GPT, and notes; None if there is no vocabulary.

    It is that of `tokenizer.json`, or of `vocab.json` and `merges.txt`; a GPT that was trained here has WordPieces.

    Args:
        metadata: see `read_wordpiece`.

    Raises:
        BertsmithError: as for `read_wordpiece` and `read_pipeline`.
    """
    description, vocabulary = read_object(folder / "tokenizer.json"), folder / "vocab.json"
    source = folder / "tokenizer.json"
    if not description and vocabulary.exists() and not (folder / "vocab.txt").exists():
        require_file(folder / "merges.txt", "the merges of the vocabulary next to it")
        merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        description, source = gpt_json(read_object(vocabulary), merges), vocabulary
    model = description.get("model")
    if not (isinstance(model, dict) and model.get("type") == "BPE"):
        return read_tokenizer(folder, metadata)
    if description.get("post_processor") is None:
        description = {**description, "post_processor": template_json([], [], [])}
    return PipelineTokenizer(description, _special_named(folder, ONLY_UNKNOWN), source=f"'{source}'"), []


def write_tokenizer(folder: Path, tokenizer: Tokenizer, config: EncoderConfig) -> None:
    """Writes the files from which `transformers` builds the same tokenizer.

    Args:
        config: of the model, which determines its inputs.
    """
    if isinstance(tokenizer, WordPieceTokenizer):
        tokenizer.vocabulary.save(folder / "vocab.txt")
        description, settings = tokenizer_json(tokenizer), tokenizer_config(tokenizer, config)
    else:
        assert isinstance(tokenizer, PipelineTokenizer), "a tokenizer that can be described"
        description = tokenizer.description
        settings = {
            **_special_tokens(tokenizer),
            "model_input_names": _model_inputs(config),
            "model_max_length": config.max_tokens,
            "tokenizer_class": "PreTrainedTokenizerFast",
        }
    write_json(folder / "tokenizer.json", description)
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "special_tokens_map.json", _special_tokens(tokenizer))


def with_rules(tokenizer: Tokenizer, rules: TextRules) -> Tokenizer:
    """The same vocabulary with other text rules.

    Raises:
        ConfigError: the tokenizer is not WordPiece; only WordPiece has such rules.
    """
    if not isinstance(tokenizer, WordPieceTokenizer):
        raise ConfigError(
            expected="text rules (--cased, --uncased) for a WordPiece vocabulary",
            found="a tokenizer defined by its tokenizer.json",
            fix="leave the option out; the file defines how text is cleaned",
        )
    return WordPieceTokenizer(tokenizer.vocabulary, rules)


def lowercased(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, but for texts that are lower-cased first."""
    if isinstance(tokenizer, WordPieceTokenizer):
        before = tokenizer.rules
        rules = dataclasses.replace(before, lowercase=True, strip_accents=before.strips_accents)
        return WordPieceTokenizer(tokenizer.vocabulary, rules)
    assert isinstance(tokenizer, PipelineTokenizer), "a tokenizer that can be described"
    steps = [{"type": "Lowercase"}, tokenizer.description.get("normalizer")]
    normalizer = {"type": "Sequence", "normalizers": [step for step in steps if step is not None]}
    description = {**tokenizer.description, "normalizer": normalizer}
    return PipelineTokenizer(description, tokenizer.vocabulary.special, source=tokenizer.source)


def with_segments(tokenizer: Tokenizer, count: int) -> Tokenizer:
    """The tokenizer of a model with `count` segments; if there is one, all tokens are in it, whatever its files say."""
    if count == 1:
        tokenizer.template = dataclasses.replace(tokenizer.template, second_segment=0)
    return tokenizer


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    special = tokenizer.vocabulary.special._asdict()
    return {f"{name}_token": special[name] for name in sorted(special) if special[name]}


def _model_inputs(config: EncoderConfig) -> list[str]:
    """The arguments of the model in `transformers`; with fewer than two segments there are no segment ids."""
    segments = ["token_type_ids"] if config.type_vocab_size > 1 else []
    return ["input_ids", *segments, "attention_mask"]
