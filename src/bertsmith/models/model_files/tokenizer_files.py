"""Reads the tokenizer files of a Hugging Face folder without Hugging Face's libraries.

`tokenizer.json` repeats the vocabulary and describes the rules as a pipeline; `tokenizer_config.json` names the class
and its switches. They are written by `tokenizer_writing.py`.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import ConfigError, InputError, VocabularyError
from bertsmith.base.core.settings import from_dict, require
from bertsmith.base.storage.files import read_json, read_object, regular_bytes, require_file
from bertsmith.models.model_files.bpe_json import byte_level_json, gpt_json, wordpiece_json
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.row_json import (
    BYTE_LEVEL,
    MERGES,
    ONLY_UNKNOWN,
    PIECES,
    PIPELINE,
    SWITCHES,
    VOCABULARY,
    in_one_segment,
    template_json,
)
from bertsmith.models.model_files.tokenizer_classes import (
    Switches,
    bert_rules,
    class_of,
    described,
    kind_of_pieces,
    special_named,
)
from bertsmith.text.tokenizers.added_tokens import tokens_in
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer, template_of
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.text_rules_json import rules_of
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import (
    CLS,
    CONTINUATION,
    END_OF_WORD,
    SEP,
    SPECIAL_PIECES,
    UNK,
    SpecialPieces,
    Vocabulary,
)
from bertsmith.text.tokenizers.wordpiece import ADDED_TOKENS, WordPieceTokenizer

# Rules with a switch of our own in tokenizer_config.json; transformers ignores it.
OWN_SWITCHES = ("split_unspaced", "keep_letter_marks")


def read_wordpiece(folder: Path, metadata: ModelMetadata) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer of a folder with WordPieces and notes on where its rules come from; None without a vocabulary.

    It is a `WordPieceTokenizer` if the text is cleaned and split by rules that BERT has.
    """
    path, lines = folder / PIPELINE, folder / VOCABULARY
    file, notes = read_object(path), list[str]()
    has_ids = bool(file)
    vocabulary = Vocabulary.load(lines) if lines.exists() else None
    source, recorded = f"'{path if file else lines}'", _recorded_rules(folder, metadata)
    if not file and vocabulary is None:
        return None, []
    if not file:
        assert vocabulary is not None, "one of the two"
        rules, notes = read_rules(folder, vocabulary, metadata)
        file = wordpiece_json(vocabulary.index, rules, SPECIAL_PIECES)
    description = described(folder, file)
    pieces, num_added = _pieces(description, source)
    if vocabulary is not None and vocabulary.pieces != tuple(pieces[: len(vocabulary)]):
        raise VocabularyError(
            expected=f"the same pieces in vocab.txt and tokenizer.json of '{folder}'",
            found="different ones",
            fix="remove the file that does not belong to the model",
        )
    special = special_named(folder, SPECIAL_PIECES)
    rows = Vocabulary(pieces, special=special, source=source, whole=num_added, has_ids=has_ids)
    stated = rules_of(description) if recorded is None else recorded
    if stated is not None and stated != (recorded or rules_of(file)):
        case = "lower-cased" if stated.lowercase else "not lower-cased"
        notes.append(f"text is cleaned by the rules of the tokenizer_class ({case}), not by those in {PIPELINE}")
    if stated is None or not (special == SPECIAL_PIECES and _has_rows_of_bert(description, source)):
        return PipelineTokenizer(description, special, source=source), notes
    return WordPieceTokenizer(rows, stated, added=tokens_in(description["added_tokens"], source)), notes


def _has_rows_of_bert(description: dict[str, Any], source: str) -> bool:
    """Whether a description has the unknown piece, the mark of continuing pieces, and the rows of BERT."""
    model = description["model"]
    if (model.get("unk_token"), model.get("continuing_subword_prefix")) != (UNK, CONTINUATION):
        return False
    ids = (model["vocab"].get(piece) for piece in (CLS, SEP))
    return template_of(description.get("post_processor"), source) == Template.bert(*ids)


def _recorded_rules(folder: Path, metadata: ModelMetadata) -> TextRules | None:
    """The text rules in the metadata; None if there are none."""
    values = {name: value for name, value in (metadata.text_rules or {}).items() if name != ADDED_TOKENS}
    if not values or "tokenizer_json" in values:
        return None
    return from_dict(TextRules, values, f"text_rules of '{folder / 'bertsmith.json'}'")


def read_rules(folder: Path, vocabulary: Vocabulary, metadata: ModelMetadata) -> tuple[TextRules, list[str]]:
    """The rules of a `vocab.txt`, and notes: from the metadata, `tokenizer_config.json`, or as in `transformers`.

    `transformers` lower-cases text where no file says anything, even if the vocabulary has capital letters.
    """
    recorded, path = _recorded_rules(folder, metadata), folder / SWITCHES
    if recorded is not None:
        return recorded, []
    switches = Switches(read_object(path), path)
    rules = dataclasses.replace(
        bert_rules(switches),
        split_unspaced=switches.is_on("split_unspaced", False),
        keep_letter_marks=switches.is_on("keep_letter_marks", False),
    )
    if switches.flag("do_lower_case", None) is not None:
        return rules, []
    note = "no file says how text is cleaned: it is lower-cased, as transformers does"
    if vocabulary.is_cased:
        note += ", but the vocabulary has capital letters; "
        note += f'for a cased model, write {{"do_lower_case": false}} to {SWITCHES}'
    return rules, [note]


def guess_rules(vocabulary: Vocabulary, name: str = "huggingface") -> tuple[TextRules, list[str]]:
    """The rules of that name that fit a vocabulary when nothing else is known, and a note that says so."""
    rules = TextRules.named(name, lowercase=not vocabulary.is_cased)
    kind = "has capital letters: cased" if vocabulary.is_cased else "has hardly any capital letters: uncased"
    return rules, [f"no file says how text is cleaned; the vocabulary {kind}"]


def _pieces(description: dict[str, Any], source: str) -> tuple[list[str], int]:
    """The pieces in order of their ids, and how many of them are only added tokens."""
    words = description["model"]["vocab"]
    ids = {**words, **{token["content"]: token["id"] for token in description["added_tokens"]}}
    by_id = {id: piece for piece, id in ids.items() if type(id) is int}
    if sorted(by_id) != list(range(len(ids))):
        raise VocabularyError(
            expected=f"ids 0 to {len(ids) - 1}, each once, in {source}",
            found="other ids",
            fix="restore the file, or put the vocab.txt of the model next to it",
        )
    return [by_id[id] for id in range(len(ids))], len(ids) - len(words)


Describe = Callable[[Path], tuple[Path, dict[str, Any]] | None]


def read_tokenizer(
    folder: Path,
    metadata: ModelMetadata,
    usual: SpecialPieces = BYTE_LEVEL,
    describe: Describe | None = None,
    *,
    has_segments: bool = True,
) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer of a folder whose architecture has several kinds, and notes; None without a vocabulary."""
    file, lines = read_object(folder / PIPELINE), folder / VOCABULARY
    model = _model_of(file, folder) if file else {}
    kind = model.get("type")
    if kind is None and not file and lines.exists() and CLS.encode() not in regular_bytes(lines).splitlines():
        raise VocabularyError(
            expected=f"a tokenizer.json in '{folder}' for a vocab.txt without {CLS}",
            found="none",
            fix="copy the tokenizer.json of the model",
        )
    if kind == "WordPiece" and CLS not in model["vocab"]:  # as in MPNet
        return read_pipeline(folder, metadata, BYTE_LEVEL._replace(unk=UNK))
    if kind == "WordPiece" or (not file and lines.exists()):
        return read_wordpiece(folder, metadata)
    if (kind == "BPE" and model.get("end_of_word_suffix")) or (not file and _marks_ends(folder / PIECES)):
        return read_gpt_tokenizer(folder, metadata)
    return read_pipeline(folder, metadata, usual, describe, has_segments=has_segments)


def _model_of(file: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The model in a `tokenizer.json`."""
    model = file.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise VocabularyError(
            expected=f"a model with its pieces in '{folder / PIPELINE}'", found="none", fix="restore the file"
        )
    return {**model, "type": kind_of_pieces(model)}


def _marks_ends(path: Path) -> bool:
    """Whether the pieces of a `vocab.json` carry GPT's mark of the end of a word."""
    return path.exists() and any(piece.endswith(END_OF_WORD) for piece in read_object(path))


def read_pipeline(
    folder: Path,
    metadata: ModelMetadata,
    usual: SpecialPieces = BYTE_LEVEL,
    describe: Describe | None = None,
    *,
    has_segments: bool = True,
) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer in `tokenizer.json`, or a byte-level BPE from `vocab.json` and `merges.txt`.

    Args:
        usual: the special pieces, where the files do not name them.
        describe: returns an older file of the folder and the description in it, or None.
        has_segments: whether the segments in its template of rows count.
    """
    file, source = read_object(folder / PIPELINE), folder / PIPELINE
    if not file:
        special = special_named(folder, usual)
        older = None if describe is None else describe(folder)
        vocabulary, merges = folder / PIECES, folder / MERGES
        if older is not None:
            source, file = older
        elif vocabulary.exists() and merges.exists():
            source, file = vocabulary, byte_level_json(read_object(vocabulary), _lines(merges), special)
        else:
            return None, []
    _model_of(file, folder)
    chosen = class_of(folder)
    special = special_named(folder, usual if chosen is None else chosen.special)
    description = described(folder, file)
    if not has_segments:
        description["post_processor"] = in_one_segment(description.get("post_processor"))
    model = description["model"]
    if (
        chosen is None and model.get("type") == "BPE" and model.get("unk_token") is None
    ):  # whose pieces may be all bytes
        known = {*model["vocab"], *(token["content"] for token in description["added_tokens"])}
        special = special if special.unk in known else special._replace(unk="")
    return PipelineTokenizer(description, special, source=f"'{source}'"), []


def _lines(path: Path) -> list[str]:
    return regular_bytes(path).decode("utf-8").splitlines()


def read_gpt_tokenizer(folder: Path, metadata: ModelMetadata) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer of a folder with a GPT, and notes; None if there is no vocabulary.

    It comes from `tokenizer.json`, or from `vocab.json` and `merges.txt`; a GPT that was trained here has WordPieces.
    """
    description, vocabulary = read_object(folder / PIPELINE), folder / PIECES
    source = folder / PIPELINE
    if not description and vocabulary.exists() and not (folder / VOCABULARY).exists():
        require_file(folder / MERGES, "the merges of the vocabulary next to it")
        description, source = gpt_json(read_object(vocabulary), _lines(folder / MERGES)), vocabulary
    model = description.get("model")
    if not (isinstance(model, dict) and model.get("type") == "BPE"):
        return read_tokenizer(folder, metadata)
    description = described(folder, description)
    if description.get("post_processor") is None:
        description = {**description, "post_processor": template_json([], [], [])}
    return PipelineTokenizer(description, special_named(folder, ONLY_UNKNOWN), source=f"'{source}'"), []


def with_rules(tokenizer: Tokenizer, rules: TextRules) -> Tokenizer:
    """The same vocabulary with other text rules."""
    if not isinstance(tokenizer, WordPieceTokenizer):
        raise ConfigError(
            expected="text rules (--cased, --uncased) for a WordPiece vocabulary",
            found="a tokenizer defined by its tokenizer.json",
            fix="leave the option out; the file defines how text is cleaned",
        )
    return WordPieceTokenizer(tokenizer.vocabulary, rules, added=tokenizer.added)


def lowercased(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, but for texts that are lower-cased first."""
    if isinstance(tokenizer, WordPieceTokenizer):
        before = tokenizer.rules
        rules = dataclasses.replace(before, lowercase=True, strip_accents=before.strips_accents)
        return _with_template(
            WordPieceTokenizer(tokenizer.vocabulary, rules, added=tokenizer.added), tokenizer.template
        )
    assert isinstance(tokenizer, PipelineTokenizer), "a tokenizer that can be described"
    steps = [{"type": "Lowercase"}, tokenizer.description.get("normalizer")]
    normalizer = {"type": "Sequence", "normalizers": [step for step in steps if step is not None]}
    description = {**tokenizer.description, "normalizer": normalizer}
    result = PipelineTokenizer(description, tokenizer.vocabulary.special, source=tokenizer.source)
    return _with_template(result, tokenizer.template)


def with_segments(tokenizer: Tokenizer, count: int, folder: Path) -> Tokenizer:
    """The tokenizer of a model with `count` segments, in a folder.

    All tokens are in the first segment if there is one alone, or if the inputs of the model that the folder names lack
    the segments.
    """
    inputs = read_object(folder / SWITCHES).get("model_input_names")
    if inputs is not None and not (isinstance(inputs, list) and "input_ids" in inputs and "attention_mask" in inputs):
        raise InputError(
            expected=f"model_input_names with input_ids and attention_mask in '{folder / SWITCHES}'",
            found=repr(inputs)[:80],
            fix="add them",
        )
    if count == 1 or (count > 1 and inputs is not None and "token_type_ids" not in inputs):
        return _with_template(tokenizer, dataclasses.replace(tokenizer.template, second_segment=0))
    return tokenizer


def _with_template(tokenizer: Tokenizer, template: Template) -> Tokenizer:
    tokenizer.template = template
    return tokenizer


def read_unmarked(folder: Path) -> Tokenizer:
    """The tokenizer in the `tokenizer.json` of a folder, for rows without special tokens; no other file counts."""
    path = folder / PIPELINE
    require_file(path, "the tokenizer of the model")
    file, source = read_object(path), f"'{path}'"
    model = _model_of(file, folder)
    entries = file.get("added_tokens") or []
    if model.get("dropout") or not isinstance(entries, list):
        raise VocabularyError(
            expected=f"a list of added tokens, and pieces without dropout, in {source}",
            found="a dropout" if model.get("dropout") else "another value",
            fix="restore the file",
        )
    added, vocab = tokens_in(entries, source), model["vocab"]
    names = {
        *(token.content for token in added),
        *(vocab if isinstance(vocab, dict) else (entry[0] for entry in vocab)),
    }
    unknown = str(model.get("unk_token") or next(iter(vocab), ""))  # without one, nothing is unknown
    special = SpecialPieces(*(piece if piece in names else "" for piece in SPECIAL_PIECES._replace(unk=unknown)))
    unmarked = template_json([], [], [])
    description = {**file, "model": model, "added_tokens": entries, "post_processor": unmarked}
    template = template_of(unmarked, source)
    if model["type"] == "WordPiece" and special == SPECIAL_PIECES:
        rules = rules_of(description)
        if rules is not None and model.get("continuing_subword_prefix") == CONTINUATION:
            pieces, num_added = _pieces(description, source)
            rows = Vocabulary(pieces, source=source, whole=num_added, has_ids=True)
            return _with_template(WordPieceTokenizer(rows, rules, added=added), template)
    if isinstance(vocab, list):
        number = model.get("unk_id")
        special = special._replace(unk=str(vocab[number if isinstance(number, int) else 0][0]))
    return PipelineTokenizer(description, special, source=source)


def read_tokenizer_file(path: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json` of its own, or in a folder.

    The special pieces of a file of its own are BERT's, RoBERTa's, or only `<unk>`: the first that it has.
    """
    if path.is_dir():
        tokenizer, _ = read_tokenizer(path, ModelMetadata())
        if tokenizer is None:
            raise InputError(
                expected=f"a vocabulary in '{path}'",
                found="no vocab.txt, tokenizer.json, or vocab.json with merges.txt",
                fix="check the path",
            )
        return tokenizer
    require_file(path, "a tokenizer.json")
    value = read_json(path)
    description: dict[str, Any] = value if isinstance(value, dict) else {}
    model, added = description.get("model"), description.get("added_tokens")
    require(
        isinstance(model, dict) and model.get("type") != "WordPiece",
        expected=f"a tokenizer.json at '{path}'",
        found="WordPieces" if isinstance(model, dict) else "another file",
        fix="name the vocab.txt of WordPieces, or the model that they belong to",
    )
    named = {token.get("content") for token in added if isinstance(token, dict)} if isinstance(added, list) else set()
    usual = (SPECIAL_PIECES, BYTE_LEVEL, ONLY_UNKNOWN)
    special = next(
        (special_pieces for special_pieces in usual if named.issuperset(filter(None, special_pieces))), ONLY_UNKNOWN
    )
    return PipelineTokenizer(description, special, source=f"'{path}'")
