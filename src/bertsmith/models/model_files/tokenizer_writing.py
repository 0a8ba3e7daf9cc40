"""Writes the tokenizer files of a Hugging Face folder without Hugging Face's libraries.

The rules of BERT's later original code (other control characters, 200 characters per word), the splitting of scripts
without spaces and the marks that are kept have no switch in `tokenizer_config.json`: they are written as a pipeline,
with the general class that runs it.
"""

from pathlib import Path
from typing import Any

from bertsmith.base.storage.files import write_json
from bertsmith.models.model_files.bpe_json import wordpiece_json
from bertsmith.models.model_files.tokenizer_files import OWN_SWITCHES
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer


def tokenizer_json(tokenizer: WordPieceTokenizer) -> dict[str, Any]:
    """The content of `tokenizer.json`."""
    vocabulary, rules = tokenizer.vocabulary, tokenizer.rules
    return {
        **wordpiece_json(vocabulary.words, rules, vocabulary.special),
        "added_tokens": [token.to_json() for token in sorted(tokenizer.added, key=lambda token: token.id)],
    }


def tokenizer_config(
    tokenizer: WordPieceTokenizer, config: EncoderConfig, max_length: int | None = None, needs_segments: bool = False
) -> dict[str, Any]:
    """The content of `tokenizer_config.json`; see `write_tokenizer`."""
    rules = tokenizer.rules
    is_usual = _added(tokenizer).issuperset(tokenizer.vocabulary.special)  # as that class would make them
    plain = TextRules(lowercase=rules.lowercase, strip_accents=rules.strip_accents, split_cjk=rules.split_cjk)
    return {
        **_special_tokens(tokenizer),
        "do_lower_case": rules.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.split_cjk,
        **{name: True for name in OWN_SWITCHES if getattr(rules, name)},
        **_inputs(tokenizer, config, max_length, needs_segments),
        # BertTokenizer builds its own pipeline from the switches; the general class uses the one in tokenizer.json.
        "tokenizer_class": "BertTokenizer" if rules == plain and is_usual else "PreTrainedTokenizerFast",
    }


def write_tokenizer(
    folder: Path,
    tokenizer: Tokenizer,
    config: EncoderConfig,
    max_length: int | None = None,
    needs_segments: bool = False,
) -> None:
    """Writes the files from which `transformers` builds the same tokenizer.

    Args:
        max_length: maximum tokens of a row, to which other libraries truncate; None for the limit of the encoder.
        needs_segments: whether the head needs segment ids even if the encoder does not.
    """
    if isinstance(tokenizer, WordPieceTokenizer):
        tokenizer.vocabulary.save(folder / "vocab.txt")
        description, settings = (
            tokenizer_json(tokenizer),
            tokenizer_config(tokenizer, config, max_length, needs_segments),
        )
    else:
        assert isinstance(tokenizer, PipelineTokenizer), "a tokenizer that can be described"
        description = tokenizer.description
        settings = {
            **_special_tokens(tokenizer),
            **_inputs(tokenizer, config, max_length, needs_segments),
            "tokenizer_class": "PreTrainedTokenizerFast",
        }
    write_json(folder / "tokenizer.json", description)
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "special_tokens_map.json", _special_tokens(tokenizer))


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """The special pieces that are added tokens by their names; naming another one would make it an added token."""
    special, added = tokenizer.vocabulary.special._asdict(), _added(tokenizer)
    return {f"{name}_token": special[name] for name in sorted(special) if special[name] in added}


def _added(tokenizer: Tokenizer) -> set[str]:
    if isinstance(tokenizer, WordPieceTokenizer):
        return {token.content for token in tokenizer.added}
    assert isinstance(tokenizer, PipelineTokenizer), "a tokenizer that can be described"
    return {token["content"] for token in tokenizer.description.get("added_tokens") or ()}


def _inputs(
    tokenizer: Tokenizer, config: EncoderConfig, max_length: int | None, needs_segments: bool
) -> dict[str, Any]:
    """The arguments of the model in `transformers`, and how long they may be; one segment has no ids."""
    has_segments = config.type_vocab_size > 1 and tokenizer.template.has_segments
    segments = ["token_type_ids"] if has_segments or needs_segments else []
    return {
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        "model_max_length": max_length or config.max_tokens,
    }
