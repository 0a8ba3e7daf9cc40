"""One name for labels that are spelled in several ways, so that one class does not become two.

`1` and `1.0` are one number, which pandas writes in the second way if a column has missing values; `True` and `true`
are one value of Python and of JSON; equal letters may have several forms in Unicode; and white space may have any
length. Labels that differ in case alone stay different, with a warning (`labels.class_labels`).
"""

import dataclasses
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bertsmith.base.core.progress import tell, warn
from bertsmith.tasks.datasets.examples import EntityExample, Example, TaggedExample, TextExample
from bertsmith.tasks.datasets.labels import labels_of
from bertsmith.tasks.metrics.entities import convert_tags, scheme_errors, scheme_of

_WHOLE = re.compile(r"([+-]?(?:0|[1-9]\d*))\.0+")
_BEGIN_OF_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_TRUTHS = ("true", "false")
_MOST_SHOWN = 5
# Letters of other names of IOBES: each stands for one of its letters.
_LETTERS: Mapping[str, Mapping[str, str]] = {
    "BILOU": {"L": "E", "U": "S"},
    "BMES": {"M": "I"},
    "BMEWO": {"M": "I", "W": "S"},
}


def in_words(name: str) -> str:
    """The name of a label as a text.

    >>> in_words("card_arrival"), in_words("AddToPlaylist")
    ('card arrival', 'Add To Playlist')
    """
    return " ".join(_BEGIN_OF_WORD.sub(" ", name).split()) or name


def plain_spelling(name: str) -> str:
    r"""The spelling that all spellings of a label share.

    >>> plain_spelling("1.0"), plain_spelling("True"), plain_spelling("Not \t Spam"), plain_spelling("1.5")
    ('1', 'true', 'Not Spam', '1.5')
    """
    name = _plain_form(name)
    if name.lower() in _TRUTHS:
        return name.lower()
    match = _WHOLE.fullmatch(name)
    return match[1] if match else name


def _plain_form(name: str) -> str:
    """The name in one form of Unicode, with one space between words."""
    return " ".join(unicodedata.normalize("NFC", name).split())


def with_one_spelling(examples: Sequence[Example], known: Iterable[str] = ()) -> Sequence[Example]:
    """The examples with one name for each label; what is renamed is listed on stderr.

    Args:
        known: the labels of the task, or of the model; a label that is none of them gets the name of the one that is
            spelled in another way. Otherwise labels are renamed if the file itself has several spellings.
    """
    counts = Counter(label for example in examples if _has_labels(example) for label in labels_of(example))
    known = set(known)
    spelled: dict[str, list[str]] = {}
    for name in sorted(known):
        spelled.setdefault(plain_spelling(name), []).append(name)
    groups: dict[str, list[str]] = {}
    for name in counts:
        if name not in known:
            groups.setdefault(plain_spelling(name), []).append(name)
    new: dict[str, str] = {}
    for plain, names in groups.items():
        others = spelled.get(plain, [])
        if len(others) == 1:
            new |= dict.fromkeys(names, others[0])
        elif not others and len(names) > 1:
            new |= {name: plain for name in names if name != plain}
    if not new:
        return examples
    listed = [f"{_told_apart(old, name)} ({counts[old]:,})" for old, name in list(new.items())[:_MOST_SHOWN]]
    more = f" and {len(new) - _MOST_SHOWN:,} more" if len(new) > _MOST_SHOWN else ""
    warn(f"labels that are spelled in several ways are read as one: {', '.join(listed)}{more}")
    return [_renamed(example, new) if _has_labels(example) else example for example in examples]


def _told_apart(old: str, name: str) -> str:
    r"""Both spellings of a label, with escapes where they look equal.

    >>> _told_apart("1.0", "1"), _told_apart("cafe\u0301", "caf\xe9"), _told_apart("a  b", "a b")
    ("'1.0' as '1'", "'cafe\\u0301' as 'caf\\xe9'", "'a \\x20b' as 'a b'")
    """
    if _plain_form(old) != _plain_form(name):
        return f"{old!r} as {name!r}"
    return " as ".join(ascii(spelling).replace("  ", r" \x20") for spelling in (old, name))


def in_scheme(examples: Sequence[Example], scheme: str = "", known: Iterable[str] = ()) -> Sequence[Example]:
    """The sentences with tags of BILOU, BMES or BMEWO as IOBES, and tags of another scheme than the model's in its own.

    Args:
        scheme: the scheme of the model; empty if it is yet to be trained.
        known: the tags of the model; if they have letters such as L and U, they stay.
    """
    sentences = [example for example in examples if isinstance(example, TaggedExample) and example.tags]
    tags = {tag for sentence in sentences for tag in sentence.tags or ()}
    letters = set() if tags <= set(known) else {tag.partition("-")[0] for tag in tags}
    name = next(
        (
            name
            for name, others in _LETTERS.items()
            if letters & others.keys() and letters <= {"O", *others, *(set("BIES") - set(others.values()))}
        ),
        "",
    )
    new = {tag: _LETTERS[name].get(tag[0], tag[0]) + tag[1:] for tag in tags if tag != "O"} if name else {}
    if name:
        tell(f"tags of {name} read as IOBES: {', '.join(f'{a} as {b}' for a, b in _LETTERS[name].items())}")
        examples = [_renamed(example, new) if isinstance(example, TaggedExample) else example for example in examples]
        sentences = [example for example in examples if isinstance(example, TaggedExample) and example.tags]
    own_scheme = scheme_of(sentence.tags or () for sentence in sentences) if scheme else ""
    if own_scheme in ("", scheme) or not any(scheme_errors(sentence.tags or (), scheme) for sentence in sentences):
        return examples
    if any(scheme_errors(sentence.tags or (), own_scheme) for sentence in sentences):
        return examples  # with errors in either scheme; scoring lists them
    tell(f"tags of {own_scheme} read as {scheme}, the scheme of the model")
    return [
        dataclasses.replace(example, tags=tuple(convert_tags(example.tags, own_scheme, scheme)))
        if isinstance(example, TaggedExample) and example.tags
        else example
        for example in examples
    ]


def _has_labels(example: Example) -> bool:
    return isinstance(example, TaggedExample) or (
        isinstance(example, TextExample) and isinstance(example.label, str | tuple)
    )


def _renamed(example: Example, names: Mapping[str, str]) -> Example:
    if isinstance(example, EntityExample):
        return example.renamed(names)
    if isinstance(example, TaggedExample):
        tags = None if example.tags is None else tuple(names.get(tag, tag) for tag in example.tags)
        return dataclasses.replace(example, tags=tags)
    assert isinstance(example, TextExample), "an example with labels"
    several = tuple(dict.fromkeys(names.get(label, label) for label in labels_of(example)))
    return dataclasses.replace(example, label=several if isinstance(example.label, tuple) else several[0])
