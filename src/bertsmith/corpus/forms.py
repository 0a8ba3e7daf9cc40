"""How a text file is laid out, found from its first part.

* `lines`: one sentence a line, a blank line between documents. This is what BERT's original code reads.
* `wrapped`: prose with line ends inside its sentences; a blank line between paragraphs.
* `paragraphs`: prose with a whole paragraph on each line.

The rule looks at the lines that are not blank. If one in five goes on in the next line (no mark at its end, and the
next one begins with a small letter), the text is wrapped. Else, if one in five holds more than one sentence, a line
is a paragraph. Else a line is a sentence. Whoever knows better says so with the setting `form`.
"""

import re

from bertsmith.corpus.sentences import split_sentences

FORMS = ("auto", "lines", "prose", "wrapped", "paragraphs", "jsonl")
SAMPLE_CHARACTERS = 2**18

_SHARE = 0.2
_FINAL = re.compile(r"[.!?…。！？।॥؟۔:;][\"'”’»)\]」』）*_]*$")
_BLANK_LINES = re.compile(r"\n\s*\n")


def find_form(text: str, form: str = "auto") -> str:
    r"""`lines`, `wrapped` or `paragraphs`, from the beginning of a text.

    Args:
        text: with `\n` as line end; the last line may be cut off.
        form: `auto`, or `prose` where it is known that a line is not a sentence.

    >>> find_form("The boat came home.\nNobody was in it.\n\nA new story.\n")
    'lines'
    >>> find_form("The boat came\nhome. Nobody was\nin it.\n")
    'wrapped'
    >>> find_form("The boat came home. Nobody was in it.\nIt rained.\n")
    'paragraphs'
    """
    sample = text[:SAMPLE_CHARACTERS]
    if _share_that_goes_on(sample) >= _SHARE:
        return "wrapped"
    if form == "prose":
        return "paragraphs"
    lines = [line for line in sample.split("\n") if line.strip()]
    if len(sample) < len(text) and len(lines) > 1:
        lines.pop()
    several = sum(len(split_sentences(line)) > 1 for line in lines)
    return "paragraphs" if lines and several >= _SHARE * len(lines) else "lines"


def paragraphs_of(text: str, form: str) -> list[str]:
    r"""The paragraphs of `wrapped` text, or the lines of any other, without blank ones.

    >>> paragraphs_of("The boat came\nhome.\n \nIt rained.\n", "wrapped")
    ['The boat came\nhome.', 'It rained.\n']
    """
    parts = _BLANK_LINES.split(text) if form == "wrapped" else text.split("\n")
    return [part for part in parts if part.strip()]


def _share_that_goes_on(text: str) -> float:
    """The share of lines, among those with another one right below, that go on in it."""
    goes_on = inner = 0
    previous = ""
    for line in (line.strip() for line in text.split("\n")):
        if previous and line:
            inner += 1
            goes_on += line[0].islower() and not _FINAL.search(previous[-8:])
        previous = line
    return goes_on / inner if inner else 0.0
