"""Writes src/bertsmith/text/tokenizers/huggingface_tables.py: what each character is to the Rust library `tokenizers`.

The library has no function that returns its tables, so every code point goes through its normalizers and its
pre-tokenizer, and the tables are read off what comes out. Run it when a new
release of the library has other tables: then tests/text/test_huggingface_tables.py fails.
"""

import textwrap
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.normalizers import NFD, BertNormalizer, Lowercase
from tokenizers.pre_tokenizers import BertPreTokenizer

OUTPUT = Path(__file__).parents[1] / "src" / "bertsmith" / "text" / "tokenizers" / "huggingface_tables.py"
CODES = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
BETWEEN = " <> "  # between texts that are asked about together
OLD = unicodedata.ucd_3_2_0
HEADER = '''"""What a character is to the Rust library `tokenizers` {version}; written by tools/huggingface_tables.py.

The library combines several releases of Unicode: its categories are the oldest, its lower case is the newest.

A set of characters is a list of runs of code points, each as two numbers: the distance from the end of the previous
run, and the length. CLASSES and LOWER have further numbers for each run, see `characters.py`.
"""

'''


def source() -> str:
    """The content of the module."""
    return HEADER.format(version=tokenizers.__version__) + "\n".join(
        f"# {comment}\n{name} = {_literal(words)}"
        for name, comment, words in (
            ("DROPPED", "What cleaning removes: categories Cc, Cf and Co, and U+FFFD.", _set(_dropped())),
            ("SPACES", "White space, for cleaning and for splitting.", _set(_spaces())),
            ("PUNCTUATION", "Signs of their own: ASCII signs and categories P*.", _set(_punctuation())),
            ("CHINESE", "Words of their own.", _set(_chinese())),
            ("WORDS", "What the added token that is a single word cannot touch.", _set(_words())),
            ("ACCENTS", "What the removal of accents removes: category Mn.", _set(_accents())),
            ("CLASSES", "Canonical combining classes other than 0: each run has one.", _classes()),
            (
                "LOWER",
                "Each run has the step from one code point to the next, and the offset of the lower case.",
                _lower(),
            ),
            ("DECOMPOSED", "Canonical decompositions that Unicode 3.2 does not have, in hexadecimal.", _decomposed()),
        )
    )


def _ask(normalizer: Any, texts: Iterable[str]) -> list[str]:
    """What becomes of each text."""
    asked = list(texts)
    answers: list[str] = normalizer.normalize_str(BETWEEN.join(asked)).split(BETWEEN)
    assert len(answers) == len(asked)
    return answers


def _bert(**switches: bool) -> Any:
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return BertNormalizer(**(off | switches))


def _dropped() -> list[int]:
    between = _ask(_bert(clean_text=True), (f"a{chr(code)}b" for code in CODES))
    # Rust has no surrogates; the rule drops them.
    return sorted([code for code, text in zip(CODES, between, strict=True) if text == "ab"] + [*range(0xD800, 0xE000)])


def _spaces() -> list[int]:
    between = _ask(_bert(clean_text=True), (f"a{chr(code)}b" for code in CODES))
    return [code for code, text in zip(CODES, between, strict=True) if text == "a b"]


def _punctuation() -> list[int]:
    cut = BertPreTokenizer().pre_tokenize_str(" ".join(f"a{chr(code)}b" for code in CODES))
    return sorted({ord(word) for word, _ in cut if len(word) == 1} - set(b"ab"))


def _chinese() -> list[int]:
    answers = _ask(_bert(handle_chinese_chars=True), map(chr, CODES))
    return [code for code, text in zip(CODES, answers, strict=True) if text == f" {chr(code)} "]


def _words() -> list[int]:
    asked = tokenizers.Tokenizer(tokenizers.models.WordLevel({"u": 0}, unk_token="u"))
    asked.add_tokens([tokenizers.AddedToken("ab", single_word=True, normalized=False)])
    encodings = asked.encode_batch([f"{chr(code)}ab" for code in CODES])
    return [code for code, encoding in zip(CODES, encodings, strict=True) if 1 not in encoding.ids]


def _accents() -> list[int]:
    answers = _ask(_bert(strip_accents=True), map(chr, CODES))
    return [code for code, text in zip(CODES, answers, strict=True) if text == ""]


def _classes() -> list[str]:
    """A character of class c comes after one of a lower class, and before one of a higher class."""
    representatives = {OLD.combining(chr(code)): chr(code) for code in reversed(CODES)}
    classes = sorted(representatives.keys() - {0})
    alone = [code for code, text in zip(CODES, _ask(NFD(), map(chr, CODES)), strict=True) if text == chr(code)]
    lowest, highest = representatives[classes[0]], representatives[classes[-1]]
    after = _ask(NFD(), (chr(code) + lowest for code in alone))
    before = _ask(NFD(), (highest + chr(code) for code in alone))
    marks = [c for c, a, b in zip(alone, after, before, strict=True) if a[0] == lowest or b[-1] == highest]
    marks = [code for code in marks if chr(code) not in (lowest, highest)]
    names = {ord(lowest): classes[0], ord(highest): classes[-1]} | dict.fromkeys(marks, classes[0])
    for index, lower in enumerate(classes[:-1]):
        swapped = _ask(NFD(), (chr(code) + representatives[lower] for code in marks))
        for code, text in zip(marks, swapped, strict=True):
            if text[0] == representatives[lower] != chr(code):
                names[code] = classes[index + 1]
    return _runs({code: (names[code],) for code in sorted(names)})


def _lower() -> list[str]:
    lowered = dict(zip(CODES, _ask(Lowercase(), map(chr, CODES)), strict=True))
    assert [code for code, text in lowered.items() if len(text) > 1] == [0x130]  # which characters.py knows
    changed = {code: ord(text) - code for code, text in lowered.items() if len(text) == 1 and ord(text) != code}
    runs: list[list[int]] = []  # first, count, step, offset
    for code, offset in changed.items():
        if runs and runs[-1][3] == offset:
            first, count, step, _ = runs[-1]
            gap = code - (first + (count - 1) * step)
            if gap in (1, 2) and (count == 1 or gap == step):
                runs[-1][1:3] = [count + 1, gap]
                continue
        runs.append([code, 1, 1, offset])
    words, end = [], 0
    for first, count, step, offset in runs:
        words += [str(first - end), str(count), str(step), str(offset)]
        end = first + (count - 1) * step + 1
    return words


def _decomposed() -> list[str]:
    answers = zip(CODES, _ask(NFD(), map(chr, CODES)), strict=True)
    new = {code: text for code, text in answers if text != OLD.normalize("NFD", chr(code))}
    return [f"{code:x}={'+'.join(f'{ord(part):x}' for part in text)}" for code, text in new.items()]


def _runs(described: dict[int, tuple[int, ...]]) -> list[str]:
    """Runs of code points in a row with the same description, each as gap, length and description."""
    runs: list[list[int]] = []
    for code, values in described.items():
        if runs and runs[-1][1] + 1 == code and described[code - 1] == values:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    words, end = [], 0
    for first, last in runs:
        words += [str(number) for number in (first - end, last - first + 1, *described[first])]
        end = last + 1
    return words


def _set(codes: Iterable[int]) -> list[str]:
    return _runs(dict.fromkeys(codes, ()))


def _literal(words: list[str]) -> str:
    return '"""\n' + textwrap.fill(" ".join(words), 118, break_long_words=False) + '\n"""\n'


if __name__ == "__main__":
    OUTPUT.write_text(source(), encoding="utf-8")
    print(f"written: {OUTPUT}, {OUTPUT.stat().st_size:,} bytes")
