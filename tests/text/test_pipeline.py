"""Tokenizers that a `tokenizer.json` describes: ids, characters, words, special pieces, errors."""

import json
import pickle
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import CheckpointError, ConfigError, VocabularyError
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.model_files.tokenizer_files import lowercased, read_pipeline, with_rules
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.template import Template
from tasks.architecture_samples import tokenizer_of, write_byte_level

TOKENIZER = tokenizer_of("roberta")
TEXTS = st.text(st.sampled_from("the film was né中😀 \t.#") | st.characters(codec="utf-8"), max_size=40)


def peer() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(TOKENIZER.description))


@given(TEXTS)
def test_ids_are_those_of_the_package_and_decode_to_the_text(text: str) -> None:
    ids = TOKENIZER.encode(text).tolist()
    if "<" not in text:
        assert ids == peer().encode(text, add_special_tokens=False).ids
    assert TOKENIZER.decode(ids) == text


@given(TEXTS)
def test_pieces_stand_for_the_characters_at_their_offsets_without_white_space_in_front(text: str) -> None:
    result = TOKENIZER.encode_with_offsets(text)
    for id, start, end in zip(result.ids.tolist(), result.starts.tolist(), result.ends.tolist(), strict=True):
        assert 0 <= start <= end <= len(text)
        part = text[start:end]
        assert part == part.lstrip()
        piece = TOKENIZER.decode([id]).strip()
        assert "\ufffd" in piece or piece == part.strip()


def test_many_texts_are_the_texts_one_by_one_and_a_null_is_empty() -> None:
    texts = ["the film", "", "was  good ."]
    whole = TOKENIZER.encode_batch(pa.array([*texts, None]))
    assert [ids.tolist() for ids in whole] == [TOKENIZER.encode(text).tolist() for text in (*texts, "")]
    encoded, starts, ends = TOKENIZER.encode_batch_with_offsets(texts)
    rows = [TOKENIZER.encode_with_offsets(text) for text in texts]
    assert encoded.ids.tolist() == [id for row in rows for id in row.ids.tolist()]
    assert starts.tolist() == [start for row in rows for start in row.starts.tolist()]
    assert ends.tolist() == [end for row in rows for end in row.ends.tolist()]
    assert len(TOKENIZER.encode_batch([])) == 0
    assert len(TOKENIZER.encode_batch_with_offsets([]).starts) == 0


def test_a_word_is_encoded_as_inside_a_text_with_the_space_before_it() -> None:
    words = TOKENIZER.encode_words(["film", "film", "."], [True, False, False])
    pieces = [[TOKENIZER.vocabulary.pieces[id] for id in ids.tolist()] for ids in words]
    assert pieces == [["Ġfilm"], ["fi", "lm"], ["."]]
    assert TOKENIZER.encode_words(["film"]).ids.tolist() == words.ids[:1].tolist()
    begins = dict(zip(TOKENIZER.vocabulary.pieces, TOKENIZER.begins_word.tolist(), strict=True))
    assert (begins["Ġfilm"], begins["fi"], begins["."]) == (True, False, False)


def test_special_pieces_in_a_text_are_ordinary_unless_they_are_asked_for() -> None:
    vocabulary = TOKENIZER.vocabulary
    plain = TOKENIZER.encode("the </s> <mask>")
    assert not vocabulary.special_ids & set(plain.tolist())
    asked = TOKENIZER.encode("the </s> <mask>", special_tokens=True).tolist()
    assert {vocabulary.sep_id, vocabulary.mask_id} <= set(asked)
    assert TOKENIZER.decode(plain) == "the </s> <mask>"
    assert TOKENIZER.decode(asked) == "the "


@pytest.mark.parametrize("text", ["The [MASK] was <mask>[MASK] .", "[MASK]", " [MASK] a[MASK]b"])
def test_the_mask_of_bert_is_the_mask_of_the_model(text: str) -> None:
    result = TOKENIZER.encode_with_offsets(text, special_tokens=True)
    encoded = TOKENIZER.encode(text.replace("[MASK]", "<mask>"), special_tokens=True)
    assert result.ids.tolist() == encoded.tolist() == TOKENIZER.encode(text, special_tokens=True).tolist()
    spans = zip(result.ids.tolist(), result.starts.tolist(), result.ends.tolist(), strict=True)
    masks = [text[start:end] for id, start, end in spans if id == TOKENIZER.vocabulary.mask_id]
    assert masks == [part for part in text.replace("[MASK]", " [MASK] ").replace("<mask>", " <mask> ").split()
                     if part in ("[MASK]", "<mask>")]  # fmt: skip
    others = [text[start:end] for start, end in zip(result.starts.tolist(), result.ends.tolist(), strict=True)]
    assert "".join(others) == "".join(text.split())
    assert TOKENIZER.vocabulary.mask_id not in TOKENIZER.encode(text).tolist()


def test_an_answer_is_located_by_its_text_nearest_to_the_text_before_it() -> None:
    words = "the film was the plot"
    ids = TOKENIZER.encode(words).tolist()
    assert TOKENIZER.locate(ids[3:], words, ids[:3]) == (13, 21)
    assert TOKENIZER.locate(ids[:1], words) == (0, 3)
    assert TOKENIZER.locate([], words) == (0, len(words))


def test_a_pickled_tokenizer_is_the_same() -> None:
    again = pickle.loads(pickle.dumps(TOKENIZER))  # noqa: S301 - written one line above
    assert again.encode("the film").tolist() == TOKENIZER.encode("the film").tolist()
    assert (again.vocabulary, again.template, again.settings) == (
        TOKENIZER.vocabulary,
        TOKENIZER.template,
        TOKENIZER.settings,
    )


def test_a_lower_cased_tokenizer_differs_in_that_alone_and_keeps_the_characters() -> None:
    lower = lowercased(TOKENIZER)
    assert lower.encode("The FILM").tolist() == TOKENIZER.encode("the film").tolist()
    assert lower.encode_with_offsets("The FILM").starts.tolist() == [0, 4]
    assert (lower.rules.lowercase, TOKENIZER.rules.lowercase) == (True, False)
    assert lower.settings != TOKENIZER.settings


def test_text_rules_are_for_wordpieces() -> None:
    with pytest.raises(ConfigError, match="WordPiece"):
        with_rules(TOKENIZER, TextRules())


def described(**changes: object) -> PipelineTokenizer:
    description = {**TOKENIZER.description, **changes}
    return PipelineTokenizer(description, TOKENIZER.vocabulary.special, source="'here'")


def piece(name: str, segment: int = 0) -> dict[str, object]:
    return {"SpecialToken": {"id": name, "type_id": segment}}


def test_templates_are_read_in_every_form() -> None:
    text = {name: {"Sequence": {"id": name, "type_id": number}} for number, name in enumerate("AB")}
    special = {name: {"id": name, "ids": [id], "tokens": [name]} for name, id in (("<s>", 0), ("</s>", 2))}
    written = {
        "type": "TemplateProcessing",
        "single": [piece("<s>"), text["A"], piece("</s>")],
        "pair": [piece("<s>"), text["A"], piece("</s>"), text["B"], piece("</s>", 1)],
        "special_tokens": special,
    }
    bert = Template.bert(0, 2)
    assert described(post_processor=written).template == bert
    assert described(post_processor={"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}).template == bert
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    several = {"type": "Sequence", "processors": [byte_level, written]}
    assert described(post_processor=several).template == bert
    assert TOKENIZER.template == Template(start=(0,), between=(2, 2), end=(2,), second_segment=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"type": "Telepathy"}}, "a tokenizer that the package tokenizers"),
        ({"model": None}, "a tokenizer that the package tokenizers"),
        ({"post_processor": None}, "a post-processor in 'here'"),
        ({"post_processor": {"type": "Sequence", "processors": []}}, "a post-processor in 'here'"),
    ],
)
def test_an_unreadable_description_is_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        described(**changes)


def test_a_missing_special_piece_is_named() -> None:
    special = TOKENIZER.vocabulary.special._replace(mask="<blank>")
    with pytest.raises(VocabularyError, match="<blank>"):
        PipelineTokenizer(TOKENIZER.description, special, source="'here'")


def test_without_the_package_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_byte_level(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(CheckpointError, match=r"pip install 'bertsmith\[tokenizers\]'"):
        read_pipeline(tmp_path, ModelMetadata())
