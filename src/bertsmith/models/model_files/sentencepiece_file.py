"""Reads the model file of SentencePiece (such as `spiece.model`) where there is no `tokenizer.json`.

The file is a message of protocol buffers, of which a few fields are needed. The result is the description that a
`tokenizer.json` would contain.

Source: `sentencepiece_model.proto` of SentencePiece; the converters for ALBERT and XLM-RoBERTa and the tokenizer of
DeBERTa of `transformers`.
"""

import base64
import dataclasses
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import CheckpointError, InputError
from bertsmith.base.storage.files import read_json, regular_bytes
from bertsmith.models.model_files.row_json import (
    ALBERT_FILE,
    BYTE_LEVEL,
    DEBERTA_FILE,
    HEAD,
    SWITCHES,
    XLM_ROBERTA_FILE,
    added_json,
    template_json,
)
from bertsmith.text.tokenizers.charsmap import SPACES_AND_BREAKS
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, SpecialPieces

_UNIGRAM = 1  # TrainerSpec.model_type
_MARK = "\u2581"
_NUMBER_WITH_COMMA = re.compile(r"(?s).*\d,")
_RARER = 100.0  # nats

OF_ALBERT = SpecialPieces(pad="<pad>", unk="<unk>", cls="[CLS]", sep="[SEP]", mask="[MASK]")


def describe_albert(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The model file of an ALBERT, and the description of its tokenizer; None if the folder has none."""
    path = folder / ALBERT_FILE
    if not path.exists():
        return None
    lowercase, keep_accents = _switches(folder, do_lower_case=True, keep_accents=False)
    return path, albert_json(read_sentencepiece(path), lowercase=lowercase, keep_accents=keep_accents)


def _switches(folder: Path, **usual: bool) -> list[bool]:
    """The switches of these names in `tokenizer_config.json`, with their usual values where it has none."""
    config = folder / SWITCHES
    settings = read_json(config) if config.exists() else {}
    values = dict(usual)
    for name in usual if isinstance(settings, dict) else ():
        value = settings.get(name, usual[name])
        if not isinstance(value, bool):
            raise InputError(expected=f"true or false for {name} in '{config}'", found=repr(value), fix="correct it")
        values[name] = value
    return list(values.values())


def describe_xlm_roberta(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The model file of an XLM-RoBERTa, and the description of its tokenizer; None if the folder has none."""
    path = folder / XLM_ROBERTA_FILE
    return (path, xlm_roberta_json(read_sentencepiece(path))) if path.exists() else None


def describe_deberta(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The model file of a DeBERTa, and the description of its tokenizer; None if the folder has none.

    As transformers 5 builds it, without the table of normalization in the file.
    """
    path = folder / DEBERTA_FILE
    if not path.exists():
        return None
    lowercase, split, is_spaced = _switches(folder, do_lower_case=False, split_by_punct=False, add_prefix_space=True)
    pieces = read_sentencepiece(path).pieces
    ids = {piece: id for id, (piece, _) in enumerate(pieces)}
    described = deberta_json(pieces, SPECIAL_PIECES, f"'{path}'", lowercase=lowercase, split=split, is_spaced=is_spaced)
    return path, {
        **described,
        "added_tokens": [added_json(piece, ids[piece]) for piece in SPECIAL_PIECES if piece in ids],
    }


def deberta_json(
    pieces: Sequence[Any],
    special: SpecialPieces,
    source: str,
    unknown: int = 1,
    *,
    lowercase: bool,
    split: bool,
    is_spaced: bool,
) -> dict[str, Any]:
    """The description of a DeBERTa's tokenizer, without added tokens.

    Args:
        unknown: the id of the unknown piece, unless the pieces have the one of its name.
        split: whether punctuation marks are divided from what is around them.
        is_spaced: whether every part of a text begins with a space; otherwise only the text.
    """
    ids = {piece: id for id, (piece, _) in enumerate(pieces)}
    is_listed = any(piece == special.unk and score == 0 for piece, score in pieces)
    steps: list[dict[str, Any]] = [{"type": "Lowercase"}] if lowercase else []
    steps += [
        {"type": "Replace", "pattern": {"Regex": SPACES_AND_BREAKS}, "content": " "},
        {"type": "NFC"},
        {"type": "Strip", "strip_left": False, "strip_right": True},
    ]
    built = unigram_json(pieces, ids[special.unk] if is_listed else unknown, steps)
    metaspace = {**built["decoder"], "prepend_scheme": "always" if is_spaced else "first"}
    splitter = [{"type": "Punctuation", "behavior": "Isolated"}] if split else []
    if absent := [piece for piece in (special.cls, special.sep) if piece not in ids]:
        raise CheckpointError(
            expected=f"{special.cls} and {special.sep} among the pieces of {source}",
            found=f"no {' and no '.join(absent)}",
            fix="use the tokenizer that was published with the model",
        )
    cls, sep = ids[special.cls], ids[special.sep]
    return {
        **built,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splitter, metaspace]},
        "decoder": metaspace,
        "post_processor": template_json(
            [special.cls], [special.sep], [special.sep], {special.cls: cls, special.sep: sep}, second_segment=1
        ),
    }


@dataclasses.dataclass(frozen=True)
class SentencePieceFile:
    """The content of a file that is read.

    Attributes:
        charsmap: the compiled table of normalization; empty if there is none.
    """

    pieces: list[tuple[str, float]]
    charsmap: bytes


def read_sentencepiece(path: Path) -> SentencePieceFile:
    """The content of a model file."""
    pieces, charsmap, kind = list[tuple[str, float]](), b"", _UNIGRAM
    try:
        for field, value in _fields(regular_bytes(path)):
            if field == 1 and isinstance(value, bytes):
                piece = dict(_fields(value))
                text, score = piece[1], piece.get(2, 0)
                assert isinstance(text, bytes), "a piece"
                number = score if isinstance(score, int) else struct.unpack("<I", score)[0]
                pieces.append((text.decode("utf-8"), struct.unpack("<f", struct.pack("<I", number))[0]))
            elif field == 2 and isinstance(value, bytes):
                stated = dict(_fields(value)).get(3, _UNIGRAM)
                kind = stated if isinstance(stated, int) else 0
            elif field == 3 and isinstance(value, bytes):
                table = dict(_fields(value)).get(2, b"")
                charsmap = table if isinstance(table, bytes) else b""
    except (ValueError, KeyError, IndexError, AssertionError, struct.error):
        pieces = []
    if not pieces:
        raise CheckpointError(
            expected=f"a model of SentencePiece in '{path}'", found="other content", fix="copy the file again"
        )
    if kind != _UNIGRAM:
        raise CheckpointError(
            expected=f"Unigram pieces in '{path}'",
            found="another kind of model",
            fix="put the tokenizer.json that was published with the model next to it",
        )
    return SentencePieceFile(pieces, charsmap)


def albert_json(file: SentencePieceFile, *, lowercase: bool, keep_accents: bool) -> dict[str, Any]:
    """The description of an ALBERT's tokenizer: quotation marks made plain, text without accents and lower-cased.

    A comma after a digit is a piece of its own, as in the original code: pieces that end in both are made so improbable
    that other ones are chosen.
    """
    pieces = [(piece, score - _RARER if _NUMBER_WITH_COMMA.fullmatch(piece) else score) for piece, score in file.pieces]
    ids = {piece: id for id, (piece, _) in enumerate(pieces)}
    steps = [*albert_steps(lowercase=lowercase, keep_accents=keep_accents), *_table(file)]
    cls, sep = OF_ALBERT.cls, OF_ALBERT.sep
    return {
        **unigram_json(pieces, ids.get("<unk>", 1), steps),
        "added_tokens": _specials(ids, OF_ALBERT),
        "post_processor": template_json(
            [cls], [sep], [sep], {cls: ids.get(cls, 2), sep: ids.get(sep, 3)}, second_segment=1
        ),
    }


def albert_steps(*, lowercase: bool, keep_accents: bool) -> list[dict[str, Any]]:
    """The steps before the table of normalization in an ALBERT's tokenizer."""
    before: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": marks}, "content": '"'} for marks in ("``", "''")
    ]
    before += [] if keep_accents else [{"type": "NFKD"}, {"type": "StripAccents"}]
    return before + ([{"type": "Lowercase"}] if lowercase else [])


def xlm_roberta_json(file: SentencePieceFile) -> dict[str, Any]:
    """The description of an XLM-RoBERTa's tokenizer, whose ids are fairseq's."""
    first = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [*first, *file.pieces[3:], ("<mask>", 0.0)]
    ids = {piece: id for id, (piece, _) in enumerate(pieces)}
    return {
        **unigram_json(pieces, 3, _table(file)),
        "added_tokens": _specials(ids, BYTE_LEVEL),
        "post_processor": xlm_roberta_template(ids, BYTE_LEVEL),
    }


def xlm_roberta_template(ids: Mapping[str, int], special: SpecialPieces) -> dict[str, Any]:
    """The post-processor of an XLM-RoBERTa."""
    cls, sep = special.cls, special.sep
    return template_json([cls], [sep, sep], [sep], {piece: ids.get(piece) for piece in (cls, sep)})


def _table(file: SentencePieceFile) -> list[dict[str, Any]]:
    packed = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(file.charsmap).decode("ascii")}
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    return [packed, spaces] if file.charsmap else [spaces]


def _specials(ids: Mapping[str, int], special: SpecialPieces) -> list[dict[str, Any]]:
    """The special pieces as added tokens; the mask includes the space before it."""
    return [
        {**added_json(piece, ids[piece]), "lstrip": piece == special.mask}
        for piece in sorted(special, key=lambda token: ids.get(token, 0))
        if piece in ids
    ]


def unigram_json(
    pieces: Sequence[Any], unknown: int, normalizers: Sequence[dict[str, Any]], *, is_spaced: bool = True
) -> dict[str, Any]:
    """A description without added tokens and template."""
    scheme = "always" if is_spaced else "never"
    metaspace = {"type": "Metaspace", "replacement": _MARK, "prepend_scheme": scheme, "split": True}
    return {
        **HEAD,
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": list(normalizers)} if normalizers else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": None,
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": unknown,
            "vocab": [[piece, score] for piece, score in pieces],
            "byte_fallback": False,
        },
    }


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, each with its number; a nested message, a string or a 4-byte number as bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield field, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, position = _varint(data, position)
        if size is None or position + size > len(data):
            raise ValueError(field)
        yield field, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value, position, shift = value | (byte & 127) << shift, position + 1, shift + 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise ValueError(position)
