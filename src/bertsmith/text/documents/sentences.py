"""Running text to sentences, for every script with sentence-final punctuation.

One regular expression finds the places where a sentence may end; a few rules reject some of them. Why this is not
a library: docs/decisions/0007-sentence-splitter.md.

A sentence ends after `.`, `!`, `?` or an ellipsis, together with any closing quotes and brackets, before white
space, unless

* the next word begins with a lowercase letter (`"Really?" he said.`), if the text has capitals at all;
* the full stop belongs to an abbreviation, an initial, or a leading number (`Mr.`, `J. R. R. Tolkien`, `No. 5`,
  `1. Scope`). Abbreviations that also occur at the end of a sentence (`U.S.`, `etc.`) end it before a word that often
  begins one.

The final marks of Chinese, Japanese, Indian, Arabic, Armenian, Ethiopic, Khmer, Burmese, Tibetan and Mongolian scripts,
among others, end a sentence with or without white space. Thai and Lao have no such mark, so their sentences are not
split.
"""

import re

_SPACED = ".!?…"
# Full-width forms, CJK full stops; danda; Arabic question mark and full stop; Armenian, Ethiopic, Khmer, Burmese,
# Tibetan, Mongolian, Syriac, N'Ko, Meetei, Ol Chiki.
_ALWAYS = "。！？｡．‼⁇⁈⁉।॥؟۔։።፧፨។៕။།༎᠃᠉܀܁܂߹꯫᱾᱿"
MARKS = _SPACED + _ALWAYS
_CLOSING = "\"'”’»›)\\]}*_」』）】〉》〕］｝＂"
_OPENING = "\"'“‘„‚«‹(\\[{¿¡*_–—-"

# A run of marks, footnote numbers, closing quotes and brackets, and a lone quote after a space. It begins with a plain
# set, which the regex engine scans for quickly; the look-behind and the possessive quantifiers keep long runs linear.
_END = re.compile(
    rf"[{MARKS}](?<![{MARKS}].)[{MARKS}]*+"
    rf"(?P<behind>(?:\[\d{{1,3}}\])*+[{_CLOSING}]*+(?: [\"'”’»]++(?= |$))?)(?P<space> ?)"
)
_NEXT = re.compile(rf"(?:[{_OPENING}]++ ?)?+(?P<word>[^\W\d_]*+)(?P<mark>[^\w\s]?)(?P<number>\d?)")
_BEFORE = re.compile(r"[^\W_]+(?:\.[^\W_]+)*$")
_BLANK_LINES = re.compile(r"\n\s*\n")
# In Japanese these continue the quoting sentence; a comma always continues it.
_GOES_ON = frozenset("とっ、，,；;：:")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,3}")
_ROMAN = re.compile(r"[IVXLCDM]+")
# Maximum length of an abbreviation, in characters.
_LONGEST = 16

# Never at the end of a sentence.
_TITLES = frozenset(
    """
    mr mrs ms dr drs prof profs messrs mme mmes mlle mons rev revd hon gen col capt lt sgt cpl maj cmdr adm gov
    sen rep pres e.g i.e eg cf viz vs hr fr frau herr dott sig sra srta z.b d.h u.a bzw sog ca approx
    """.split()
)
# Not at the end if a number follows.
_BEFORE_NUMBER = frozenset(
    """
    no nos nr p pp vol vols fig figs eq eqs sec secs ch chap art ver v op cap tab ex par sect para bk pt lib jan
    feb mar apr jun jul aug sep sept oct nov dec circa c
    """.split()
)
# In the middle of a sentence or at its end.
_BOTH = frozenset(
    """
    st mt ft etc al inc ltd co corp bros jr sr esq dept univ assn ave blvd rd est min max mss ms bd hrsg ed eds
    trans tr ibid op cit vol fig wm geo thos chas jas jno sec figs cie usw v chr av mrd mio sv tn nn tys bzgl г
    гг ул им
    """.split()
)
# Words that often begin a sentence and seldom follow an abbreviation inside one.
_STARTERS = frozenset(
    """
    a after all also although an and another are as at because before but by can did do does each every few for
    from had has have he her here his how however if in is it its let many may more most my never no nor not now
    of on once one or other our perhaps she since so some still such than that the their then there these they
    this those though thus to under until was we were what when where whether which while who why will with
    would yes yet you your das dann der die ein eine er es ich sie wir il elle ils elles le la les une un je
    nous vous el los las ella
    """.split()
)


def split_sentences(text: str) -> list[str]:
    """The sentences of a paragraph, in order; runs of white space become one space, and nothing else changes.

    >>> split_sentences('Mr. Smith paid $3.50 for vol. 3. "Really?" she asked. (It was late...) He left.')
    ['Mr. Smith paid $3.50 for vol. 3.', '"Really?" she asked.', '(It was late...)', 'He left.']
    >>> split_sentences("他问：“走吧？”然后走了。我很好！")
    ['他问：“走吧？”', '然后走了。', '我很好！']
    """
    text = " ".join(text.split())
    has_capitals = not text.islower()
    sentences, start, length = [], 0, len(text)
    for match in _END.finditer(text):
        end = match.end()
        if end < length:
            mark = match.start("behind")
            if text[mark - 1] in _SPACED:
                if not match["space"] or not _ends(text, start, match.start(), mark, end, has_capitals):
                    continue
            elif text[end] in _GOES_ON or text[end] in MARKS:
                continue
        sentences.append(text[start:end].rstrip())
        start = end
    if start < length:
        sentences.append(text[start:])
    return sentences


def sentence_spans(text: str) -> list[tuple[int, int]]:
    r"""The start and end of each sentence of a text with paragraphs, in characters; blank lines also end sentences.

    >>> text = "The news\n\n  It  rained. Then\nit snowed."
    >>> [text[start:end] for start, end in sentence_spans(text)]
    ['The news', 'It  rained.', 'Then\nit snowed.']
    """
    positions = [position for position, character in enumerate(text) if not character.isspace()]
    spans, done = [], 0
    for paragraph in _BLANK_LINES.split(text):
        for sentence in split_sentences(paragraph):
            past = done + sum(not character.isspace() for character in sentence)
            spans.append((positions[done], positions[past - 1] + 1))
            done = past
    return spans


def _ends(text: str, start: int, first_mark: int, mark: int, end: int, has_capitals: bool) -> bool:
    """Whether the sentence from `start` ends with the marks from `first_mark` to `mark`, before `end`."""
    following = _NEXT.match(text, end)
    assert following is not None
    word = following["word"]
    if word:
        if has_capitals and word[0].islower():
            return False
    elif following["mark"] and not following["number"]:
        return False
    if mark - first_mark > 1 or text[first_mark] != ".":
        return True
    before = _BEFORE.search(text, max(start, first_mark - _LONGEST), first_mark)
    return before is None or not _is_abbreviation(before.group(), before.start() - start, following)


def _is_abbreviation(before: str, position: int, following: re.Match[str]) -> bool:
    """Whether the full stop after `before` does not end a sentence; `position` counts from the sentence's start."""
    small, word = before.lower(), following["word"]
    if small in _TITLES:
        return True
    if small in _BEFORE_NUMBER and (following["number"] or _ROMAN.fullmatch(word)):
        return True
    is_letter = len(before) == 1 and before.isalpha()
    if position <= 1 and (is_letter or before.isdigit()):
        return True  # the number or letter of a list
    if is_letter and len(word) == 1 and following["mark"] == ".":
        return True  # z. B., a. C.
    ordinal = (before.isdigit() and len(before) <= 2) or (_ROMAN.fullmatch(before) and len(before) <= 5)
    if ordinal or (is_letter and before.isupper()) or small in _BOTH or _DOTTED.fullmatch(before):
        # An ordinal (am 3. Mai) comes right before its noun.
        return word.lower() not in _STARTERS and not (
            ordinal and (not word or following.start("word") > following.start())
        )
    return False
