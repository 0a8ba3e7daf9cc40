"""From text to basic tokens: BERT's cleaning, lower-casing, accent stripping and punctuation splitting.

The steps, in this order: drop control and invalid characters, turn white space into spaces, put spaces around Chinese
characters, lower-case, strip accents, split at punctuation, split at white space. With the rules `unspaced`, marks that
are letters stay (`letter_marks.py`), and words of scripts without spaces are split (`unspaced.py`). None of them looks
across white space or a Chinese character, so a text may be cut there and processed in parts; `units.py` relies on that.

`characters.py` says what each character is: the rules `huggingface` have tables of their own, and give the ids that the
Rust library `tokenizers` gives; the rules `google` ask the tables of the running Python, as the original code does.

Source: `BasicTokenizer` in the original tokenization.py, before and after its change of 2019-03-28.
"""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable
from typing import Literal, NamedTuple

from bertsmith.base.core.settings import help_field, require, require_number
from bertsmith.text.tokenizers.characters import HUGGINGFACE, Characters, characters_of
from bertsmith.text.tokenizers.letter_marks import Placed, composed, is_accent, without_accents
from bertsmith.text.tokenizers.unspaced import part_spans, parts_of_words

RULES = ("huggingface", "google")
NAMED = (*RULES, "unspaced")
_ASCII_WORD_OR_SIGN = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]")
# Whitespace for Python, control characters for BERT: they are dropped, which joins the characters around them.
_DROPPED_ASCII = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ASCII_SPACES = str.maketrans("\t\n\r", "   ")
_SLOW = "\0"  # stands for a character that needs the path with offsets; no cleaned text contains it


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRules:
    """How text is cleaned and split before its words are looked up.

    The defaults are Hugging Face's, so that a model folder gives the same ids there.
    """

    lowercase: bool = help_field(True, "lower-case the text (an uncased model)")
    strip_accents: bool | None = help_field(None, "remove accents; by default only if the text is lower-cased")
    split_cjk: bool = help_field(True, "treat every Chinese character as a separate word")
    control_rule: Literal["huggingface", "google"] = help_field(
        "huggingface",
        "Unicode tables: those of Hugging Face's tokenizers, which drop private-use characters "
        "(huggingface), or Python's, as in the original code since 2019 (google)",
    )
    max_word_characters: int = help_field(
        100,
        "a longer word becomes [UNK] (100 in the first release of the original code and in Hugging "
        "Face, 200 in later ones)",
    )
    split_unspaced: bool = help_field(
        False, "split Thai, Lao, Khmer, Burmese and Japanese, which have no spaces between words, into short parts"
    )
    keep_letter_marks: bool = help_field(
        False,
        "if accents are removed: keep the marks that are letters of their script, such as the vowels and tones of Thai "
        "and Hindi, and keep Korean syllables whole",
    )

    def __post_init__(self) -> None:
        require(
            self.control_rule in RULES,
            expected="control_rule 'huggingface' or 'google'",
            found=repr(self.control_rule),
            fix="use one of the two",
        )
        require_number("max_word_characters", self.max_word_characters, least=1)

    @property
    def strips_accents(self) -> bool:
        """Whether accents are removed: `strip_accents`, or the same as `lowercase` if that is not set."""
        return self.lowercase if self.strip_accents is None else self.strip_accents

    @property
    def keeps_letter_marks(self) -> bool:
        """Whether accents are removed, but not the marks that are letters."""
        return self.strips_accents and self.keep_letter_marks

    @classmethod
    def named(cls, name: str, *, lowercase: bool = True) -> "TextRules":
        """The rules "huggingface", "google" or "unspaced".

        The last are Hugging Face's with `split_unspaced` and, in lower case, `keep_letter_marks`.

        Raises:
            ConfigError: there are no rules of that name.
        """
        require(
            name in NAMED,
            expected="the text rules huggingface, google or unspaced",
            found=repr(name),
            fix="use one of the three",
        )
        if name == "google":
            return cls.google(lowercase=lowercase)
        unspaced = name == "unspaced"
        return cls(lowercase=lowercase, split_unspaced=unspaced, keep_letter_marks=unspaced and lowercase)

    @classmethod
    def google(cls, *, lowercase: bool = True) -> "TextRules":
        """The rules of the final original code: only Cc and Cf are dropped, words may have 200 characters."""
        return cls(lowercase=lowercase, control_rule="google", max_word_characters=200)


class BasicToken(NamedTuple):
    """A basic token with the origin of each of its characters.

    Character k of `text` comes from the characters `starts[k]` to `ends[k]` (exclusive) of the original.
    """

    text: str
    starts: list[int]
    ends: list[int]


def basic_tokens(text: str, rules: TextRules) -> list[str]:
    r"""The words and punctuation characters of a text.

    Lower-casing and NFD are applied to the whole text at once: neither looks across white space.

    >>> basic_tokens(" \tHeLLo!how  \n Are yoU?  ", TextRules())
    ['hello', '!', 'how', 'are', 'you', '?']
    >>> basic_tokens("Héllo ah博推zz", TextRules(lowercase=False))
    ['Héllo', 'ah', '博', '推', 'zz']
    """
    if text.isascii():
        text = _DROPPED_ASCII.sub("", text)
        return _ASCII_WORD_OR_SIGN.findall(text.lower() if rules.lowercase else text)
    words = _words_between_spaces(text, rules)
    return parts_of_words(words) if rules.split_unspaced else words


def _words_between_spaces(text: str, rules: TextRules) -> list[str]:
    """The basic tokens before `split_unspaced`."""
    if rules.control_rule == "google":
        text = text.translate(_first_steps(rules.control_rule, rules.split_cjk))
        if rules.lowercase:
            text = text.lower()
        if rules.keeps_letter_marks:
            return without_accents(text).translate(_last_steps(rules.control_rule, strips=False)).split()
        if rules.strips_accents:
            text = unicodedata.normalize("NFD", text)
        return text.translate(_last_steps(rules.control_rule, strips=rules.strips_accents)).split()
    if rules.keeps_letter_marks:
        return _words_with_letter_marks(text, rules)
    steps = _all_steps(rules.lowercase, rules.strips_accents, rules.split_cjk)
    tokens = text.translate(steps)
    if _SLOW not in tokens:
        return tokens.split()
    ordered: list[str] = []
    for part in text.split(" "):
        plain = part.translate(steps)
        if _SLOW in plain:
            ordered += _slow_words(part, rules)
        else:
            ordered += plain.split()
    return ordered


def _words_with_letter_marks(text: str, rules: TextRules) -> list[str]:
    """The same for the rules `huggingface` with `keep_letter_marks`."""
    cleaned = text.translate(_steps_before_accents(rules.lowercase, rules.split_cjk))
    if _SLOW not in cleaned:
        words = without_accents(cleaned).translate(_last_steps(rules.control_rule, strips=False))
        if _SLOW not in words:
            return words.split()
    return _slow_words(text, rules)


def _slow_words(text: str, rules: TextRules) -> list[str]:
    """The words of the path with offsets, before `split_unspaced`."""
    plain = dataclasses.replace(rules, split_unspaced=False)
    return [token.text for token in basic_tokens_with_offsets(text, plain)]


def basic_tokens_with_offsets(text: str, rules: TextRules) -> list[BasicToken]:
    """The same tokens as `basic_tokens`, with the origin of every character.

    Lower-casing and decomposition may turn one character into several, which then all have that origin, and composition
    several into one, which then comes from all of them.

    >>> basic_tokens_with_offsets("İs", TextRules())
    [BasicToken(text='is', starts=[0, 1], ends=[1, 2])]
    """
    return tokens_of_normalized(normalized_with_origins(text, rules), rules)


class Normalized(NamedTuple):
    """A text after the steps before it is split; character k comes from `starts[k]` to `ends[k]` of the original."""

    text: str
    starts: list[int]
    ends: list[int]

    def part(self, start: int, end: int) -> "Normalized":
        """Some of its characters."""
        return Normalized(self.text[start:end], self.starts[start:end], self.ends[start:end])


def normalized(text: str, rules: TextRules) -> str:
    r"""The text after all steps but the splitting into words; white space is a space.

    >>> normalized("Héllo\t中!", TextRules())
    'hello  中 !'
    """
    if text.isascii():
        text = _DROPPED_ASCII.sub("", text).translate(_ASCII_SPACES)
        return text.lower() if rules.lowercase else text
    if rules.control_rule == "huggingface" and not rules.keeps_letter_marks:
        plain = text.translate(_all_steps(rules.lowercase, rules.strips_accents, rules.split_cjk, splits=False))
        if _SLOW not in plain:
            return plain
    return normalized_with_origins(text, rules).text


def normalized_with_origins(text: str, rules: TextRules) -> Normalized:
    """The same text as `normalized`, with the origin of every character."""
    known = characters_of(rules.control_rule)
    cleaning = _first_steps(rules.control_rule, rules.split_cjk)
    characters: list[str] = []
    origins: list[int] = []
    for position, character in enumerate(text):
        for kept in character.translate(cleaning):
            characters.append(kept)
            origins.append(position)
    if rules.lowercase:
        # The final sigma depends on its neighbors, but they never change how many characters it becomes.
        origins = [o for c, o in zip(characters, origins, strict=True) for _ in known.lower(c)]
        characters = list(known.lower("".join(characters)))
        assert len(characters) == len(origins)
    ends = [origin + 1 for origin in origins]
    if rules.strips_accents:
        # Marks that NFD moves have the offsets of where they are then, as `tokenizers` counts, so that offsets ascend.
        pairs = _decomposed(characters, origins, known)
        if rules.keep_letter_marks:
            # Ordered again: an accent that these tables do not know as a mark may have been between two others.
            without = _ordered([pair for pair in pairs if not is_accent(pair[0])], known)
            placed = composed([Placed(part, origin, origin + 1) for part, origin in without], known)
            characters = [part.text for part in placed]
            spans = sorted(((part.start, part.end) for part in placed), key=lambda span: span[0])
            origins, ends = [start for start, _ in spans], [end for _, end in spans]
        else:
            in_order = zip((part for part, _ in pairs), sorted(origin for _, origin in pairs), strict=True)
            pairs = [pair for pair in in_order if not known.is_accent(pair[0])]
            characters, origins = [part for part, _ in pairs], [origin for _, origin in pairs]
            ends = [origin + 1 for origin in origins]
    return Normalized("".join(characters), origins, ends)


def tokens_of_normalized(normal: Normalized, rules: TextRules) -> list[BasicToken]:
    """The basic tokens of a normalized text, or of a part of one."""
    known, (text, starts, ends) = characters_of(rules.control_rule), normal
    tokens: list[BasicToken] = []
    begin = 0  # of the open word

    def close(end: int) -> None:
        if begin < end:
            tokens.append(BasicToken(text[begin:end], starts[begin:end], ends[begin:end]))

    for position, character in enumerate(text):
        is_sign = known.is_punctuation(character)
        if is_sign or character.isspace():
            close(position)
            if is_sign:
                tokens.append(BasicToken(character, [starts[position]], [ends[position]]))
            begin = position + 1
    close(len(text))
    if not rules.split_unspaced:
        return tokens
    return [
        BasicToken(token.text[start:end], token.starts[start:end], token.ends[start:end])
        for token in tokens
        for start, end in part_spans(token.text)
    ]


def _decomposed(characters: list[str], origins: list[int], known: Characters) -> list[tuple[str, int]]:
    """NFD: decomposed characters and their origins, with marks in canonical order."""
    pairs = [
        (part, origin)
        for character, origin in zip(characters, origins, strict=True)
        for part in known.decompose(character)
    ]
    return _ordered(pairs, known)


def _ordered(pairs: list[tuple[str, int]], known: Characters) -> list[tuple[str, int]]:
    """The same characters with marks in canonical order."""
    result, first = list(pairs), 0
    while first < len(result):
        last = first
        while last < len(result) and known.combining(result[last][0]):
            last += 1
        result[first:last] = sorted(result[first:last], key=lambda pair: known.combining(pair[0]))
        first = last + 1
    return result


class _Translation(dict[int, str]):
    """A table for `str.translate` that computes the entry of a character on first use."""

    def __init__(self, entry: Callable[[str], str]) -> None:
        super().__init__()
        self._entry = entry

    def __missing__(self, code: int) -> str:
        self[code] = self._entry(chr(code))
        return self[code]


@functools.cache
def _first_steps(control_rule: str, split_cjk: bool) -> _Translation:
    """The first steps: what is dropped, white space, Chinese characters."""
    known = characters_of(control_rule)

    def entry(character: str) -> str:
        if known.is_dropped(character):
            return ""
        if known.is_whitespace(character):
            return " "
        return f" {character} " if split_cjk and known.is_cjk(character) else character

    return _Translation(entry)


@functools.cache
def _last_steps(control_rule: str, *, strips: bool) -> _Translation:
    """The last steps: accents are removed, signs get spaces around them.

    What only the running Python composes, from a table newer than those of the rules, becomes `_SLOW`.
    """
    known = characters_of(control_rule)

    def entry(character: str) -> str:
        if not strips and known.decompose(character) != unicodedata.normalize("NFD", character):
            return _SLOW
        if strips and known.is_accent(character):
            return ""
        return f" {character} " if known.is_punctuation(character) else character

    return _Translation(entry)


def _lowered(lowercase: bool, split_cjk: bool) -> Callable[[str], str]:
    """A character after the first steps of the rules `huggingface`, in lower case if wanted."""
    cleaning = _first_steps("huggingface", split_cjk)
    return lambda character: HUGGINGFACE.lower(cleaning[ord(character)]) if lowercase else cleaning[ord(character)]


@functools.cache
def _steps_before_accents(lowercase: bool, split_cjk: bool) -> _Translation:
    """The steps of the rules `huggingface` before accents, for `keep_letter_marks`.

    What the running Python would decompose or order otherwise becomes `_SLOW`.
    """
    known, lowered = HUGGINGFACE, _lowered(lowercase, split_cjk)

    def entry(character: str) -> str:
        text = lowered(character)
        same = all(
            known.combining(sign) == unicodedata.combining(sign)
            and known.decompose(sign) == unicodedata.normalize("NFD", sign)
            for sign in text
        )
        return text if same else _SLOW

    return _Translation(entry)


@functools.cache
def _all_steps(lowercase: bool, strips: bool, split_cjk: bool, *, splits: bool = True) -> _Translation:
    """All steps of the rules `huggingface`, which look at each character alone, but for the order of marks.

    With `splits`, signs get spaces around them.

    A mark that stays although accents are removed, and that NFD may move, becomes `_SLOW`.
    """
    known, lowered = HUGGINGFACE, _lowered(lowercase, split_cjk)

    def entry(character: str) -> str:
        text = lowered(character)
        if strips:
            text = "".join(part for sign in text for part in known.decompose(sign) if not known.is_accent(part))
            if any(map(known.combining, text)):
                return _SLOW
        return "".join(f" {sign} " if splits and known.is_punctuation(sign) else sign for sign in text)

    return _Translation(entry)
