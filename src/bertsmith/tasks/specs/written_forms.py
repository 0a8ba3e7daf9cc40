"""How the targets of a task are spelled for the model that writes them, and read back from what it wrote.

Most texts are written as they are. A tree of constituents is written without its words, of which only places are left,
and without parts of speech: "(S (NP (NNP Ann)) (VP (VBZ reads)))" as "( S ( NP . ) ( VP . ) )". Reading back gives
every word of the source its place, whatever was written, so that the result is always a tree of the whole source.

Source: Vinyals et al. (2015), "Grammar as a Foreign Language", section 2, for trees as sequences.
"""

import re
from collections.abc import Mapping, Sequence

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import SequenceExample
from bertsmith.tasks.metrics.brackets import DEEPEST, Tree, read_tree

WORD, TAG = ".", "XX"  # the place of a word, and the part of speech of words read back
_SENTENCE = "S"  # the label of what is around several trees
_TOKENS = re.compile(r"[()]|\.|[^\s().]+")


class WrittenForm:
    """Texts as they are."""

    def check(self, example: SequenceExample) -> None:
        """Refuses targets that cannot be written, or do not fit their source."""

    def as_written(self, target: str) -> str:
        """A target as the model writes it."""
        return target

    def read_back(self, written: str, source: str, labels: Sequence[str]) -> str:
        """The text in what a model wrote for a source; `labels` are those of the training."""
        return written


class Trees(WrittenForm):
    """Trees in brackets over the words of the source, which white space separates."""

    def check(self, example: SequenceExample) -> None:
        """See `WrittenForm`; the tree has the words of the source."""
        for target in example.targets:
            try:
                words = [leaf.word for leaf in read_tree(target).words()]
            except InputError as error:
                raise InputError(
                    expected=f"a tree in brackets in {example.location}", found=error.found, fix=error.fix
                ) from None
            if words != example.source.split():
                raise InputError(
                    expected=f"the words of the tree as the source, with spaces between them, in {example.location}",
                    found=repr(example.source[:60]),
                    fix=f"write {' '.join(map(str, words))[:60]!r}",
                )

    def as_written(self, target: str) -> str:
        """See `WrittenForm`."""
        return _spelled(read_tree(target))

    def read_back(self, written: str, source: str, labels: Sequence[str]) -> str:
        """See `WrittenForm`; "" for a source without words.

        >>> Trees().read_back("( s ( np . . ) ( vp", "the cat sleeps", ["NP", "S", "VP"])
        '(S (NP (XX the) (XX cat)) (XX sleeps))'
        """
        words = source.split()
        return str(_read(written, words, {_plain(label): label for label in labels})) if words else ""


WRITTEN_FORMS: Mapping[str, WrittenForm] = {"parsing": Trees()}  # by the name of the task; for others as they are


def form_of_texts(name: str) -> WrittenForm:
    """The form of the texts of a task."""
    return WRITTEN_FORMS.get(name, WrittenForm())


def labels_of_trees(examples: Sequence[SequenceExample]) -> tuple[str, ...]:
    """The labels of the constituents of all trees, sorted."""
    labels: set[str] = set()

    def visit(tree: Tree) -> None:
        if tree.word is None:
            labels.add(tree.label)
            for child in tree.children:
                visit(child)

    for example in examples:
        Trees().check(example)
        for target in example.targets:
            visit(read_tree(target))
    return tuple(sorted(labels))


def _spelled(tree: Tree) -> str:
    if tree.word is not None:
        return WORD
    return f"( {tree.label} {' '.join(map(_spelled, tree.children))} )"


def _plain(label: str) -> str:
    """A label as it may come back: in lower case, with spaces and signs lost."""
    return "".join(character for character in label.casefold() if character.isalnum())


def _read(written: str, words: Sequence[str], labels: Mapping[str, str]) -> Tree:
    """The tree of the words; missing brackets are closed at the end, where missing words are added."""
    left = iter(words)
    label: str | None = ""  # of the innermost constituent, while it is being written
    open_: list[tuple[str, list[Tree]]] = [(_SENTENCE, [])]

    def close() -> None:
        name, children = open_.pop()
        if children:
            open_[-1][1].append(Tree(name, tuple(children)))

    for token in _TOKENS.findall(written):
        if token not in ("(", ")", WORD):
            if label is not None and len(open_) > 1:
                label += token
                open_[-1] = (labels.get(_plain(label), label.upper()), open_[-1][1])
            continue
        label = "" if token == "(" else None
        if token == "(" and len(open_) < DEEPEST - 1:
            open_.append((_SENTENCE, []))
        elif token == WORD and (word := next(left, None)) is not None:
            open_[-1][1].append(Tree(TAG, word=word))
        elif token == ")" and len(open_) > 1:
            close()
    while len(open_) > 1:
        close()
    missing = tuple(Tree(TAG, word=word) for word in left)
    trees = open_[0][1]
    if len(trees) == 1 and trees[0].word is None:
        return Tree(trees[0].label, (*trees[0].children, *missing))
    return Tree(_SENTENCE, (*trees, *missing))
