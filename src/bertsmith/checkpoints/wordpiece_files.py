"""The tokenizer files of WordPieces in a Hugging Face folder: vocab.txt, tokenizer.json and the text rules in them."""

from pathlib import Path
from typing import Any

from bertsmith.checkpoints.metadata import ModelMetadata
from bertsmith.errors import InputError, VocabularyError
from bertsmith.files import read_json
from bertsmith.settings import from_dict
from bertsmith.text.normalize import TextRules
from bertsmith.text.unspaced import PATTERN
from bertsmith.text.vocabulary import CLS, CONTINUATION, SEP, SPECIAL_PIECES, UNK, Vocabulary
from bertsmith.text.wordpiece import WordPieceTokenizer

# Drops categories Cc and Cf and the replacement character; then white space becomes spaces. Oniguruma's syntax.
_GOOGLE_DROPS = r"[\p{Cc}\p{Cf}\x{FFFD}&&[^\t\n\r]]"


_GOOGLE_SPACES = r"[\t\n\r\p{Zs}]"
_SPLIT = TextRules(split_unspaced=True)


SPLIT_UNSPACED = "split_unspaced"  # a switch of our own in tokenizer_config.json; transformers ignores it


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
        "pre_tokenizer": _pre_tokenizer(rules),
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
    normalizer = pipeline.get("normalizer")
    found: dict[str, Any] = {"split_unspaced": True} if pipeline.get("pre_tokenizer") == _pre_tokenizer(_SPLIT) else {}
    if isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer":
        found |= {
            "lowercase": normalizer.get("lowercase"),
            "strip_accents": normalizer.get("strip_accents"),
            "split_cjk": normalizer.get("handle_chinese_chars"),
        }
    for switch, field in (
        ("do_lower_case", "lowercase"),
        ("strip_accents", "strip_accents"),
        ("tokenize_chinese_chars", "split_cjk"),
        (SPLIT_UNSPACED, "split_unspaced"),
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


def _pre_tokenizer(rules: TextRules) -> dict[str, Any]:
    bert = {"type": "BertPreTokenizer"}
    if not rules.split_unspaced:
        return bert
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [bert, split]}


def _special(piece: str, segment: int = 0) -> dict[str, Any]:
    return {"SpecialToken": {"id": piece, "type_id": segment}}


def _sequence(name: str, segment: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": segment}}


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no file."""
    if not path.exists():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(expected=f"a JSON object in '{path}'", found=type(value).__name__, fix="restore the file")
    return value
