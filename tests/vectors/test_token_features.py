"""Vectors of words and pieces: the pieces of a word, the windows of a long text, token offsets."""

import dataclasses
import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.inference.vectors import token_features
from bertsmith.inference.vectors.loading import load_embedder, load_token_features
from bertsmith.inference.vectors.token_features import TokenFeatures, TokenVectors
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.text.tokenizers.pack import pack_rows
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.windows import windows
from bertsmith.text.tokenizers.wordpiece import OffsetEncoder, WordPieceTokenizer
from model.examples import shake
from tasks.task_samples import CONFIG, TOKENIZER

TEXTS = ["The good-films  was Äited", "", "romes annas", " ", "it ? plots"]


@functools.cache
def encoder_of(folder: Path) -> FrozenEncoder:
    return load_frozen_encoder(folder, device="cpu")


def everything(features: TokenFeatures, texts: list[str], first_line: int = 0) -> TokenVectors:
    parts = list(features.read(texts, first_line))
    return TokenVectors(
        line=np.concatenate([part.line for part in parts]),
        token=[token for part in parts for token in part.token],
        begin=np.concatenate([part.begin for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        vectors=np.concatenate([part.vectors for part in parts]),
    )


def vectors_of(folder: Path, ids: np.ndarray, layers: str = "last") -> np.ndarray:
    """The vectors of one row of pieces, without those of [CLS] and [SEP]."""
    encoder = encoder_of(folder)
    rows = pack_rows([ids], template=TOKENIZER.template, max_length=64, model_limit=64)
    return encoder.token_vectors(rows, encoder.choice(layers))[1:-1]


WIDE = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *"abσςi", *(f"##{letter}" for letter in "abσςi"), "!", "。"]))
# Combining accents, symbols, the two lower-case forms of a letter, several kinds of spaces, dropped characters.
ODD = st.text(st.sampled_from("abABΣσiİ !。中\u0301\u0345\u00a0\u200b\t\x00é") | st.characters(), max_size=20)


@given(st.lists(ODD, max_size=5))
def test_pieces_of_many_texts_are_those_of_each_text(texts):
    encoder = OffsetEncoder(WIDE.encode_with_offsets, 500)
    for _ in range(2):
        encoded, begin, end = encoder.encode(texts)
        for number, text in enumerate(texts):
            alone = WIDE.encode_with_offsets(text)
            here = slice(encoded.offsets[number], encoded.offsets[number + 1])
            assert encoded[number].tolist() == alone.ids.tolist()
            assert (begin[here].tolist(), end[here].tolist()) == (alone.starts.tolist(), alone.ends.tolist())


@pytest.mark.parametrize("layers", ["last", "second-to-last", "sum-all", "embeddings", "-1,0"])
def test_pieces_have_the_hidden_states_of_their_text_and_their_characters(folder, layers):
    result = everything(load_token_features(folder, layers=layers, unit="pieces", device="cpu"), TEXTS, first_line=7)
    row = 0
    for number, text in enumerate(TEXTS):
        pieces = TOKENIZER.encode_with_offsets(text)
        here = slice(row, row + len(pieces))
        assert (result.line[here] == number + 7).all()
        assert result.token[here] == [TOKENIZER.vocabulary.pieces[id] for id in pieces.ids.tolist()]
        np.testing.assert_array_equal(result.begin[here], pieces.starts)
        np.testing.assert_array_equal(result.end[here], pieces.ends)
        if len(pieces):
            np.testing.assert_allclose(
                result.vectors[here], vectors_of(folder, pieces.ids, layers), rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE
            )
        row += len(pieces)
    assert row == len(result.token) == len(result.vectors)


def test_a_word_is_its_first_piece_or_the_mean_of_its_pieces(folder):
    first = everything(load_token_features(folder, unit="first", device="cpu"), TEXTS)
    mean = everything(load_token_features(folder, unit="mean", device="cpu"), TEXTS)
    pieces = everything(load_token_features(folder, unit="pieces", device="cpu"), TEXTS)
    assert first.token == ["The", "good", "-", "films", "was", "Äited", "romes", "annas", "it", "?", "plots"]
    for features in (first, mean):
        assert features.token == first.token
        for line, token, begin, end in zip(features.line, features.token, features.begin, features.end, strict=True):
            assert TEXTS[line][begin:end] == token
    for word, (line, begin, end) in enumerate(zip(first.line, first.begin, first.end, strict=True)):
        inside = np.flatnonzero((pieces.line == line) & (pieces.begin >= begin) & (pieces.end <= end))
        np.testing.assert_allclose(
            first.vectors[word], pieces.vectors[inside[0]], rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE
        )
        np.testing.assert_allclose(
            mean.vectors[word], pieces.vectors[inside].mean(0), rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE
        )
    assert sum(token.endswith("##s") for token in pieces.token) == 4


@pytest.mark.parametrize("unit", ["first", "mean", "pieces"])
@pytest.mark.parametrize("max_length", [3, 8, 9, 64])
def test_no_word_of_a_long_text_is_lost(folder, unit, max_length):
    """Each piece comes from the window in which it has most context, at least a quarter of a row on each side."""
    text = " ".join(["romes", "it", "good", "films", "?"] * 10)
    pieces = TOKENIZER.encode_with_offsets(text)
    features = load_token_features(folder, unit=unit, max_length=max_length, device="cpu")
    result = everything(features, ["anna", text, "bert"])
    assert " ".join(result.token[1:-1]).replace(" ##", "") == text
    assert features.long_texts == 1
    room = max_length - 2
    cut = windows(None, pieces.ids, template=TOKENIZER.template, max_length=max_length, stride=max(room // 2, 1))
    wanted = np.concatenate(
        [
            vectors_of(folder, pieces.ids[start:end])[cut.has_max_context[offset + 1 : offset + 1 + end - start]]
            for start, end, offset in zip(cut.starts, cut.ends, cut.rows.offsets[:-1], strict=True)
        ]
    )
    firsts = np.flatnonzero([not TOKENIZER.vocabulary.pieces[id].startswith("##") for id in pieces.ids.tolist()])
    if unit == "first":
        wanted = wanted[firsts]
    elif unit == "mean":
        wanted = np.stack([part.mean(0) for part in np.split(wanted, firsts[1:])])
    np.testing.assert_allclose(result.vectors[1:-1], wanted, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)


@pytest.mark.parametrize("unit", ["first", "mean", "pieces"])
def test_the_chunk_size_changes_no_vector(folder, unit, monkeypatch):
    texts = [" ".join(["romes", "it", "films"] * 9), *TEXTS, "annas" + "s" * 20]
    features = load_token_features(folder, unit=unit, max_length=7, device="cpu")
    whole = everything(features, texts)
    for pieces in (1, 2, 5):
        monkeypatch.setattr(token_features, "CHUNK_BYTES", 4 * features.width * pieces)
        parts = list(features.read(texts))
        assert len(parts) > 3
        again = everything(features, texts)
        assert again.token == whole.token
        np.testing.assert_allclose(again.vectors, whole.vectors, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)


@pytest.mark.parametrize("unit", ["first", "mean", "pieces"])
def test_equal_texts_are_computed_once_and_have_equal_vectors(folder, unit):
    long = " ".join(["romes", "it", "films"] * 9)
    texts = ["it was good", long, "annas plots", long, "it was good", "", "annas plots", "it was good"]
    features = load_token_features(folder, unit=unit, max_length=9, device="cpu")
    once = everything(features, [texts[0], long, texts[2]])
    rows = []
    features.encoder.model.register_forward_pre_hook(lambda _, batch: rows.append(batch[0].num_rows))
    everything(features, [texts[0], long, texts[2]])
    again = everything(features, texts)
    assert rows[0] == rows[1]
    of_line = [once.vectors[once.line == line] for line in range(3)]
    for line, same in ((0, 0), (1, 1), (2, 2), (3, 1), (4, 0), (6, 2), (7, 0)):
        assert np.array_equal(again.vectors[again.line == line], of_line[same])


def test_equal_pieces_cut_into_other_words_have_the_vectors_of_their_own_words(folder):
    features = load_token_features(folder, unit="first", max_length=9, device="cpu")
    together, apart = features.word_vectors([["good-films"], ["good", "-", "films"]])
    assert (together.shape[0], apart.shape[0]) == (1, 3)
    assert torch.equal(together[0], apart[0])


def test_a_word_whose_pieces_are_in_two_windows_is_whole(folder, monkeypatch):
    """Ten pieces of one word in rows of four."""
    word = "plot" + "s" * 9
    features = load_token_features(folder, unit="mean", max_length=6, device="cpu")
    monkeypatch.setattr(token_features, "CHUNK_BYTES", 1)
    result = everything(features, [f"it {word} was"])
    pieces = everything(load_token_features(folder, unit="pieces", max_length=6, device="cpu"), [f"it {word} was"])
    assert result.token == ["it", word, "was"]
    np.testing.assert_allclose(
        result.vectors[1], pieces.vectors[1:-1].mean(0), rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE
    )


def test_texts_without_a_piece_have_no_row_and_are_counted(folder):
    features = load_token_features(folder, device="cpu")
    assert list(features.read(["", " \t"])) == []
    assert features.empty_texts == 2
    assert list(features.read([])) == []


@pytest.mark.parametrize("unit", ["first", "mean"])
def test_given_words_have_one_vector_each(folder, unit):
    """One vector per word, whatever the pieces of the words are."""
    features = load_token_features(folder, unit=unit, device="cpu")
    sentences = [["The", "films", "was", "good-plots"], [], ["\u0301", "anna"], ["it"] * 200]
    result = features.word_vectors(sentences)
    assert [tuple(vectors.shape) for vectors in result] == [(4, 32), (0, 32), (2, 32), (200, 32)]
    assert all(vectors.dtype == torch.float32 for vectors in result)
    ids = TOKENIZER.encode("The films was good-plots")
    alone = vectors_of(folder, ids)
    names = [TOKENIZER.vocabulary.pieces[id] for id in ids.tolist()]
    assert names == ["the", "film", "##s", "was", "good", "[UNK]", "plot", "##s"]
    firsts = [0, 1, 3, 4]
    wanted = alone[firsts] if unit == "first" else np.stack([part.mean(0) for part in np.split(alone, firsts[1:])])
    np.testing.assert_allclose(result[0].numpy(), wanted, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)
    unknown = vectors_of(folder, np.array([TOKENIZER.vocabulary.unk_id, TOKENIZER.vocabulary.index["anna"]]))
    np.testing.assert_allclose(result[2].numpy(), unknown, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)
    assert features.word_vectors([]) == []


@pytest.mark.parametrize("modules", [[], ["Pooling"], ["Pooling", "Dense"]])
def test_a_sentence_transformers_folder_says_where_its_encoder_is_and_how_it_reads(tmp_path, modules):
    model = untrained(CONFIG, seed=3)
    shake(model)
    rules = dataclasses.replace(TOKENIZER.rules, lowercase=False, strip_accents=False)
    save_pretrained(
        tmp_path / "inside", model, WordPieceTokenizer(TOKENIZER.vocabulary, rules), ModelMetadata.from_dict({})
    )
    text = "The FILM was good"
    cased = everything(load_token_features(tmp_path / "inside", device="cpu"), [text])
    listed = [{"path": "inside", "type": "sentence_transformers.models.Transformer"}]
    listed += [
        {"path": f"{number}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for number, kind in enumerate(modules, 1)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(listed))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    (tmp_path / "inside" / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    features = load_token_features(tmp_path, device="cpu")
    result = everything(features, [text])
    assert result.token == text.split()
    lower = everything(load_token_features(tmp_path / "inside", device="cpu"), [text.lower()])
    np.testing.assert_allclose(result.vectors, lower.vectors, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)
    assert np.abs(result.vectors - cased.vectors).max() > 0.01
    if modules == ["Pooling"]:
        embedder = load_embedder(tmp_path, device="cpu")
        assert embedder.encoder.settings(embedder.choice) == features.encoder.settings(features.choice)


def test_invalid_settings_are_refused(folder):
    with pytest.raises(ConfigError, match="unit"):
        load_token_features(folder, unit="last", device="cpu")
    with pytest.raises(ConfigError, match="max_length"):
        load_token_features(folder, max_length=65, device="cpu")
    with pytest.raises(ConfigError, match="max_length"):
        load_token_features(folder, max_length=2, device="cpu")
    with pytest.raises(ConfigError, match="unit"):
        load_token_features(folder, unit="pieces", device="cpu").word_vectors([["it"]])
