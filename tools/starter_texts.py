"""Gathers modern texts for a starter model from what is on the machine: JSON Lines with one document per line.

    python tools/starter_texts.py --out DIR [--wikinews DIR] [--wordnet FILE] [--html NAME=DIR ...] [--docstrings]
    python tools/starter_texts.py --out DIR --sentences MOST:PATH ...

The second line draws sentences from such files and from plain text: documents of a single sentence each, from which a
sentence encoder learns more vectors in the same time.

Only texts that may be redistributed as weights belong here: public domain, CC0, CC BY, and documentation under the
licences of BSD, MIT, Apache, Python and PostgreSQL. Books and speeches in plain text need no preparation and are named
to `tools/make_starter.py` as they are.
"""

import argparse
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from importlib.metadata import distributions
from pathlib import Path

from bertsmith.text.documents.docstrings import docstring_documents

PERMISSIVE = re.compile(
    r"\b(BSD|MIT|Apache|PSF|Python Software Foundation|PostgreSQL|ISC|Zlib|Unlicense)\b", re.IGNORECASE
)
COPYLEFT = re.compile(r"\b[AL]?GPL|\bGNU|\bMPL|Mozilla", re.IGNORECASE)
LEAST_WORDS = 8  # of a paragraph of HTML
SYNSETS = 12  # per document of WordNet, in the order of its files, where neighbours are related
SKIPPED = {"script", "style", "pre", "table", "nav", "code-block"}
BLOCKS = {"p", "dd", "li", "blockquote", "h1", "h2"}
# Sentences from which the link that they were about was lost: "the of", "in ,".
LOST_LINK = re.compile(
    r"\b(the|a|an|of|in|by|from|with|to) (of|in|by|from|with|and|is|was|has|had)\b"
    r"|\b(the|a|an|of|in|by|from|with)\s*[,.;)]|\(\)|^,"
)
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]”’]*\s+(?=[\"'“(A-Z])")
WORDS_OF_SENTENCE = range(4, 51)
LETTERS = 0.6  # the least share of letters among the characters of a sentence


class Paragraphs(HTMLParser):
    """The paragraphs of an HTML page in `texts`, without code, tables and navigation."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._parts: list[str] = []
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begins a paragraph or a part that is left out."""
        if tag in SKIPPED:
            self._skipped += 1
        elif tag in BLOCKS:
            self._flush()

    def handle_endtag(self, tag: str) -> None:
        """Ends it."""
        if tag in SKIPPED:
            self._skipped = max(0, self._skipped - 1)
        elif tag in BLOCKS:
            self._flush()

    def handle_data(self, data: str) -> None:
        """Adds text to the paragraph."""
        if not self._skipped:
            self._parts.append(data)

    def _flush(self) -> None:
        text = " ".join("".join(self._parts).replace("¶", "").split())
        self._parts = []
        if len(text.split()) >= LEAST_WORDS and text[-1] in ".:!?)":
            self.texts.append(text)


def wikinews(folder: Path) -> Iterator[str]:
    """Articles, title first; sentences that lost a link are dropped."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.open(encoding="utf-8"):
            article = json.loads(line)
            paragraphs = []
            for paragraph in article["text"].split("\n"):
                sentences = re.split(r"(?<=[.!?])\s+", paragraph)
                kept = [sentence for sentence in sentences if not LOST_LINK.search(sentence)]
                if kept:
                    paragraphs.append(" ".join(kept))
            if paragraphs:
                yield "\n\n".join([article["title"], *paragraphs])


def wordnet(file: Path) -> Iterator[str]:
    """Definitions, examples and the places of words among others, as sentences."""
    synsets = [json.loads(line) for line in file.open(encoding="utf-8")]
    names = {synset["id"]: synset["lemmas"][0] for synset in synsets}
    files: dict[str, list[dict]] = defaultdict(list)
    for synset in synsets:
        files[synset["lexfile"]].append(synset)
    for members in files.values():
        for start in range(0, len(members), SYNSETS):
            yield "\n\n".join(_entry(synset, names) for synset in members[start : start + SYNSETS])


def _entry(synset: dict, names: dict[str, str]) -> str:
    lemmas = synset["lemmas"]
    sentences = [f"{' or '.join(lemmas[:3])}: {synset['definition']}."]
    kinds = [names[key] for key in synset["hypernyms"] if key in names]
    wholes = [names[key] for key in synset["part_of"] if key in names]
    if kinds and synset["pos"] == "n":
        sentences.append(f"{lemmas[0]} is a kind of {kinds[0]}.")
    if wholes:
        sentences.append(f"{lemmas[0]} is part of {wholes[0]}.")
    for example in synset["examples"]:
        text = example if isinstance(example, str) else example.get("text", "")
        if text:
            sentences.append(text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else "."))
    return " ".join(sentences)


def html_pages(folder: Path) -> Iterator[str]:
    """The prose of HTML pages, one document each; paragraphs that an earlier page had are dropped."""
    seen: set[str] = set()
    for path in sorted(folder.rglob("*.html")):
        parser = Paragraphs()
        parser.feed(path.read_text(encoding="utf-8", errors="ignore"))
        fresh = [text for text in dict.fromkeys(parser.texts) if text not in seen]
        seen.update(fresh)
        if fresh:
            yield "\n\n".join(fresh)


def permissive_packages() -> dict[str, str]:
    """Folders and files of installed packages by path, with their licences, if those are permissive."""
    places = {}
    for distribution in distributions():
        data = distribution.metadata
        terms = " ".join([data.get("License-Expression") or "", (data.get("License") or "")[:200], *(
            value for value in data.get_all("Classifier") or [] if value.startswith("License"))])  # fmt: skip
        if not PERMISSIVE.search(terms) or COPYLEFT.search(terms):
            continue
        for file in distribution.files or []:
            if file.suffix == ".py" and ".." not in file.parts and len(file.parts) > 1:
                places[str(distribution.locate_file(file.parts[0]))] = f"{data['Name']}: {terms.strip()[:60]}"
    return places


def docstrings() -> Iterator[str]:
    """The prose of the docstrings of permissive packages."""
    for document in docstring_documents(sorted(permissive_packages()), workers=1):
        yield " ".join(document.sentences)


def sentences(sources: Iterable[str]) -> list[str]:
    """Sentences in random order, at most as many of each source (MOST:PATH, a file or a folder) as it says."""
    draw, seen, drawn = random.Random(1), set(), []
    for source in sources:
        most, path = source.split(":", 1)
        fresh = []
        for paragraph in _paragraphs(Path(path)):
            for text in SENTENCE_END.split(" ".join(paragraph.split())):
                is_prose = sum(map(str.isalpha, text)) > LETTERS * len(text)
                if len(text.split()) in WORDS_OF_SENTENCE and is_prose and text not in seen:
                    seen.add(text)
                    fresh.append(text)
        draw.shuffle(fresh)
        drawn.extend(fresh[: int(most)])
    draw.shuffle(drawn)
    return drawn


def _paragraphs(path: Path) -> Iterator[str]:
    for file in [path] if path.is_file() else sorted(path.rglob("*.txt")):
        text = file.read_text(encoding="utf-8", errors="ignore")
        for document in map(_text_of, text.splitlines()) if file.suffix == ".jsonl" else [text]:
            yield from document.split("\n\n")


def _text_of(line: str) -> str:
    return str(json.loads(line)["text"])


def write(out: Path, documents: Iterable[str]) -> None:
    """Writes a document per line and prints the characters."""
    characters = count = 0
    with out.open("w", encoding="utf-8") as file:
        for text in documents:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            characters, count = characters + len(text), count + 1
    print(f"{out}: {count:,} documents, {characters / 1e6:.1f} million characters")


def main() -> None:
    """Writes one file per source."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--wikinews", type=Path, help="articles of Wikinews (CC BY), JSON Lines with title and text")
    parser.add_argument("--wordnet", type=Path, help="synsets of Open English WordNet (CC BY) as JSON Lines")
    parser.add_argument("--html", action="append", default=[], help="NAME=DIR, documentation in HTML; repeatable")
    parser.add_argument("--docstrings", action="store_true", help="docstrings of the installed permissive packages")
    parser.add_argument("--sentences", metavar="MOST:PATH", action="append", default=[], help="sentences; repeatable")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.wikinews:
        write(options.out / "wikinews.jsonl", wikinews(options.wikinews))
    if options.wordnet:
        write(options.out / "wordnet.jsonl", wordnet(options.wordnet))
    for pair in options.html:
        name, folder = pair.split("=", 1)
        write(options.out / f"{name}.jsonl", html_pages(Path(folder)))
    if options.docstrings:
        write(options.out / "docstrings.jsonl", docstrings())
    if options.sentences:
        write(options.out / "sentences.jsonl", sentences(options.sentences))


if __name__ == "__main__":
    main()
