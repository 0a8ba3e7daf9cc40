"""The characters of a Chinese word are masked together."""

import sys

import numpy as np
import pytest

from bertsmith.corpus.build import build_corpus
from bertsmith.documents.readers import Document
from bertsmith.errors import ConfigError, RunError
from bertsmith.library.training import pretrain
from bertsmith.pretraining import chinese_words, masking, run
from bertsmith.pretraining.chinese_words import ChineseWords, segmenter, warn_of_single_characters
from bertsmith.pretraining.counted_draws import instance_keys
from bertsmith.pretraining.masking import Masker
from bertsmith.pretraining.settings import PretrainingDataSettings
from bertsmith.text.normalize import TextRules
from bertsmith.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.wordpiece import WordPieceTokenizer

VOCABULARY = Vocabulary([*SPECIAL_PIECES, *"北京大学生喜欢，a", "##b"])
WORDS = ("北京", "大学生", "喜欢")
SETTINGS = PretrainingDataSettings(whole_word=True, chinese_words=True, masked_share=0.4)


def split(text: str) -> list[str]:
    """Words from a list, and single characters; two line ends are one word, as some segmenters have it."""
    result = []
    while text:
        word = next((word for word in (*WORDS, "\n\n") if text.startswith(word)), text[0])
        result.append(word)
        text = text[len(word) :]
    return result


def ids(pieces: str) -> np.ndarray:
    return np.array([VOCABULARY.index[piece] for piece in pieces.split()], dtype=np.int32)


ROW = ids("[CLS] 北 京 大 学 生 喜 欢 ， a ##b 北 [UNK] 京 [SEP]")


def test_a_token_continues_a_word_only_behind_a_character_of_the_same_word() -> None:
    result = ChineseWords(VOCABULARY, split).continues(ROW)
    assert result.tolist() == [False, False, True, False, True, True, False, True] + [False] * 7
    assert not ChineseWords(VOCABULARY, split).continues(ROW[:0]).any()


def test_words_do_not_cross_rows() -> None:
    rows = np.concatenate([ids("[CLS] 北 [SEP]"), ids("[CLS] 京 [SEP]")])
    assert not ChineseWords(VOCABULARY, split).continues(rows).any()


def test_masks_take_whole_words_and_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "segmenter", lambda: split)
    masker = Masker(VOCABULARY, SETTINGS)
    units = [{1, 2}, {3, 4, 5}, {6, 7}, {8}, {9, 10}, {11}, {12}, {13}]
    taken = set()
    for number in range(60):
        keys = instance_keys(number, 0, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        result = masker.mask_rows(ROW, np.array([len(ROW)]), keys)
        positions = set(result.positions.tolist())
        assert positions
        for position, unit in enumerate(units):
            assert not positions & unit or unit <= positions
            taken |= {position} if unit <= positions else set()
    assert taken == set(range(len(units)))


def test_without_the_setting_characters_are_masked_one_by_one() -> None:
    masker = Masker(VOCABULARY, PretrainingDataSettings(whole_word=True, masked_share=0.1))
    keys = instance_keys(0, 0, np.arange(50), np.zeros(50, dtype=np.int64))
    result = masker.mask_rows(np.tile(ROW[:8], 50), np.full(50, 8), keys)
    assert set(result.per_row.tolist()) == {1}


def test_the_segmenter_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(ConfigError, match=r"rjieba.*not installed.*bertsmith\[chinese\]"):
        Masker(VOCABULARY, SETTINGS)


def test_settings_and_vocabulary_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="whole_word with chinese_words"):
        PretrainingDataSettings(chinese_words=True)
    monkeypatch.setattr(masking, "segmenter", lambda: split)
    with pytest.raises(ConfigError, match="a vocabulary with Chinese characters"):
        Masker(Vocabulary([*SPECIAL_PIECES, "a"]), SETTINGS)


def test_masking_characters_of_a_chinese_corpus_one_by_one_is_worth_a_warning(capsys: pytest.CaptureFixture) -> None:
    counts = np.zeros(len(VOCABULARY), dtype=np.int64)
    counts[VOCABULARY.index["a"]] = 99
    counts[VOCABULARY.index["北"]] = 1
    warn_of_single_characters(VOCABULARY, counts)
    assert capsys.readouterr().err == ""
    counts[VOCABULARY.index["北"]] = 99
    warn_of_single_characters(VOCABULARY, counts)
    assert "50 % of the tokens are Chinese characters" in capsys.readouterr().err


def test_the_package_finds_words() -> None:
    pytest.importorskip("rjieba", reason="needs the extra chinese")
    assert segmenter()("北京大学生喜欢") == ["北京", "大学生", "喜欢"]
    assert chinese_words.segmenter_version().startswith("rjieba ")
    result = ChineseWords(VOCABULARY, segmenter()).continues(ROW)
    assert result.tolist() == [False, False, True, False, True, True, False, True] + [False] * 7


def test_a_run_records_the_segmenter_and_is_resumed_with_it_alone(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "segmenter", lambda: split)
    monkeypatch.setattr(run, "segmenter_version", lambda: "split 1")
    tokenizer = WordPieceTokenizer(VOCABULARY, TextRules(lowercase=False))
    documents = [Document("zh", ["北京大学生喜欢，", "大学生喜欢北京，"]) for _ in range(4)]
    build_corpus(documents, tokenizer, tmp_path / "corpus", held_out=0.25, workers=1)
    settings = {"size": "tiny", "rows_per_step": 2, "max_length": 16, "device": "cpu", "precision": "fp32"}
    masks = {"whole_word": True, "chinese_words": True}
    pretrain(tmp_path / "corpus", tmp_path / "run", steps=2, **settings, **masks)
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "- segmenter: `split 1`" in card
    monkeypatch.setattr(run, "segmenter_version", lambda: "split 2")
    with pytest.raises(RunError, match="segmenter"):
        pretrain(tmp_path / "corpus", tmp_path / "run", resume=True)
