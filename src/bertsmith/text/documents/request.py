"""The parameters of `bertsmith vocab`, `tokenize` and `inputs`, and those of every command that needs a tokenizer."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from bertsmith.base.core.parameters import ENGINE, TEXTS, optional
from bertsmith.base.core.requests import AS_IT_IS, COPIED, Request
from bertsmith.base.core.settings import Help, help_field
from bertsmith.base.processes.engines import LOCAL
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.text.documents.languages import LanguageSettings
from bertsmith.text.vocabularies.learn import CHARACTER_COVERAGE

VOCAB = Help(
    "vocabulary, one piece per line; or a tokenizer.json, or its folder",
    metavar="FILE",
    path="the vocabulary",
    kind=Path,
    address=COPIED,
)
MODEL = Help("use the tokenizer of a model", metavar="DIR", path="the model", kind=str)
CASED = Help("keep upper case and accents")
RULES = Help(
    "huggingface: the ids that transformers computes; google: those of the original code, by Python's Unicode "
    "tables; unspaced: as huggingface, but Thai, Lao, Khmer, Burmese and Japanese, which have no spaces between "
    "words, are split into short parts, and lower case keeps marks that are letters [huggingface]",
    metavar="NAME",
)


@dataclasses.dataclass(frozen=True)
class VocabularyRequest(Request, LanguageSettings, EncodingSettings):
    """Texts, and how a vocabulary is learned from them."""

    texts: Annotated[Sequence[str | Path], TEXTS]
    size: int = help_field(30522, "number of pieces, including the five special ones")
    _: dataclasses.KW_ONLY
    out: str | Path | None = help_field(
        None,
        "output file",
        library="a file for the vocabulary; `save` of the result writes it too",
        metavar="FILE",
        path="the vocabulary",
        kind=Path,
        address=AS_IT_IS,
        required=True,
    )
    cased: bool = optional(False, CASED)
    rules: str | None = optional(None, RULES)
    method: str = help_field(
        "wordpiece", "wordpiece, for a vocab.txt; or bpe, the byte pairs of GPT, for a tokenizer.json"
    )
    column: str = help_field("", "text column of .jsonl and .parquet files; default: detected")
    character_coverage: float = help_field(
        CHARACTER_COVERAGE,
        "fraction of the text's characters that become pieces, however much of --size that uses up; a "
        "word with any other character becomes [UNK], so use 1 if Korean or Chinese is one of several languages",
    )
    report: str | Path | None = help_field(
        None, "also write the report to this file, as JSON", metavar="FILE", path=True, kind=Path
    )
    engine: str = optional(LOCAL, ENGINE)
    resume: bool = help_field(False, "with --engine ray: resume an unfinished FILE; give the same options again")
    replace: bool = help_field(False, "overwrite existing outputs")


@dataclasses.dataclass(frozen=True)
class TokenizeRequest(Request, EncodingSettings):
    """A tokenizer, and how its pieces are shown."""

    _: dataclasses.KW_ONLY
    vocab: str | Path | None = optional(None, VOCAB)
    model: str | Path | None = optional(None, MODEL)
    cased: bool = optional(False, CASED)
    rules: str | None = optional(None, RULES)
    ids: bool = help_field(False, "print ids instead of pieces")
    special_tokens: bool = help_field(True, "parse [MASK] and the like as special tokens, as fill does")


@dataclasses.dataclass(frozen=True)
class InputsRequest(Request):
    """A text or a pair, and a tokenizer."""

    first: Annotated[str, Help("a text", flag="A")]
    second: str | None = help_field(None, "a second text", flag="B")
    _: dataclasses.KW_ONLY
    vocab: str | Path | None = optional(None, VOCAB)
    model: str | Path | None = optional(None, MODEL)
    cased: bool = optional(False, CASED)
    rules: str | None = optional(None, RULES)
    max_length: int | None = help_field(
        None, "maximum tokens, special ones included; default: what the model reads; without --model: 512"
    )
