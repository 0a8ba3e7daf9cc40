"""Reads the tokenizer files of a Hugging Face folder without Hugging Face's libraries.

`tokenizer.json` repeats the vocabulary and describes the rules as a pipeline; `tokenizer_config.json` names the class
and its switches. They are written by `tokenizer_writing.py`.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertsmith.errors import ConfigError, InputError, VocabularyError
from bertsmith.files import read_json, require_file
from bertsmith.model_files.bpe_json import (
    BYTE_LEVEL,
    ONLY_UNKNOWN,
    byte_level_json,
    gpt_json,
    template_json,
)
from bertsmith.model_files.metadata import ModelMetadata
from bertsmith.settings import from_dict
from bertsmith.text.normalize import TextRules
from bertsmith.text.pipeline import PipelineTokenizer
from bertsmith.text.text_rules_json import rules_in
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import CLS, END_OF_WORD, UNK, SpecialPieces, Vocabulary
from bertsmith.text.wordpiece import WordPieceTokenizer

# Rules with a switch of our own in tokenizer_config.json; transformers ignores it.
OWN_SWITCHES = ("split_unspaced", "keep_letter_marks")


def read_wordpiece(folder: Path, metadata: ModelMetadata) -> tuple[WordPieceTokenizer | None, list[str]]:
    """The WordPiece tokenizer of a folder and notes on where its rules come from; None if there is no vocabulary.

    Args:
        metadata: its text rules take precedence over those in other files.

    Raises:
        VocabularyError: the vocabulary is invalid, or `vocab.txt` and `tokenizer.json` disagree.
        InputError, ConfigError: a file is damaged.
    """
    pipeline = read_object(folder / "tokenizer.json")
    vocabulary = _read_vocabulary(folder, pipeline)
    if vocabulary is None:
        return None, []
    rules, notes = read_rules(folder, pipeline, vocabulary, metadata)
    return WordPieceTokenizer(vocabulary, rules), notes


def read_rules(
    folder: Path, pipeline: dict[str, Any], vocabulary: Vocabulary, metadata: ModelMetadata
) -> tuple[TextRules, list[str]]:
    """The rules of a folder: from the metadata, from the tokenizer's files, or guessed from the vocabulary.

    Raises:
        InputError, ConfigError: a file is damaged.
    """
    if metadata.text_rules is not None:
        where = f"text_rules of '{folder / 'bertsmith.json'}'"
        return from_dict(TextRules, metadata.text_rules, where), []
    switches = read_object(folder / "tokenizer_config.json")
    found = rules_in(pipeline)
    for switch, field in (
        ("do_lower_case", "lowercase"),
        ("strip_accents", "strip_accents"),
        ("tokenize_chinese_chars", "split_cjk"),
        *((name, name) for name in OWN_SWITCHES),
    ):
        if switch in switches:
            found[field] = switches[switch]
    found = {field: value for field, value in found.items() if value is not None}
    for field, value in found.items():
        if not isinstance(value, bool):
            raise InputError(
                expected=f"true or false for {field} in the tokenizer files of '{folder}'",
                found=repr(value),
                fix="correct it",
            )
    if longest := _longest_word(pipeline):
        found["max_word_characters"] = longest
    if "lowercase" in found:
        return TextRules(**found), []
    return guess_rules(vocabulary)


def guess_rules(vocabulary: Vocabulary, name: str = "huggingface") -> tuple[TextRules, list[str]]:
    """The rules of that name that fit a vocabulary when nothing else is known, and a note that says so."""
    rules = TextRules.named(name, lowercase=not vocabulary.is_cased)
    kind = "has capital letters: cased" if vocabulary.is_cased else "has hardly any capital letters: uncased"
    return rules, [f"no file says how text is cleaned; the vocabulary {kind}"]


def content_of(token: Any) -> str | None:
    """The piece in an entry of `tokenizer_config.json`: a string, or an object with its content."""
    result = token.get("content") if isinstance(token, dict) else token
    return result if isinstance(result, str) else None


def _read_vocabulary(folder: Path, pipeline: dict[str, Any]) -> Vocabulary | None:
    path = folder / "vocab.txt"
    lines = Vocabulary.load(path) if path.exists() else None
    pieces = _pieces(pipeline, folder / "tokenizer.json")
    if lines is not None and pieces is not None and lines.pieces != tuple(pieces[: len(lines)]):
        raise VocabularyError(
            expected=f"the same pieces in vocab.txt and tokenizer.json of '{folder}'",
            found="different ones",
            fix="remove the file that does not belong to the model",
        )
    if pieces is not None and (lines is None or len(pieces) > len(lines)):
        return Vocabulary(pieces, source=f"'{folder / 'tokenizer.json'}'")
    return lines


def _pieces(pipeline: dict[str, Any], path: Path) -> list[str] | None:
    """The pieces in a `tokenizer.json` in order of their ids, added ones included; None if it is not WordPiece."""
    model = pipeline.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict) or model.get("type") != "WordPiece":
        return None
    ids: dict[Any, Any] = dict(model["vocab"])
    added = pipeline.get("added_tokens")
    for token in added if isinstance(added, list) else []:
        if isinstance(token, dict) and isinstance(token.get("content"), str):
            ids.setdefault(token["content"], token.get("id"))
    by_id = {id: piece for piece, id in ids.items() if type(id) is int}
    if sorted(by_id) != list(range(len(ids))):
        raise VocabularyError(
            expected=f"ids 0 to {len(ids) - 1}, each once, in '{path}'",
            found="other ids",
            fix="restore the file, or put the vocab.txt of the model next to it",
        )
    return [by_id[id] for id in range(len(ids))]


def _longest_word(pipeline: dict[str, Any]) -> int | None:
    model = pipeline.get("model")
    longest = model.get("max_input_chars_per_word") if isinstance(model, dict) else None
    return longest if type(longest) is int else None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no file."""
    if not path.exists():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(expected=f"a JSON object in '{path}'", found=type(value).__name__, fix="restore the file")
    return value


Describe = Callable[[Path], tuple[Path, dict[str, Any]] | None]


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
    if kind is None and lines.exists() and CLS.encode() not in lines.read_bytes().splitlines():
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
