"""Writes the tokenizer files of a Hugging Face folder without Hugging Face's libraries.

The rules of BERT's later original code (other control characters, 200 characters per word) and the splitting of scripts
without spaces have no switch in `tokenizer_config.json`: they are written as a pipeline, with the general class that
runs it.
"""

from pathlib import Path
from typing import Any

from bertsmith.files import write_json
from bertsmith.model.config import EncoderConfig
from bertsmith.model_files.bpe_json import added_json, template_json
from bertsmith.model_files.tokenizer_files import SPLIT_UNSPACED, pre_tokenizer_json
from bertsmith.text.normalize import TextRules
from bertsmith.text.pipeline import PipelineTokenizer
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import CLS, CONTINUATION, SEP, SPECIAL_PIECES, UNK
from bertsmith.text.wordpiece import WordPieceTokenizer

# Drops categories Cc and Cf and the replacement character; then white space becomes spaces. Oniguruma's syntax.
_GOOGLE_DROPS = r"[\p{Cc}\p{Cf}\x{FFFD}&&[^\t\n\r]]"
_GOOGLE_SPACES = r"[\t\n\r\p{Zs}]"


def tokenizer_json(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    """The content of `tokenizer.json`."""
    vocabulary, rules = tokenizer.vocabulary, tokenizer.rules
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added_json(piece, vocabulary.index[piece])
            for piece in sorted(SPECIAL_PIECES, key=vocabulary.index.__getitem__)
        ],
        "normalizer": _normalizer(rules),
        "pre_tokenizer": pre_tokenizer_json(rules),
        "post_processor": template_json(
            [CLS], [SEP], [SEP], {piece: vocabulary.index[piece] for piece in (CLS, SEP)}, second_segment=1
        ),
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": UNK,
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": rules.max_word_characters,
            "vocab": dict(vocabulary.index),
        },
    }


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


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    special = tokenizer.vocabulary.special._asdict()
    return {f"{name}_token": special[name] for name in sorted(special) if special[name]}


def _model_inputs(config: EncoderConfig) -> list[str]:
    """The arguments of the model in `transformers`; with fewer than two segments there are no segment ids."""
    segments = ["token_type_ids"] if config.type_vocab_size > 1 else []
    return ["input_ids", *segments, "attention_mask"]
