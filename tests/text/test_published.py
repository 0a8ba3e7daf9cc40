"""The published vocabularies on real text, against the Rust library; needs the real data."""

import json
import unicodedata
from pathlib import Path

import pytest
import tokenizers

from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

VOCABULARIES = ["uncased", "cased", "multilingual-cased", "chinese"]


def published(real_data: Path, name: str) -> Path:
    return real_data / "vocab" / f"bert-base-{name}-vocab.txt"


def real_lines(real_data: Path) -> list[str]:
    files = [
        file for file in sorted((real_data / "multilingual").rglob("*")) if file.suffix in (".txt", ".tsv", ".conllu")
    ]
    files += sorted((real_data / "pretrain_gutenberg100").glob("*.txt"))[:5]
    return [line for file in files for line in file.read_text(encoding="utf-8").split("\n")]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_of_real_lines_equal_the_rust_library(real_data: Path, name: str, lowercase: bool) -> None:
    path = published(real_data, name)
    tokenizer = WordPieceTokenizer(Vocabulary.load(path), TextRules(lowercase=lowercase))
    peer = tokenizers.BertWordPieceTokenizer(str(path), lowercase=lowercase)
    lines = real_lines(real_data)
    encoded = tokenizer.encode_batch(lines)
    differing = [
        line
        for number, (line, theirs) in enumerate(
            zip(lines, peer.encode_batch(lines, add_special_tokens=False), strict=True)
        )
        if encoded[number].tolist() != theirs.ids
    ]
    assert len(lines) > 10_000
    assert differing == []


def test_the_published_uncased_pieces_are_as_recorded(real_data: Path) -> None:
    """The published vocabulary does not have the pieces of the lecture."""
    tokenizer = WordPieceTokenizer(Vocabulary.load(published(real_data, "uncased")))
    cuts = {
        "John Johanson's,": "john johan ##son ' s ,",
        "philammon": "phil ##am ##mon",
        "flightless": "flight ##less",
        "embeddings": "em ##bed ##ding ##s",
        "tweeting": "t ##wee ##ting",
        "xanax": "x ##ana ##x",
    }
    assert {text: " ".join(tokenizer.tokenize(text)) for text in cuts} == cuts
    assert tokenizer.encode("! the").tolist() == [999, 1996]


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_the_rules_google_differ_from_the_rust_library_exactly_on_the_characters_of_the_decision_page(
    lowercase: bool,
) -> None:
    page = Path(__file__).parents[2] / "docs" / "decisions" / "0009-unicode-tables.md"
    recorded = json.loads(page.read_text(encoding="utf-8").split("```json")[1].split("```")[0])
    if unicodedata.unidata_version != recorded["unicode"]:
        pytest.skip(f"the page is about Unicode {recorded['unicode']}; this Python has {unicodedata.unidata_version}")
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    cutter = tokenizers.pre_tokenizers.BertPreTokenizer()
    rules = TextRules.google(lowercase=lowercase)
    differing: dict[str, int] = {}
    for code in range(0x110000):
        text = f"a{chr(code)}b"
        if not 0xD800 <= code <= 0xDFFF and basic_tokens(text, rules) != [
            word for word, _ in cutter.pre_tokenize_str(normalizer.normalize_str(text))
        ]:
            category = unicodedata.category(chr(code))
            differing[category] = differing.get(category, 0) + 1
    assert differing == recorded["uncased" if lowercase else "cased"]
