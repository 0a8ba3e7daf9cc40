"""The layout of a text file, detected from its beginning.

* `lines`: one sentence per line, a blank line between documents. This is the format that BERT's original code reads.
* `wrapped`: prose with line breaks inside sentences; a blank line between paragraphs.
* `paragraphs`: prose with a whole paragraph on each line.

The rule ignores blank lines. If one line in five continues on the next one (it has no final punctuation, and the next
line begins with a lowercase letter), the text is wrapped. Otherwise, if one in five contains more than one sentence,
each line is a paragraph. Otherwise each line is a sentence. The setting `form` overrides the rule.

What divides a file into documents is found as well:

* `marks`: lines `<doc ...>` and `</doc>` around each document, as WikiExtractor writes them. They are not text, and
  what it escapes is read as it was.
* `headings`: lines `= Title =`, if the first line is one, as in WikiText and MediaWiki. The title is the first sentence
  of its document; `= = Section = =` and `== Section ==` are sentences of it, without the signs.
* `gaps`: for `gaps`, which is prose with two or more blank lines between documents.
* `blank lines`: in `lines` form; in `paragraphs` form if at least half of the runs of lines between blank lines have
  several lines, since a blank line then does not divide paragraphs, which lines already do; and for `texts`, which is
  prose whose blank lines divide documents.
* `files`: otherwise, a file is one document.
"""

import re

from bertsmith.text.documents.sentences import MARKS, split_sentences

FORMS = ("auto", "lines", "prose", "texts", "gaps", "wrapped", "paragraphs", "jsonl")
SAMPLE_CHARACTERS = 2**18

BY_MARKS, BY_BLANK_LINES, BY_FILES = "marks", "blank lines", "files"
BY_HEADINGS, BY_GAPS = "headings", "gaps"

_SHARE = 0.2
_FINAL = re.compile(rf"[{MARKS}:;][\"'”’»)\]」』）*_]*$")
_BLANK_LINES = re.compile(r"\n\s*\n")
_BLANK_LINE = re.compile(r"^[^\S\n]*\n", re.MULTILINE)
_MARK = re.compile(r"^[^\S\n]*(?:<doc\b[^>\n]*>|</doc>)[^\S\n]*(?:\n|\Z)", re.MULTILINE)
_TITLE = re.compile(r"^[^\S\n]*=[^\S\n]*[^=\s](?:[^\n]*[^=\s])?[^\S\n]*=[^\S\n]*$", re.MULTILINE)
_BEFORE_TITLE = re.compile(rf"(?={_TITLE.pattern})", re.MULTILINE)
_HEADING = re.compile(r"^[^\S\n]*(?:=[^\S\n]*)+([^=\s](?:[^\n]*[^=\s])?)[^\S\n]*(?:=[^\S\n]*)+$", re.MULTILINE)
_SIGNS = {"amp": "&", "lt": "<", "gt": ">"}
_ESCAPED = re.compile("&(amp|lt|gt);")
_NOT_ESCAPED = re.compile("[<>]|&(?!(?:amp|lt|gt);)")
_GAP = re.compile(r"\n(?:[^\S\n]*\n){2,}")


def find_form(text: str, form: str = "auto") -> str:
    r"""`lines`, `wrapped` or `paragraphs`, detected from the beginning of a text.

    Args:
        form: `auto`, or `prose`, `texts` or `gaps` if a line is known not to be a sentence.

    >>> find_form("The boat came home.\nNobody was in it.\n\nA new story.\n")
    'lines'
    >>> find_form("The boat came\nhome. Nobody was\nin it.\n")
    'wrapped'
    >>> find_form("The boat came home. Nobody was in it.\nIt rained.\n")
    'paragraphs'
    """
    sample = _MARK.sub("\n", text[:SAMPLE_CHARACTERS])
    if _share_that_goes_on(sample) >= _SHARE:
        return "wrapped"
    if form in ("prose", "texts", "gaps"):
        return "paragraphs"
    lines = [line for line in sample.split("\n") if line.strip()]
    if len(sample) < len(text) and len(lines) > 1:
        lines.pop()
    several = sum(len(split_sentences(line)) > 1 for line in lines)
    return "paragraphs" if lines and several >= _SHARE * len(lines) else "lines"


def find_division(text: str, form: str, wanted: str = "auto") -> str:
    r"""The division of a file into documents: `marks`, `headings`, `gaps`, `blank lines` or `files`, by its beginning.

    >>> find_division("The boat came home. Nobody was in it.\nIt rained.\n\nA new story. It rained.\nIt ended.\n",
    ...     "paragraphs")
    'blank lines'
    >>> find_division("The boat came home. Nobody was in it.\n\nIt rained. It rained.\n", "paragraphs")
    'files'
    """
    sample = text[:SAMPLE_CHARACTERS]
    if _MARK.match(sample.lstrip()):
        return BY_MARKS
    if wanted == "gaps":
        return BY_GAPS
    if wanted != "lines" and _TITLE.match(sample.lstrip()):
        return BY_HEADINGS
    if "texts" in (form, wanted) or form == "lines":
        return BY_BLANK_LINES
    runs = [run for run in _BLANK_LINES.split(sample.strip()) if run]
    several = sum("\n" in run for run in runs)
    return BY_BLANK_LINES if form == "paragraphs" and len(runs) > 1 and several >= len(runs) / 2 else BY_FILES


def texts_of(text: str, division: str) -> list[str]:
    r"""The documents in a text, or their parts in one block of a file; parts may be empty.

    >>> texts_of("<doc id='1'>\nOne.\n\nTwo.\n</doc>\n", "marks")
    ['', 'One.\n\nTwo.\n', '']
    >>> texts_of("One.\nTwo.\n\nThree.\n", "blank lines")
    ['One.\nTwo.\n', 'Three.\n']
    >>> texts_of("= One =\nIt rained.\n= = Later = =\nIt ended.\n= Two =\nIt rained.\n", "headings")
    ['', 'One\n\nIt rained.\n\nLater\n\nIt ended.\n', 'Two\n\nIt rained.\n']
    >>> texts_of("One.\n\nTwo.\n\n\nThree.\n", "gaps")
    ['One.\n\nTwo.', 'Three.\n']
    """
    if division == BY_FILES:
        return [text]
    if division == BY_HEADINGS:
        return [_without_signs(document) for document in _BEFORE_TITLE.split(text)]
    if division == BY_GAPS:
        return _GAP.split(text)
    return (_MARK if division == BY_MARKS else _BLANK_LINE).split(text)


def marks_of(text: str) -> list[str]:
    r"""The marks in a text, which are between its documents as `texts_of` returns them.

    >>> marks_of("<doc id='1'>\nOne.\n</doc>\n")
    ["<doc id='1'>\n", '</doc>\n']
    """
    return _MARK.findall(text)


def unescaped(text: str) -> str:
    """A text as it was before WikiExtractor escaped `&`, `<` and `>`; it is the same if one of them is not escaped.

    Source: `clean_text` of wikiextractor/extract.py, which calls `html.escape(text, quote=False)` unless `--html-safe`
    is false.

    >>> unescaped("if a &lt; b &amp;&amp; c: R&amp;amp;D"), unescaped("a < b writes &lt;")
    ('if a < b && c: R&amp;D', 'a < b writes &lt;')
    """
    return text if _NOT_ESCAPED.search(text) else _ESCAPED.sub(lambda match: _SIGNS[match[1]], text)


def paragraphs_of(text: str, form: str) -> list[str]:
    r"""The paragraphs of `wrapped` text, or the non-blank lines of any other form.

    >>> paragraphs_of("The boat came\nhome.\n \nIt rained.\n", "wrapped")
    ['The boat came\nhome.', 'It rained.\n']
    """
    parts = _BLANK_LINES.split(text) if form == "wrapped" else text.split("\n")
    return [part for part in parts if part.strip()]


def _without_signs(text: str) -> str:
    """A text whose headings are paragraphs without the signs around them."""
    return re.sub(r"\A\n+", "", _HEADING.sub(r"\n\1\n", text))


def _share_that_goes_on(text: str) -> float:
    """The fraction of lines that continue on the next line, among those directly followed by another line."""
    goes_on = inner = 0
    previous = ""
    for line in (line.strip() for line in text.split("\n")):
        if previous and line:
            inner += 1
            goes_on += line[0].islower() and not _FINAL.search(previous[-8:])
        previous = line
    return goes_on / inner if inner else 0.0
