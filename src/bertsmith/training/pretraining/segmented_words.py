"""Which tokens of scripts without spaces belong to one word, for whole-word masks.

The pieces do not show where words are: every Chinese character is a token, and a Thai phrase is one word. The package
`rjieba` finds Chinese words, `budoux` Japanese and Thai ones (docs/decisions/0023-words-without-spaces.md), while rows
are masked. A border inside a piece is ignored, and a word never crosses a token of another script.

Source: Cui et al. (2019), "Pre-training with whole word masking for Chinese BERT".

T tokens, V vocabulary.
"""

import functools
import importlib.metadata
import importlib.resources
import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import warn
from bertsmith.base.core.settings import require
from bertsmith.text.tokenizers.characters import HUGGINGFACE
from bertsmith.text.tokenizers.encoded import places_of
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import CONTINUATION, Vocabulary

Segment = Callable[[str], list[str]]
Flags = npt.NDArray[np.bool_]
_WORTH_A_WARNING = 0.05  # fraction of the tokens
_BORDER = "\n"

_KANA = re.compile("[\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f]+")
_THAI = re.compile("[\u0e01-\u0e3a\u0e40-\u0e4e]+")


def _is_chinese(text: str) -> bool:
    return all(map(HUGGINGFACE.is_cjk, text))


def _is_japanese(text: str) -> bool:
    """Kana, Chinese characters, and their iteration mark."""
    return _is_chinese(_KANA.sub("", text))


def _is_thai(text: str) -> bool:
    return _THAI.fullmatch(text) is not None


def _rjieba() -> Segment:
    import rjieba

    return lambda text: list(rjieba.cut(text))


def _budoux(model: str) -> Segment:
    """The segmenter with one of the models in the package; each line is read by itself."""
    import budoux

    file = importlib.resources.files(budoux) / "models" / f"{model}.json"
    require(
        file.is_file(),
        expected=f"the model {model}.json in the package budoux",
        found=f"budoux {importlib.metadata.version('budoux')}, which has none",
        fix="install budoux 0.10.1",
    )
    parse = budoux.Parser(json.loads(file.read_text(encoding="utf-8"))).parse

    def segment(text: str) -> list[str]:
        first, *others = text.split(_BORDER)
        words = list(parse(first))
        for line in others:
            words.append(_BORDER)
            words += parse(line)
        return words

    return segment


class Language(NamedTuple):
    """A language whose words a segmenter finds.

    Attributes:
        load: returns the function that splits a text into words whose concatenation is the text.
        has: whether all characters of a text, which is not empty, are of its script.
        otherwise: what masks of whole words do without the segmenter, in a warning.
    """

    name: str
    package: str
    extra: str
    load: Callable[[], Segment]
    has: Callable[[str], bool]
    otherwise: str


LANGUAGES = {
    "chinese_words": Language(
        name="Chinese",
        package="rjieba",
        extra="chinese",
        load=_rjieba,
        has=_is_chinese,
        otherwise="Chinese characters, which --whole-word masks one by one",
    ),
    "japanese_words": Language(
        name="Japanese",
        package="budoux",
        extra="japanese",
        load=functools.partial(_budoux, "ja_word"),
        has=_is_japanese,
        otherwise="Japanese, of which --whole-word masks single Chinese characters and runs of kana",
    ),
    "thai_words": Language(
        name="Thai",
        package="budoux",
        extra="thai",
        load=functools.partial(_budoux, "th"),
        has=_is_thai,
        otherwise="Thai, of which --whole-word masks what the text rules take for a word",
    ),
}
"""The languages by the setting that asks for their words."""


def segmenter(setting: str) -> Segment:
    """The function that splits a text of a language, a key of `LANGUAGES`, into words that join to the text."""
    language = LANGUAGES[setting]
    try:
        return language.load()
    except ImportError:
        raise ConfigError(
            expected=f"the package {language.package}, which finds {language.name} words ({setting})",
            found="it is not installed",
            fix=f'install it: pip install "bertsmith[{language.extra}]"',
        ) from None


def segmenter_versions(settings: Sequence[str]) -> str:
    """The names and versions of the segmenters, for the record of a run."""
    packages = sorted({LANGUAGES[setting].package for setting in settings})
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)


def pieces_of(setting: str, vocabulary: Vocabulary) -> Flags:
    """Whether a piece is written in the script of a language, bool [V]."""
    has = LANGUAGES[setting].has
    texts = [piece.removeprefix(CONTINUATION) for piece in vocabulary.pieces]
    return np.array([bool(text) and has(text) for text in texts], dtype=np.bool_)


def warn_of_words(
    rules: TextRules, vocabulary: Vocabulary, counts: npt.NDArray[np.int64], settings: Sequence[str]
) -> None:
    """Says what keeps whole-word masks from covering the words of the languages in `settings`."""
    warn_of_missing_words(vocabulary, counts, settings)
    warn_of_lost_marks(rules, settings)


def warn_of_missing_words(vocabulary: Vocabulary, counts: npt.NDArray[np.int64], settings: Sequence[str]) -> None:
    """Says that whole-word masks do not cover the words of a language, if a good part of the tokens is in it."""
    total = max(1, counts.sum())
    fractions = {setting: float(counts[pieces_of(setting, vocabulary)].sum() / total) for setting in LANGUAGES}
    # Chinese characters are part of the Japanese ones; among kana they are Japanese.
    has_kana = fractions["japanese_words"] - fractions["chinese_words"] > _WORTH_A_WARNING
    left_out = "chinese_words" if has_kana or "japanese_words" in settings else "japanese_words"
    if "chinese_words" in settings:
        fractions["japanese_words"] = 0
    for setting, language in LANGUAGES.items():
        if fractions[setting] > _WORTH_A_WARNING and setting not in (*settings, left_out):
            warn(
                f"{100 * fractions[setting]:.0f} % of the tokens are {language.otherwise}; "
                f"--{setting.replace('_', '-')} masks all of a word"
            )


def warn_of_lost_marks(rules: TextRules, settings: Sequence[str]) -> None:
    """Says that a segmenter reads text whose vowels, tones and voicing marks the text rules have removed."""
    asked = [setting for setting in ("japanese_words", "thai_words") if setting in settings]
    if asked and rules.strips_accents and not rules.keep_letter_marks:
        options = " and ".join(f"--{setting.replace('_', '-')}" for setting in asked)
        warn(
            f"the text rules of the corpus remove marks that are letters, so {options} will find wrong words; build "
            "the vocabulary and the corpus with --cased or --rules unspaced"
        )


class SegmentedWords:
    """Finds the words among the tokens of scripts without spaces.

    With both, Chinese characters next to kana are Japanese, and all others are Chinese.
    """

    def __init__(self, vocabulary: Vocabulary, segments: dict[str, Segment]) -> None:
        self._segments = segments
        self._has: dict[str, Flags] = {}
        for setting in segments:
            language, has = LANGUAGES[setting], pieces_of(setting, vocabulary)
            require(
                bool(has.any()),
                expected=f"a vocabulary with {language.name} characters ({setting})",
                found="none among its pieces",
                fix=f"leave {setting} out",
            )
            self._has[setting] = has
        # The characters of all pieces one after another, and a line end for what is in another script.
        texts = [piece.removeprefix(CONTINUATION) for piece in vocabulary.pieces]
        self._lengths = np.array([len(text) for text in texts], dtype=np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._codes = np.array([ord(character) for character in "".join([*texts, _BORDER])], dtype="<u4")

    def continues(self, token_ids: npt.NDArray[np.int32], by_pieces: Flags) -> Flags:
        """Whether a token continues the word of the token before it, bool [T]; `by_pieces` decides in other scripts."""
        result = by_pieces.copy()
        for setting, is_member in self._members(token_ids).items():
            decides = is_member.copy()
            decides[1:] &= is_member[:-1]
            decides[:1] = False
            if decides.any():
                result[decides] = ~self._begins(token_ids, is_member, self._segments[setting])[decides]
        return result

    def _members(self, token_ids: npt.NDArray[np.int32]) -> dict[str, Flags]:
        """The tokens of each language, bool [T]."""
        members = {setting: has[token_ids] for setting, has in self._has.items()}
        if {"chinese_words", "japanese_words"} <= members.keys():
            chinese, either = members["chinese_words"], members["japanese_words"]
            run = np.cumsum(np.diff(either, prepend=False))
            has_kana = np.zeros(len(run) + 1, dtype=np.bool_)
            has_kana[run[either & ~chinese]] = True
            members |= {"chinese_words": chinese & ~has_kana[run], "japanese_words": either & has_kana[run]}
        return members

    def _begins(self, token_ids: npt.NDArray[np.int32], is_member: Flags, segment: Segment) -> Flags:
        """Whether a word begins with the first character of a token, bool [T]; members only."""
        lengths = np.where(is_member, self._lengths[token_ids], 1)
        starts = np.where(is_member, self._starts[token_ids], len(self._codes) - 1)
        text = self._codes[places_of(starts, lengths)].tobytes().decode("utf-32-le")
        words = segment(text)
        sizes = np.fromiter(map(len, words), np.int64, len(words))
        assert sizes.sum() == len(text), "the words are the whole text"
        # The segmenter may join several line ends.
        begins = np.zeros(len(text) + 1, dtype=np.bool_)
        begins[np.cumsum(sizes) - sizes] = True
        result: Flags = begins[np.cumsum(lengths) - lengths]
        return result
