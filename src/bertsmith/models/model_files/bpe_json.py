"""Builds `tokenizer.json`: of WordPieces, and from `vocab.json` and `merges.txt` of models published without one.

RoBERTa's is byte-level. That of GPT is lower-cased, and its pieces at the end of a word carry `</w>`; texts are cleaned
and split as by BERT's basic tokenizer, as `transformers` does. (The original code used ftfy and spaCy, which split some
contractions and punctuation marks otherwise.)

Source: Radford et al. (2018), section 4.1; `text_utils.py` of the original code.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bertsmith.models.model_files.row_json import HEAD, ONLY_UNKNOWN, added_json, template_json
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.text_rules_json import normalizer_json, pre_tokenizer_json
from bertsmith.text.tokenizers.vocabulary import CONTINUATION, END_OF_WORD, SPECIAL_PIECES, SpecialPieces


def wordpiece_json(ids: Mapping[str, int], rules: TextRules, special: SpecialPieces) -> dict[str, Any]:
    """The `tokenizer.json` of WordPieces, with the rows of BERT."""
    around = (special.cls, special.sep)
    return {
        **HEAD,
        "added_tokens": [
            added_json(piece, ids[piece])
            for piece in sorted(special, key=lambda token: ids.get(token, -1))
            if piece in ids
        ],
        "normalizer": normalizer_json(rules),
        "pre_tokenizer": pre_tokenizer_json(rules),
        "post_processor": template_json(
            around[:1], around[1:], around[1:], {piece: ids.get(piece) for piece in around}, second_segment=1
        ),
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": special.unk,
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": rules.max_word_characters,
            "vocab": dict(ids),
        },
    }


def byte_level_json(
    ids: dict[str, int], merges: Sequence[Any], special: SpecialPieces, *, is_spaced: bool = False
) -> dict[str, Any]:
    """The `tokenizer.json` of RoBERTa's byte-level BPE, from its `vocab.json` and the lines of `merges.txt`."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": is_spaced, "trim_offsets": True, "use_regex": True}
    return {
        **HEAD,
        "added_tokens": [{**added_json(piece, ids.get(piece)), "lstrip": piece == special.mask} for piece in special],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": roberta_processor(ids, special, is_spaced=is_spaced),
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": _byte_pairs(ids, merges, unknown=None, suffix=""),
    }


def roberta_processor(ids: Mapping[str, int], special: SpecialPieces, *, is_spaced: bool = False) -> dict[str, Any]:
    """The post-processor that puts RoBERTa's pieces around texts."""
    return {
        "type": "RobertaProcessing",
        "sep": [special.sep, ids.get(special.sep)],
        "cls": [special.cls, ids.get(special.cls)],
        "trim_offsets": True,
        "add_prefix_space": is_spaced,
    }


def gpt_json(ids: Mapping[str, int], merges: Sequence[Any]) -> dict[str, Any]:
    """The `tokenizer.json` of GPT's BPE, from its `vocab.json` and the lines of `merges.txt`."""
    unknown = ONLY_UNKNOWN.unk
    return {
        **HEAD,
        "added_tokens": [added_json(unknown, ids[unknown])] if unknown in ids else [],
        "normalizer": normalizer_json(TextRules()),
        "pre_tokenizer": pre_tokenizer_json(TextRules()),
        "post_processor": None,
        "decoder": {"type": "BPEDecoder", "suffix": END_OF_WORD},
        "model": _byte_pairs(ids, merges, unknown=unknown, suffix=END_OF_WORD),
    }


def learned_json(ids: Mapping[str, int], merges: Sequence[str], rules: TextRules) -> dict[str, Any]:
    """The `tokenizer.json` of a BPE that was learned here: as GPT's, with the special pieces and the rows of BERT."""
    plain = gpt_json(ids, merges)
    special = SPECIAL_PIECES
    return {
        **plain,
        "added_tokens": [added_json(piece, ids[piece]) for piece in special],
        "normalizer": normalizer_json(rules),
        "pre_tokenizer": pre_tokenizer_json(rules),
        "post_processor": template_json(
            [special.cls], [special.sep], [special.sep], {piece: ids[piece] for piece in special}, second_segment=1
        ),
        "model": {**plain["model"], "unk_token": special.unk},
    }


def _byte_pairs(ids: Mapping[str, int], merges: Sequence[Any], *, unknown: str | None, suffix: str) -> dict[str, Any]:
    """The model of a `tokenizer.json` with byte pairs; `suffix` marks the end of a word."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": suffix,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": dict(ids),
        "merges": _pairs(merges),
    }


def _pairs(merges: Sequence[Any]) -> list[Any]:
    """Merges as pairs of pieces, from the lines of a file or from pairs."""
    return [
        merge.split(" ") if isinstance(merge, str) else merge
        for merge in merges
        if not isinstance(merge, str) or (merge and not merge.startswith("#version"))
    ]
