"""A vocabulary: pieces, their ids, and the file that stores them.

The file has the format that BERT was published with: one piece per line; its id is the line number, from 0. Only the
line end is stripped from a line; the Chinese vocabulary contains pieces that are white space.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bertsmith.base.core.errors import InputError, VocabularyError, nearest_path, reason_of
from bertsmith.base.storage.files import atomic_file, digest_bytes, regular_bytes
from bertsmith.text.tokenizers.characters import HUGGINGFACE
from bertsmith.text.tokenizers.letter_marks import is_accent

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
CONTINUATION = "##"
END_OF_WORD = "</w>"  # of the last piece of a word, in byte pairs like those of GPT
# Share of the pieces that have letters with a case.
_FEW_CAPITALS = 0.01
# Letters whose words usually have a mark or, of Korean, form syllables: Thaana, N'Ko, the scripts of India, Thai, Lao,
# Tibetan, Burmese, Korean, Khmer and kana.
_WITH_MARKS = re.compile(
    "[\u0780-\u07a5\u07ca-\u07ea\u0904-\u0939\u0985-\u0eff\u0f40-\u0f6c\u1000-\u102a\u1100-\u11ff\u1780-\u17b3"
    "\u3041-\u3096\u30a1-\u30fa]"
)
_SYLLABLE = re.compile("[\uac00-\ud7a3]")
_SPARE = re.compile(r"\[unused\d+\]")
_FEW_LETTERS = 5  # fewer may have none of their marks by chance


class SpecialPieces(NamedTuple):
    """The special pieces, as this vocabulary spells them; empty for one that it does not have."""

    pad: str = PAD
    unk: str = UNK
    cls: str = CLS
    sep: str = SEP
    mask: str = MASK


SPECIAL_PIECES = SpecialPieces()  # as BERT spells them


class Vocabulary:
    """Pieces and their ids. In a WordPiece vocabulary, a piece that continues a word starts with `##`.

    Args:
        source: the name of this vocabulary in error messages, such as the path of its file.
        whole: number of pieces at the end that are never part of a word: added tokens that are not WordPieces.
        has_ids: whether the file states the ids; if they are line numbers, a missing line would change them.

    Raises:
        VocabularyError: a special piece is missing, or a piece is empty, occurs twice or contains a line end.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        *,
        special: SpecialPieces = SPECIAL_PIECES,
        source: str = "the vocabulary",
        whole: int = 0,
        has_ids: bool = False,
    ) -> None:
        self.pieces = tuple(pieces)
        self.special, self.whole, self.has_ids = special, whole, has_ids
        self.index = {piece: id for id, piece in enumerate(self.pieces)}
        _check(self.pieces, self.index, special, source)
        # What the vocabulary does not have is unknown to it, and without a piece for that it is masked.
        ids = (self.index[piece or special.unk or special.mask] for piece in special)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = ids
        self.special_ids = frozenset(self.index[piece] for piece in special if piece)
        self.digest = digest_bytes(self._file_bytes())

    def __len__(self) -> int:
        return len(self.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} pieces, {self.digest[:19]})"

    @classmethod
    def load(cls, path: Path | str) -> "Vocabulary":
        """The vocabulary of a `vocab.txt` file.

        Raises:
            InputError: the file does not exist or cannot be read.
            VocabularyError: the file is not UTF-8, or not a vocabulary (see the class).
        """
        path = Path(path)
        try:
            data = regular_bytes(path)
        except OSError as error:
            raise InputError(
                expected=f"a vocabulary at '{path}'",
                found=reason_of(error),
                fix=nearest_path(path) or "check the path and its permissions",
            ) from None
        try:
            lines = data.decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise VocabularyError(
                expected=f"UTF-8 in '{path}'",
                found=f"other bytes at {error.start}",
                fix="save it as UTF-8, one piece per line",
            ) from None
        if lines[-1] == "":
            lines.pop()
        return cls([line.removesuffix("\r") for line in lines], source=f"'{path}'")

    def save(self, path: Path | str) -> None:
        """Writes the pieces to `path`, one per line; `digest` is the digest of these bytes."""
        with atomic_file(Path(path)) as file:
            file.write(self._file_bytes())

    @functools.cached_property
    def words(self) -> dict[str, int]:
        """The ids of the pieces that words consist of."""
        return {piece: self.index[piece] for piece in self.pieces[: -self.whole]} if self.whole else self.index

    @functools.cached_property
    def spare_ids(self) -> tuple[int, ...]:
        """The ids of `[unused0]` and the like, which fill a vocabulary or are reserved for later.

        >>> Vocabulary([*SPECIAL_PIECES, "[unused0]", "a", "[unused12]"]).spare_ids
        (5, 7)
        """
        return tuple(id for id, piece in enumerate(self.pieces) if _SPARE.fullmatch(piece))

    @functools.cached_property
    def is_cased(self) -> bool:
        """True if capital letters occur in more than one of a hundred pieces that have letters with a case.

        A few prove nothing: Google's Chinese vocabulary, which is for lower-cased text, has `<S>` and `<T>`. Special
        pieces, `[unused1]` and the like, markers in angle brackets, and added tokens are not counted.

        >>> Vocabulary([*SPECIAL_PIECES, "<S>", "<T>", "[unused1]", "Ａ", *(f"##a{n}" for n in range(100))]).is_cased
        False
        >>> Vocabulary([*SPECIAL_PIECES, "Paris", "the", "##s", "##ed"]).is_cased
        True
        """
        pieces = self.pieces[: len(self.pieces) - self.whole]
        if not any(piece != piece.lower() and not _is_marker(piece) for piece in pieces):
            return False
        with_case = [piece for piece in pieces if piece.lower() != piece.upper() and not _is_marker(piece)]
        capitals = sum(piece != piece.lower() for piece in with_case)
        return capitals > _FEW_CAPITALS * len(with_case)

    def _file_bytes(self) -> bytes:
        # A lone surrogate cannot be encoded, but `_check` has already refused such a vocabulary.
        return "".join(f"{piece}\n" for piece in self.pieces).encode("utf-8")


def _is_marker(piece: str) -> bool:
    """True for `[CLS]`, `[unused1]`, `<S>`, `<mask>`: no text has made them."""
    return len(piece) > 2 and (piece[0], piece[-1]) in (("[", "]"), ("<", ">"))


def casing_mismatch(vocabulary: Vocabulary, *, lowercase: bool) -> str | None:
    """The problem if a cased vocabulary is used with lower-cased text or the other way round; None if there is none.

    Such a model loads and runs, but is silently worse.

    >>> tiny = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Paris"])
    >>> casing_mismatch(tiny, lowercase=True)
    'the vocabulary has capital letters but the text is lower-cased: these pieces are never used'
    >>> casing_mismatch(tiny, lowercase=False)
    """
    if lowercase and vocabulary.is_cased:
        return "the vocabulary has capital letters but the text is lower-cased: these pieces are never used"
    if not lowercase and not vocabulary.is_cased:
        return "the vocabulary has hardly any capital letters but the text keeps them: such words become [UNK]"
    return None


def lost_letter_marks(vocabulary: Vocabulary) -> str | None:
    """The problem if rules that keep the marks that are letters read a vocabulary learned without them; else None.

    A `vocab.txt` does not say how its text was cleaned.

    >>> lost_letter_marks(Vocabulary([*SPECIAL_PIECES, *"กขคทน"]))  # doctest: +ELLIPSIS
    'the vocabulary has letters of Thai or another script with marks but no marks: words with them become [UNK]; ...'
    >>> lost_letter_marks(Vocabulary([*SPECIAL_PIECES, *"กขคทน", "ที่"]))
    """
    text = "".join(vocabulary.pieces)
    if len(set(_WITH_MARKS.findall(text))) < _FEW_LETTERS or _SYLLABLE.search(text):
        return None
    marks = (mark for mark in set(unicodedata.normalize("NFD", text)) if HUGGINGFACE.is_accent(mark))
    if not all(map(is_accent, marks)):
        return None
    return (
        "the vocabulary has letters of Thai or another script with marks but no marks: words with them become [UNK]; "
        "learn it again with these rules"
    )


def _check(pieces: tuple[str, ...], index: dict[str, int], special: SpecialPieces, source: str) -> None:
    missing = [piece for piece in special if piece and piece not in index]
    if missing:
        raise VocabularyError(
            expected=f"a vocabulary, one piece per line, with {' '.join(filter(None, special))} in {source}",
            found=f"no {' '.join(missing)} among its {len(pieces)} pieces",
            fix="name the vocab.txt of a model, or learn one from text with `bertsmith vocab`",
        )
    # What is wrong is looked for only if something is.
    for id, piece in enumerate(() if _is_sound(pieces, index) else pieces):
        if piece == "":
            raise VocabularyError(
                expected=f"one piece per line in {source}",
                found=f"an empty line {id + 1}",
                fix="remove it if no model was trained with it; ids are line numbers",
            )
        if index[piece] != id:
            raise VocabularyError(
                expected=f"every piece once in {source}",
                found=f"{piece!r} on lines {id + 1} and {index[piece] + 1}",
                fix="rename one of them, for example to [unused0]",
            )
        if "\n" in piece or not is_unicode(piece):
            raise VocabularyError(
                expected=f"pieces in {source} that fit on a line of UTF-8",
                found=f"{piece!r} as piece {id}",
                fix="remove it",
            )


def _is_sound(pieces: tuple[str, ...], index: dict[str, int]) -> bool:
    """Whether no piece is empty, occurs twice, or does not fit on a line of UTF-8."""
    lines = "\n".join(pieces)
    return len(index) == len(pieces) == lines.count("\n") + 1 and "" not in index and is_unicode(lines)


def is_unicode(piece: str) -> bool:
    """False for a string with a lone surrogate, which cannot be written to a file."""
    try:
        piece.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
