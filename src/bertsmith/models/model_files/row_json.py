"""Parts of a `tokenizer.json` that do not depend on its kind of pieces: special pieces, and the templates of rows.

Also the names of all files from which the tokenizer of a model folder is read; the hub is asked for these.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bertsmith.text.tokenizers.vocabulary import SpecialPieces

VOCABULARY = "vocab.txt"
PIPELINE = "tokenizer.json"
SWITCHES = "tokenizer_config.json"
SPECIAL_MAP = "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"
PIECES, MERGES = "vocab.json", "merges.txt"  # of byte pairs
ALBERT_FILE, XLM_ROBERTA_FILE, DEBERTA_FILE = "spiece.model", "sentencepiece.bpe.model", "spm.model"  # of SentencePiece

TOKENIZER_FILES = (
    VOCABULARY,
    PIPELINE,
    SWITCHES,
    SPECIAL_MAP,
    ADDED_TOKENS,
    PIECES,
    MERGES,
    ALBERT_FILE,
    XLM_ROBERTA_FILE,
    DEBERTA_FILE,
)

BYTE_LEVEL = SpecialPieces(pad="<pad>", unk="<unk>", cls="<s>", sep="</s>", mask="<mask>")  # as RoBERTa spells them
ONLY_UNKNOWN = SpecialPieces(pad="", unk="<unk>", cls="", sep="", mask="")  # those of GPT
OF_LLAMA = SpecialPieces(  # of version 3, whose pieces cover all bytes; the mask is EuroBERT's
    pad="<|end_of_text|>", unk="", cls="<|begin_of_text|>", sep="<|end_of_text|>", mask="<|mask|>"
)
HEAD: Mapping[str, Any] = {"version": "1.0", "truncation": None, "padding": None}  # of a `tokenizer.json`
_FIRST: Mapping[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}


def added_json(piece: str, id: int | None) -> dict[str, Any]:
    """The entry of a special piece among the added ones."""
    return {
        "id": id,
        "content": piece,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def in_one_segment(value: Any) -> Any:
    """A post-processor with all pieces and texts in segment 0, for a model that has no segments."""
    if isinstance(value, list):
        return [in_one_segment(part) for part in value]
    if isinstance(value, dict):
        return {name: 0 if name == "type_id" else in_one_segment(part) for name, part in value.items()}
    return value


def template_json(
    start: Sequence[str],
    between: Sequence[str],
    end: Sequence[str],
    ids: Mapping[str, int | None] | None = None,
    *,
    second_segment: int = 0,
) -> dict[str, Any]:
    """The post-processor that puts these pieces around texts."""

    def named(pieces: Sequence[str], segment: int = 0) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": piece, "type_id": segment}} for piece in pieces]

    second = {"Sequence": {"id": "B", "type_id": second_segment}}
    return {
        "type": "TemplateProcessing",
        "single": [*named(start), _FIRST, *named(end)],
        "pair": [*named(start), _FIRST, *named(between), second, *named(end, second_segment)],
        "special_tokens": {piece: {"id": piece, "ids": [id], "tokens": [piece]} for piece, id in (ids or {}).items()},
    }
