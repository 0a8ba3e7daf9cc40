"""Reads and writes the tokenizer files of a Hugging Face folder without Hugging Face's libraries.

`tokenizer.json` repeats the vocabulary and describes the rules as a pipeline; `tokenizer_config.json` names the class
and its switches. The rules of BERT's later original code (other control characters, 200 characters per word) have no
switch there: they are written as a pipeline, with the general class that runs it.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertsmith.checkpoints.bpe_json import ONLY_UNKNOWN, byte_level_json, gpt_json, template_json
from bertsmith.checkpoints.metadata import ModelMetadata
from bertsmith.errors import ConfigError, InputError, VocabularyError
from bertsmith.files import read_json, require_file, write_json
from bertsmith.model.config import EncoderConfig
from bertsmith.settings import from_dict
from bertsmith.text.normalize import TextRules
from bertsmith.text.pipeline import PipelineTokenizer
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import CLS, CONTINUATION, SEP, SPECIAL_PIECES, UNK, SpecialPieces, Vocabulary
from bertsmith.text.wordpiece import WordPieceTokenizer

_BYTE_LEVEL = SpecialPieces(pad="<pad>", unk="<unk>", cls="<s>", sep="</s>", mask="<mask>")  # as RoBERTa spells them

Describe = Callable[[Path], tuple[Path, dict[str, Any]] | None]

# Drops categories Cc and Cf and the replacement character; then white space becomes spaces. Oniguruma's syntax.
_GOOGLE_DROPS = r"[\p{Cc}\p{Cf}\x{FFFD}&&[^\t\n\r]]"
_GOOGLE_SPACES = r"[\t\n\r\p{Zs}]"


def tokenizer_json(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    """The content of `tokenizer.json`."""
    vocabulary, rules = tokenizer.vocabulary, tokenizer.rules
    cls, sep = _special(CLS), _special(SEP)
    first, second = _sequence("A", 0), _sequence("B", 1)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocabulary.index[piece],
                "content": piece,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for piece in sorted(SPECIAL_PIECES, key=vocabulary.index.__getitem__)
        ],
        "normalizer": _normalizer(rules),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, first, sep],
            "pair": [cls, first, sep, second, _special(SEP, 1)],
            "special_tokens": {
                piece: {"id": piece, "ids": [vocabulary.index[piece]], "tokens": [piece]} for piece in (CLS, SEP)
            },
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": UNK,
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": rules.max_word_characters,
            "vocab": dict(vocabulary.index),
        },
    }


def tokenizer_config(tokenizer: WordPieceTokenizer, config: EncoderConfig) -> dict[str, Any]:
    """The content of `tokenizer_config.json`."""
    rules = tokenizer.rules
    plain = TextRules(lowercase=rules.lowercase, strip_accents=rules.strip_accents, split_cjk=rules.split_cjk)
    return {
        **_special_tokens(tokenizer),
        "do_lower_case": rules.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.split_cjk,
        "model_input_names": _model_inputs(config),
        "model_max_length": config.max_tokens,
        # BertTokenizer builds its own pipeline from the switches; the general class uses the one in tokenizer.json.
        "tokenizer_class": "BertTokenizer" if rules == plain else "PreTrainedTokenizerFast",
    }


def read_wordpiece(folder: Path, metadata: ModelMetadata) -> tuple[WordPieceTokenizer | None, list[str]]:
    """The WordPiece tokenizer of a folder and notes on where its rules come from; None if there is no vocabulary.

    Args:
        metadata: its text rules take precedence over those in other files.

    Raises:
        VocabularyError: the vocabulary is invalid, or `vocab.txt` and `tokenizer.json` disagree.
        InputError, ConfigError: a file is damaged.
    """
    pipeline = _read_object(folder / "tokenizer.json")
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
    switches = _read_object(folder / "tokenizer_config.json")
    normalizer = pipeline.get("normalizer")
    found: dict[str, Any] = {}
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        found = {
            "lowercase": normalizer.get("lowercase"),
            "strip_accents": normalizer.get("strip_accents"),
            "split_cjk": normalizer.get("handle_chinese_chars"),
        }
    for switch, field in (
        ("do_lower_case", "lowercase"),
        ("strip_accents", "strip_accents"),
        ("tokenize_chinese_chars", "split_cjk"),
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


def read_tokenizer(
    folder: Path, metadata: ModelMetadata, usual: SpecialPieces = _BYTE_LEVEL, describe: Describe | None = None
) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer of a folder whose architecture does not say which kind it is, and notes; None without a vocabulary.

    Args:
        metadata: see `read_wordpiece`.
        usual, describe: see `read_pipeline`, for a vocabulary of another kind than WordPiece.

    Raises:
        BertsmithError: see `read_wordpiece` and `read_pipeline`.
    """
    description, lines = _read_object(folder / "tokenizer.json"), folder / "vocab.txt"
    model = description.get("model")
    is_wordpiece = isinstance(model, dict) and model.get("type") == "WordPiece"
    if isinstance(model, dict) and is_wordpiece and CLS not in model.get("vocab", ()):  # as in MPNet
        return read_pipeline(folder, metadata, _BYTE_LEVEL._replace(unk=UNK))
    if not is_wordpiece and lines.exists() and CLS not in lines.read_text(encoding="utf-8").split("\n"):
        raise VocabularyError(
            expected=f"a tokenizer.json in '{folder}' for a vocab.txt without {CLS}",
            found="none",
            fix="copy the tokenizer.json of the model",
        )
    if is_wordpiece or lines.exists():
        return read_wordpiece(folder, metadata)
    return read_pipeline(folder, metadata, usual, describe)


def read_pipeline(
    folder: Path, metadata: ModelMetadata, usual: SpecialPieces = _BYTE_LEVEL, describe: Describe | None = None
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
    description = _read_object(folder / "tokenizer.json")
    if description:
        return PipelineTokenizer(description, special, source=f"'{folder / 'tokenizer.json'}'"), []
    older = None if describe is None else describe(folder)
    if older is not None:
        return PipelineTokenizer(older[1], special, source=f"'{older[0]}'"), []
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    if not (vocabulary.exists() and merges.exists()):
        return None, []
    described = byte_level_json(_read_object(vocabulary), merges.read_text(encoding="utf-8").splitlines(), special)
    return PipelineTokenizer(described, special, source=f"'{vocabulary}'"), []


def _special_named(folder: Path, usual: SpecialPieces) -> SpecialPieces:
    """The special pieces that the files of a tokenizer name; the usual ones for what they leave out.

    Raises:
        InputError: a file is damaged.
    """
    config = _read_object(folder / "special_tokens_map.json") | _read_object(folder / "tokenizer_config.json")
    named = {field: _content(config.get(f"{field}_token")) or piece for field, piece in usual._asdict().items()}
    return SpecialPieces(**named)


def read_gpt_tokenizer(folder: Path, metadata: ModelMetadata) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer of a folder with a GPT, and notes; None if there is no vocabulary.

    It is that of `tokenizer.json`, or of `vocab.json` and `merges.txt`; a GPT that was trained here has WordPieces.

    Args:
        metadata: see `read_wordpiece`.

    Raises:
        BertsmithError: as for `read_wordpiece` and `read_pipeline`.
    """
    description, vocabulary = _read_object(folder / "tokenizer.json"), folder / "vocab.json"
    source = folder / "tokenizer.json"
    if not description and vocabulary.exists() and not (folder / "vocab.txt").exists():
        require_file(folder / "merges.txt", "the merges of the vocabulary next to it")
        merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
        description, source = gpt_json(_read_object(vocabulary), merges), vocabulary
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


def _content(token: Any) -> str | None:
    """The piece in an entry of `tokenizer_config.json`: a string, or an object with its content."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


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


def _normalizer(rules: TextRules) -> dict[str, Any]:
    bert = {
        "type": "BertNormalizer",
        "clean_text": rules.control_rule == "huggingface",
        "handle_chinese_chars": rules.split_cjk,
        "strip_accents": rules.strip_accents,
        "lowercase": rules.lowercase,
    }
    if rules.control_rule == "huggingface":
        return bert
    drop = {"type": "Replace", "pattern": {"Regex": _GOOGLE_DROPS}, "content": ""}
    space = {"type": "Replace", "pattern": {"Regex": _GOOGLE_SPACES}, "content": " "}
    return {"type": "Sequence", "normalizers": [drop, space, bert]}


def _special(piece: str, segment: int = 0) -> dict[str, Any]:
    return {"SpecialToken": {"id": piece, "type_id": segment}}


def _sequence(name: str, segment: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": segment}}


def _read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no file."""
    if not path.exists():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(expected=f"a JSON object in '{path}'", found=type(value).__name__, fix="restore the file")
    return value
