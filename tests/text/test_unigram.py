"""Unigram pieces against the package `tokenizers`, against all ways to cut a word, and in damaged files."""

import itertools
import json
import pickle
import sys

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from bertsmith.base.core.errors import CheckpointError
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.unigram import Unigram, UnigramPipeline
from bertsmith.text.tokenizers.vocabulary import SpecialPieces
from oracles.double_array import packed
from tasks.architecture_samples import tokenizer_of, unigram_pieces

SPECIAL = SpecialPieces(pad="<pad>", unk="<unk>", cls="[CLS]", sep="[SEP]", mask="[MASK]")
TABLE = {"ﬁ": "fi", "\u00a0": " ", "½": "1⁄2", "´": " \u0301", "e\u0301": "é", "ａ": "a", "が": "か", "\u200b": ""}
SCRIPTS = "the film wasé中文日本が한국 हिन्दी ไทยعربي😀ﬁ½´\u00a0\u200b\u0301▁\t\n."
TEXTS = st.text(st.sampled_from(SCRIPTS) | st.characters(codec="utf-8"), max_size=40)
ADDED = [
    {
        "id": id,
        "content": piece,
        "single_word": False,
        "lstrip": piece == "[MASK]",
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    for id, piece in enumerate(("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"))
]


def described(*, lowercase: bool = True, splits_first: bool = True, scheme: str = "always") -> dict[str, object]:
    pieces = unigram_pieces([token["content"] for token in ADDED])
    more = [(letter, -8.0) for letter in "éか中文한국हनदไท😀\u0301"]
    steps = [
        {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
        *([{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}] if lowercase else []),
        {"type": "Precompiled", "precompiled_charsmap": packed(TABLE)},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    ]
    mark = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": ADDED,
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, mark]}
        if splits_first
        else mark,
        "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
        "decoder": mark,
        "model": {
            "type": "Unigram",
            "unk_id": 1,
            "byte_fallback": False,
            "vocab": [[*piece] for piece in [*pieces, *more]],
        },
    }


MARKED = described(lowercase=False)  # as transformers converts a model file
MARKED["normalizer"] = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Precompiled", "precompiled_charsmap": packed(TABLE)},
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
    ],
}
FORMS = [described(), described(lowercase=False), described(splits_first=False), described(scheme="first"), MARKED]


@pytest.mark.parametrize("description", FORMS, ids=["albert", "cased", "one step", "first word", "marked"])
@given(text=TEXTS)
@example("\u04830")
@example("the film\x1f")
@example("\u0301the film")
@example("\u200bthe film")
@example("\u0301 the film")
def test_ids_and_their_text_are_those_of_the_package(description: dict[str, object], text: str) -> None:
    ours = UnigramPipeline.of(description, "here")
    peer = tokenizers.Tokenizer.from_str(json.dumps(description))
    (result,), expected = ours.encode_batch([text]), peer.encode(text, add_special_tokens=False)
    assert result.ids == expected.ids
    assert ours.decode(result.ids) == peer.decode(expected.ids)
    assert len(result.offsets) == len(result.ids)
    assert all(0 <= start <= end <= len(text) for start, end in result.offsets)


@given(text=st.text(st.sampled_from("the film wasé中文😀ﬁ½ ."), max_size=30))
def test_characters_of_pieces_are_those_of_the_package(text: str) -> None:
    ours = UnigramPipeline.of(FORMS[1], "here")
    peer = tokenizers.Tokenizer.from_str(json.dumps(FORMS[1]))
    assert ours.encode_batch([text])[0].offsets == peer.encode(text, add_special_tokens=False).offsets


@given(
    word=st.text(st.sampled_from("abc"), min_size=1, max_size=6),
    scores=st.lists(st.floats(-9, -1), min_size=6, max_size=6),
)
def test_the_pieces_of_a_word_are_the_most_probable_of_all(word: str, scores: list[float]) -> None:
    pieces = [("<unk>", 0.0), *zip(("a", "b", "ab", "ba", "abc", "bb"), scores, strict=True)]
    known, unknown = dict(pieces[1:]), min([0.0, *scores]) - 10
    result = Unigram(pieces, 0).cut(word)
    assert "".join(word[cut.start : cut.end] for cut in result) == word
    best = -float("inf")
    for borders in itertools.product((False, True), repeat=len(word) - 1):
        edges = [0, *(position for position, is_border in enumerate(borders, start=1) if is_border), len(word)]
        parts = [word[start:end] for start, end in itertools.pairwise(edges)]
        if all(part in known or len(part) == 1 for part in parts):
            best = max(best, sum(known.get(part, unknown) for part in parts))
    total = sum(unknown * (cut.end - cut.start) if cut.id == 0 else scores[cut.id - 1] for cut in result)
    assert total == pytest.approx(best)


def test_ordinary_text_makes_no_special_pieces_but_a_row_with_a_mask_does() -> None:
    tokenizer = PipelineTokenizer(described(lowercase=False), SPECIAL, source="here")
    assert not tokenizer.vocabulary.special_ids - {1} & set(tokenizer.encode("<pad> [CLS] x [MASK]").tolist())
    ids = tokenizer.encode("the [MASK] film", special_tokens=True).tolist()
    assert [tokenizer.vocabulary.pieces[id] for id in ids] == ["▁the", "[MASK]", "▁film"]
    result = tokenizer.encode_with_offsets("the [MASK] film", special_tokens=True)
    assert [*zip(result.starts.tolist(), result.ends.tolist(), strict=True)] == [(0, 3), (4, 10), (11, 15)]


def test_it_needs_no_package_and_can_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    tokenizer = PipelineTokenizer(described(), SPECIAL, source="here")
    again = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301 - made here
    assert again.encode("The film").tolist() == tokenizer.encode("The film").tolist()
    assert again.settings == tokenizer.settings
    assert tokenizer.rules.lowercase


def test_words_begin_at_the_mark_of_a_space() -> None:
    tokenizer = tokenizer_of("albert")
    ids = tokenizer.encode("the films")
    pieces = [tokenizer.vocabulary.pieces[id] for id in ids]
    assert pieces == ["▁the", "▁film", "s"]
    assert tokenizer.starts_of_words(ids).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "change",
    [
        {"vocab": [["a"]]},
        {"vocab": [["a", "x"]]},
        {"unk_id": None},
        {"unk_id": 999},
    ],
)
def test_a_damaged_model_is_one_line(change: dict[str, object]) -> None:
    description = described()
    description["model"] = {**description["model"], **change}
    with pytest.raises(CheckpointError, match="pieces with log-probabilities and the id of an unknown one in 'a file'"):
        PipelineTokenizer(description, SPECIAL, source="'a file'")


def test_a_step_that_is_unknown_here_is_left_to_the_package() -> None:
    for part, other in (
        ("normalizer", {"type": "Nmt"}),
        ("pre_tokenizer", {"type": "Whitespace"}),
        ("decoder", {"type": "Fuse"}),
    ):
        assert UnigramPipeline.of({**described(), part: other}, "here") is None
    tokenizer = PipelineTokenizer({**described(), "normalizer": {"type": "Nmt"}}, SPECIAL, source="here")
    assert tokenizer.tokenize("the film") == ["▁the", "▁film"]
