"""Labelled bracket scores of constituency trees, by the rules of evalb with its parameter file COLLINS.prm.

A bracket is a constituent: its label, and the words from which to which it reaches. Not counted are the label TOP and
ROOT, the labels of words (parts of speech), empty elements and what holds nothing else, and punctuation: words with the
tags , : `` '' . do not count as places. ADVP and PRT are one label. What follows - or = in a label (its function, an
index) is not part of it.

Source: Black et al. (1991), "A Procedure for Quantitatively Comparing the Syntactic Coverage of English Grammars";
Collins (1997), section 5, for the parameters.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from bertsmith.base.core.errors import InputError

BRACKETS = ("precision", "recall", "f1")
TOPS = ("TOP", "ROOT", "S1", "")
EMPTY = "-NONE-"
DEEPEST = 150  # brackets around a word; walks through a tree are recursive
PUNCTUATION = (",", ":", "``", "''", ".")
_SAME = {"PRT": "ADVP"}
_TOKENS = re.compile(r"[()]|[^\s()]+")


@dataclasses.dataclass(frozen=True)
class Tree:
    """A constituent with parts, or a word with its part of speech.

    Attributes:
        label: without its function.
        word: of a part of speech; None of a constituent.
    """

    label: str
    children: "tuple[Tree, ...]" = ()
    word: str | None = None

    @property
    def labels(self) -> frozenset[str]:
        """The labels of all constituents, those of words left out."""
        labels = () if self.word is not None else (self.label,)
        return frozenset(labels).union(*(child.labels for child in self.children))

    def words(self) -> "Iterator[Tree]":
        """The words in their order, each with its part of speech."""
        if self.word is not None:
            yield self
        for child in self.children:
            yield from child.words()

    def __str__(self) -> str:
        return f"({self.label} {self.word if self.word is not None else ' '.join(map(str, self.children))})"


def plain_label(label: str) -> str:
    """A label without its function and index.

    >>> plain_label("NP-SBJ-1"), plain_label("NP=2"), plain_label("-NONE-"), plain_label("-LRB-")
    ('NP', 'NP', '-NONE-', '-LRB-')
    """
    return label if label.startswith("-") else re.split("[-=]", label, maxsplit=1)[0]


def read_tree(text: str) -> Tree:
    """The tree that a text in brackets shows, such as "(S (NP (NNP Ann)) (VP (VBZ reads)))".

    Empty elements, and constituents of nothing else, are left out. Brackets without a label around the whole are too.

    Raises:
        InputError: brackets do not match or are too deep, or there is not exactly one tree with a word.
    """
    stack: list[list[Tree | str]] = [[]]
    for token in _TOKENS.findall(text):
        if token == "(":
            if len(stack) > DEEPEST:
                raise _no_tree(text, f"more than {DEEPEST} brackets around a word")
            stack.append([])
        elif token != ")":
            stack[-1].append(token)
        elif len(stack) == 1:
            raise _no_tree(text, "a ) without (")
        else:
            tree = _tree(stack.pop(), text)
            stack[-1] += [] if tree is None else [tree]
    if len(stack) > 1:
        raise _no_tree(text, f"{len(stack) - 1} ( without )")
    trees = stack[0]
    if len(trees) != 1 or not isinstance(trees[0], Tree):
        raise _no_tree(text, "none" if not trees else "several, or words outside of one")
    tree = trees[0]
    return tree.children[0] if tree.label == "" and len(tree.children) == 1 else tree


def read_tree_of(source: str, text: str, location: str) -> Tree:
    """The tree that a text shows of the words of a source, which white space separates; see `read_tree`.

    Raises:
        InputError: there is no such tree; the message names the location.
    """
    try:
        tree = read_tree(text)
    except InputError as error:
        raise InputError(expected=f"a tree in brackets in {location}", found=error.found, fix=error.fix) from None
    words = [leaf.word for leaf in tree.words()]
    if words != source.split():
        raise InputError(
            expected=f"the words of the tree as the source, with spaces between them, in {location}",
            found=repr(source[:60]),
            fix=f"write {' '.join(map(str, words))[:60]!r}",
        )
    return tree


def _tree(parts: Sequence[Tree | str], text: str) -> Tree | None:
    """The tree of what is between two brackets; None of an empty element."""
    label = parts[0] if parts and isinstance(parts[0], str) else ""
    rest = parts[1:] if label else parts
    if len(rest) == 1 and isinstance(rest[0], str):
        return None if label == EMPTY else Tree(plain_label(label), word=rest[0])
    if any(isinstance(part, str) for part in rest):
        raise _no_tree(text, f"words next to other parts in ({label} ...")
    children = tuple(part for part in rest if isinstance(part, Tree))
    return Tree(plain_label(label), children) if children else None


def _no_tree(text: str, content: str) -> InputError:
    return InputError(expected=f"one tree in brackets in {text[:60]!r}", found=content, fix="correct the brackets")


def brackets_of(tree: Tree) -> Counter[tuple[str, int, int]]:
    """The brackets that are scored, with how often each occurs; places are words without punctuation."""
    counted: Counter[tuple[str, int, int]] = Counter()

    def visit(node: Tree, start: int) -> int:
        if node.word is not None:
            return start + (node.label not in PUNCTUATION)
        end = start
        for child in node.children:
            end = visit(child, end)
        if node.label not in TOPS and end > start:
            counted[_SAME.get(node.label, node.label), start, end] += 1
        return end

    visit(tree, 0)
    return counted


def bracket_counts(tree: Tree | None, gold: Tree) -> tuple[int, int, int]:
    """The brackets that a predicted tree and the gold tree share, those of the prediction, and those of the gold tree.

    Args:
        tree: with the words of the gold tree; None, and a tree of other words, have no brackets.
    """
    wanted = brackets_of(gold)
    same_words = tree is not None and [leaf.word for leaf in tree.words()] == [leaf.word for leaf in gold.words()]
    if tree is None or not same_words:
        return 0, 0, wanted.total()
    predicted = _with_punctuation_of(tree, gold)
    return (predicted & wanted).total(), predicted.total(), wanted.total()


def _with_punctuation_of(tree: Tree, gold: Tree) -> Counter[tuple[str, int, int]]:
    """The brackets of a tree, whose punctuation is what the gold tree says it is."""
    tags = iter([leaf.label for leaf in gold.words()])

    def tagged(node: Tree) -> Tree:
        if node.word is not None:
            return dataclasses.replace(node, label=next(tags))
        return dataclasses.replace(node, children=tuple(tagged(child) for child in node.children))

    return brackets_of(tagged(tree))


def bracket_scores(trees: Sequence[Tree | None], golds: Sequence[Tree]) -> dict[str, float]:
    """Labelled precision, recall and F1 of the brackets of all trees together, from 0 to 1.

    evalb leaves out sentences whose words differ; here their gold brackets count as missed.
    """
    counts = [bracket_counts(tree, gold) for tree, gold in zip(trees, golds, strict=True)]
    shared, predicted, wanted = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
    figures = (shared / max(1, predicted), shared / max(1, wanted), 2 * shared / max(1, predicted + wanted))
    return dict(zip(BRACKETS, figures, strict=True))


def right_branching(words: Sequence[Tree], label: str) -> Tree:
    """Words under constituents of one label, each of which begins a word later than the one around it.

    It is the usual baseline for English, whose constituents mostly grow at their right end. Where it would be too deep,
    the last constituent has all words that are left.
    """
    before = words[: max(0, min(len(words), DEEPEST) - 2)]
    branch = Tree(label, tuple(words[len(before) :]))
    for word in reversed(before):
        branch = Tree(label, (word, branch))
    return branch
