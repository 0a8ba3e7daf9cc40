"""The pieces of a Chinese, Japanese or Thai word are masked together."""

import re
import sys

import numpy as np
import pytest

from bertsmith.app.library.training import pretrain
from bertsmith.base.core.errors import ConfigError, RunError
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.documents.readers import Document
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.pretraining import masking, run
from bertsmith.training.pretraining.counted_draws import instance_keys
from bertsmith.training.pretraining.masking import Masker
from bertsmith.training.pretraining.segmented_words import (
    LANGUAGES,
    SegmentedWords,
    segmenter,
    segmenter_versions,
    warn_of_lost_marks,
    warn_of_missing_words,
)
from bertsmith.training.pretraining.settings import PretrainingDataSettings

PIECES = [
    *"北京大学生喜欢，a人々はス",
    "##b",
    "の",
    "##の",
    "タワー",
    "##へ",
    "ประ",
    "เทศ",
    "##เทศ",
    "ไทย",
    "##ไทยสวย",
    "##งาม",
    "##กx",
]
VOCABULARY = Vocabulary([*SPECIAL_PIECES, *PIECES])
WORDS = ("北京タワー", "北京", "大学生", "喜欢", "人々", "ประเทศ", "ไทย", "สวยงาม", "京はス")
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


def words(pieces: str, *settings: str) -> str:
    """The pieces with `+` between those of one word; each `##` piece belongs to the piece before it otherwise."""
    row = ids(pieces)
    by_pieces = np.array([piece.startswith("##") for piece in pieces.split()])
    flags = SegmentedWords(VOCABULARY, dict.fromkeys(settings, split)).continues(row, by_pieces)
    return "".join(f"{'+' if flag else ' '}{piece}" for piece, flag in zip(pieces.split(), flags, strict=True)).strip()


ROW = "[CLS] 北 京 大 学 生 喜 欢 ， a ##b 北 [UNK] 京 [SEP]"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["chinese_words"], "[CLS] 北+京 大+学+生 喜+欢 ， a+##b 北 [UNK] 京 [SEP]"),
        (["chinese_words"], "北+京 タワー 人 々 北"),
        (["japanese_words"], "北+京+タワー ##へ 人+々 北 の ##の"),
        (["thai_words"], "[CLS] ประ+เทศ ไทย [SEP] ประ+##เทศ [SEP] ไทย ##งาม a+##งาม 北 京"),
        (["thai_words", "chinese_words"], "ประ+##เทศ ไทย 北+京 ไทย+##กx"),
    ],
)
def test_a_token_continues_a_word_only_behind_a_token_of_the_same_word(settings: list[str], expected: str) -> None:
    assert words(expected.replace("+", " "), *settings) == expected


def test_chinese_characters_next_to_kana_are_japanese() -> None:
    row = ids("北 京 タワー ， 北 京")
    segments = {"chinese_words": split, "japanese_words": list}
    flags = SegmentedWords(VOCABULARY, segments).continues(row, np.zeros(len(row), dtype=np.bool_))
    assert flags.tolist() == [False] * 5 + [True]
    assert words("北 京 タワー", "chinese_words", "japanese_words") == "北+京+タワー"


def test_a_border_inside_a_piece_is_ignored() -> None:
    assert words("ไทย ##ไทยสวย ##งาม", "thai_words") == "ไทย ##ไทยสวย+##งาม"


def test_no_tokens_and_single_tokens_have_no_words() -> None:
    assert words("", "chinese_words", "thai_words") == ""
    assert words("北", "chinese_words", "japanese_words") == "北"


def test_words_do_not_cross_rows() -> None:
    assert words("[CLS] 北 [SEP] [CLS] 京 [SEP]", "chinese_words", "japanese_words") == "[CLS] 北 [SEP] [CLS] 京 [SEP]"


def test_masks_take_whole_words_and_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "segmenter", lambda setting: split)
    masker = Masker(VOCABULARY, SETTINGS)
    units = [{1, 2}, {3, 4, 5}, {6, 7}, {8}, {9, 10}, {11}, {12}, {13}]
    row, taken = ids(ROW), set()
    for number in range(60):
        keys = instance_keys(number, 0, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        result = masker.mask_rows(row, np.array([len(row)]), keys)
        positions = set(result.positions.tolist())
        assert positions
        for position, unit in enumerate(units):
            assert not positions & unit or unit <= positions
            taken |= {position} if unit <= positions else set()
    assert taken == set(range(len(units)))


def test_a_word_in_a_thai_phrase_is_masked_without_the_phrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "segmenter", lambda setting: split)
    row = ids("[CLS] ประ ##เทศ ##ไทยสวย ##งาม [SEP]")
    keys = instance_keys(0, 0, np.arange(50), np.zeros(50, dtype=np.int64))
    sizes = {}
    for thai_words in (False, True):
        settings = PretrainingDataSettings(whole_word=True, thai_words=thai_words, masked_share=0.4)
        result = Masker(VOCABULARY, settings).mask_rows(np.tile(row, 50), np.full(50, 6), keys)
        sizes[thai_words] = set(result.per_row.tolist())
    assert sizes == {False: {0}, True: {2}}, "the phrase has more pieces than are to be masked"


def test_without_the_setting_characters_are_masked_one_by_one() -> None:
    masker = Masker(VOCABULARY, PretrainingDataSettings(whole_word=True, masked_share=0.1))
    keys = instance_keys(0, 0, np.arange(50), np.zeros(50, dtype=np.int64))
    result = masker.mask_rows(np.tile(ids(ROW)[:8], 50), np.full(50, 8), keys)
    assert set(result.per_row.tolist()) == {1}


@pytest.mark.parametrize(("setting", "extra"), [("chinese_words", "chinese"), ("thai_words", "thai")])
def test_the_segmenters_are_extras(setting: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = LANGUAGES[setting].package
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"{package}.*\({setting}\).*not installed.*bertsmith\[{extra}\]"):
        Masker(VOCABULARY, PretrainingDataSettings(whole_word=True, **{setting: True}))


@pytest.mark.parametrize("setting", LANGUAGES)
def test_settings_and_vocabulary_must_fit(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"--{setting.replace('_', '-')} needs --whole-word"):
        PretrainingDataSettings(**{setting: True})
    monkeypatch.setattr(masking, "segmenter", lambda setting: split)
    settings = PretrainingDataSettings(whole_word=True, **{setting: True})
    with pytest.raises(ConfigError, match=f"a vocabulary with {LANGUAGES[setting].name} characters"):
        Masker(Vocabulary([*SPECIAL_PIECES, "a"]), settings)


@pytest.mark.parametrize(
    ("pieces", "settings", "warning"),
    [
        ("a 北", [], "50 % of the tokens are Chinese characters, which --whole-word masks one by one; --chinese-words"),
        ("a 北", ["chinese_words"], ""),
        ("a 北", ["japanese_words"], ""),
        ("北 タワー", [], "100 % of the tokens are Japanese, .*--japanese-words"),
        ("北 タワー", ["chinese_words"], ""),
        ("a ไทย 北 京", ["chinese_words"], "25 % of the tokens are Thai, .*--thai-words"),
        ("a ไทย", ["thai_words"], ""),
        ("a a", [], ""),
    ],
)
def test_words_that_masks_do_not_cover_are_worth_a_warning(
    pieces: str, settings: list[str], warning: str, capsys: pytest.CaptureFixture
) -> None:
    counts = np.bincount(ids(pieces), minlength=len(VOCABULARY))
    warn_of_missing_words(VOCABULARY, counts, settings)
    said = capsys.readouterr().err
    assert said.count("tokens are") == (1 if warning else 0)
    assert re.search(warning, " ".join(said.split()))


@pytest.mark.parametrize(
    ("rules", "settings", "options"),
    [
        (TextRules(), ["chinese_words", "thai_words"], "so --thai-words will"),
        (TextRules(), ["thai_words", "japanese_words"], "so --japanese-words and --thai-words will"),
        (TextRules(), ["chinese_words"], ""),
        (TextRules(lowercase=False), ["thai_words"], ""),
        (TextRules.named("unspaced"), ["japanese_words"], ""),
    ],
)
def test_segmenters_that_read_text_without_its_marks_are_worth_a_warning(
    rules: TextRules, settings: list[str], options: str, capsys: pytest.CaptureFixture
) -> None:
    warn_of_lost_marks(rules, settings)
    said = capsys.readouterr().err
    assert said.count("\n") == (1 if options else 0)
    assert options in said


@pytest.mark.parametrize(
    ("setting", "text", "expected"),
    [
        ("chinese_words", "北京大学生喜欢", "北京 大学生 喜欢"),
        ("japanese_words", "今日はとても良い天気です", "今日 は とても 良い 天気 です"),
        ("thai_words", "ประเทศไทยสวยมาก", "ประเทศ ไทย สวย มาก"),
    ],
)
def test_the_packages_find_words(setting: str, text: str, expected: str) -> None:
    language = LANGUAGES[setting]
    pytest.importorskip(language.package, reason=f"needs the extra {language.extra}")
    segment = segmenter(setting)
    assert segment(text) == expected.split()
    lines = ["", text, "a", "", text[:3], ""]
    assert "".join(segment("\n".join(lines))) == "\n".join(lines)
    assert [word for word in segment(f"{text}\n{text}") if word.strip()] == 2 * expected.split()
    assert segmenter_versions([setting]).startswith(f"{language.package} ")


def test_a_run_records_the_segmenter_and_is_resumed_with_it_alone(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "segmenter", lambda setting: split)
    monkeypatch.setattr(run, "segmenter_versions", lambda settings: "split 1")
    tokenizer = WordPieceTokenizer(VOCABULARY, TextRules(lowercase=False))
    documents = [Document("zh", ["北京大学生喜欢，", "大学生喜欢北京，"]) for _ in range(4)]
    build_corpus(documents, tokenizer, tmp_path / "corpus", held_out=0.25, workers=1)
    settings = {"size": "tiny", "rows_per_step": 2, "max_length": 16, "device": "cpu", "precision": "fp32"}
    masks = {"whole_word": True, "chinese_words": True}
    pretrain(tmp_path / "corpus", tmp_path / "run", steps=2, **settings, **masks)
    card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "- segmenter: `split 1`" in card
    monkeypatch.setattr(run, "segmenter_versions", lambda settings: "split 2")
    with pytest.raises(RunError, match="segmenter"):
        pretrain(tmp_path / "corpus", tmp_path / "run", resume=True)
