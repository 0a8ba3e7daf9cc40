"""Reads a standalone tokenizer: a `tokenizer.json`, or a folder of tokenizer files."""

from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import read_json, require_file
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.row_json import BYTE_LEVEL, ONLY_UNKNOWN
from bertsmith.models.model_files.tokenizer_files import read_tokenizer
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES


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
