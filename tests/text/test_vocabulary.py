"""Vocabulary files: which are read, which are refused, and what is written."""

from pathlib import Path

import pytest

from bertsmith.base.core.errors import InputError, VocabularyError
from bertsmith.base.storage.files import digest_file
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary, casing_mismatch
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from written_files import file_with


def test_the_id_of_a_piece_is_its_line_number(tmp_path: Path) -> None:
    path = file_with(tmp_path / "vocab.txt", "[PAD]\nthe\n[UNK]\r\n[CLS]\n[SEP]\n[MASK]\n\u2028\n##\u3000".encode())
    vocabulary = Vocabulary.load(path)
    assert vocabulary.pieces == ("[PAD]", "the", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2028", "##\u3000")
    assert (vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (
        0,
        2,
        3,
        4,
        5,
    )
    assert vocabulary.special_ids == {0, 2, 3, 4, 5}
    assert len(vocabulary) == 8


def test_a_saved_vocabulary_is_read_back_with_its_digest(tmp_path: Path) -> None:
    vocabulary = Vocabulary([*SPECIAL_PIECES, "é", "##か"])
    vocabulary.save(tmp_path / "vocab.txt")
    assert Vocabulary.load(tmp_path / "vocab.txt") == vocabulary
    assert digest_file(tmp_path / "vocab.txt") == vocabulary.digest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n", r"no \[MASK\] among its 5 pieces"),
        (b"", r"no \[PAD\] \[UNK\] \[CLS\] \[SEP\] \[MASK\] among its 0 pieces"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n", "'a' on lines 6 and 8"),
        (b"[PAD]\n\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", "an empty line 2"),
        (b"[PAD]\n[UNK]\n\xff\xfe\n", "other bytes at 12"),
        (b"text,label\nhi,ham\n\nhi,ham\n", "expected a vocabulary, one piece per line, .* in '.*'; found no .*vocab`"),
    ],
)
def test_a_file_that_is_not_a_vocabulary_is_refused_with_a_one_line_error(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = file_with(tmp_path / "vocab.txt", content)
    with pytest.raises(VocabularyError, match=message) as caught:
        Vocabulary.load(path)
    assert "vocab.txt" in str(caught.value)


@pytest.mark.parametrize("piece", ["two\nlines", "\ud800"])
def test_a_piece_that_does_not_fit_on_a_line_is_refused(piece: str) -> None:
    with pytest.raises(VocabularyError, match="as piece 5"):
        Vocabulary([*SPECIAL_PIECES, piece])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.txt'; found nothing there; check the path"):
        Vocabulary.load(tmp_path / "nowhere.txt")


def test_a_few_capitals_and_markers_do_not_make_a_vocabulary_cased() -> None:
    """Google's Chinese vocabulary, for lower-cased text, has `<S>` and `<T>`."""
    letters = [f"##{letter}{other}" for letter in "abcdefghij" for other in "abcdefghij"]
    assert not Vocabulary([*SPECIAL_PIECES, "<S>", "<T>", "[unused1]", *"中国上海"]).is_cased
    assert not Vocabulary([*SPECIAL_PIECES, "Paris", *letters]).is_cased
    assert Vocabulary([*SPECIAL_PIECES, "Paris", "London", *letters]).is_cased
    assert Vocabulary([*SPECIAL_PIECES, "Paris", *"中国上海"]).is_cased


@pytest.mark.parametrize(
    ("letters", "is_lost"),
    [
        ("กขคทน", True),
        ("กขคทนé", True),  # an accent is no such mark
        ("กขคทน\u0e48", False),
        ("かきくけこ", True),
        ("かきくけご", False),
        ("\u1100\u1161\u11ab\u1102\u1175", True),
        ("한국어로쓴", False),
        ("กขค", False),  # too few letters to say
        ("abcdeçñ", False),
    ],
)
def test_letters_without_their_marks_are_reported_for_rules_that_keep_them(letters: str, is_lost: bool) -> None:
    vocabulary = Vocabulary([*SPECIAL_PIECES, *letters])
    problem = WordPieceTokenizer(vocabulary, TextRules.named("unspaced")).casing_problem
    assert ("no marks" in (problem or "")) == is_lost
    assert WordPieceTokenizer(vocabulary, TextRules()).casing_problem is None


def test_a_casing_mismatch_is_reported() -> None:
    cased, uncased = Vocabulary([*SPECIAL_PIECES, "Paris"]), Vocabulary([*SPECIAL_PIECES, "paris"])
    assert "never used" in casing_mismatch(cased, lowercase=True)
    assert "become [UNK]" in casing_mismatch(uncased, lowercase=False)
    assert casing_mismatch(cased, lowercase=False) is None
    assert casing_mismatch(uncased, lowercase=True) is None
