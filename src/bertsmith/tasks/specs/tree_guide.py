"""What a model may write where it writes a tree over the words of its source, and the tree in what it wrote.

A tree is written as brackets, labels and the words themselves: "( S ( NP Ann ) ( VP reads ) )". The pieces that may
follow are those from which such a tree can still be completed in the pieces that are left, with every word of the
source in its order. So every text that ends is a tree of the whole source, whatever the model has learned.

Where a piece could be two things, it is the label, else the word, else the bracket.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

from bertsmith.tasks.encoding.writing import Guide
from bertsmith.tasks.metrics.brackets import DEEPEST, Tree
from bertsmith.text.tokenizers.tokenizer import Tokenizer

OPEN, CLOSE = "(", ")"
TAG, SENTENCE = "XX", "S"  # the part of speech of words, and the label where there is no other
_LABEL, _WORD, _OPEN, _CLOSE, _END = "label", "word", "open", "close", "end"
_Ids = tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class TreeSpelling:
    """The pieces of brackets and labels in a vocabulary.

    Attributes:
        open, close, end: ids.
        labels: by their pieces.
        following: the pieces that continue the beginning of a label.
        shortest: the fewest pieces that complete such a beginning.
    """

    open: int
    close: int
    end: int
    labels: Mapping[_Ids, str]
    following: Mapping[_Ids, frozenset[int]]
    shortest: Mapping[_Ids, int]

    @staticmethod
    def of(labels: Sequence[str], tokenizer: Tokenizer) -> "TreeSpelling":
        """The spelling of some labels."""
        names = labels or (SENTENCE,)
        open_, close, *spelled = pieces_of_words((OPEN, CLOSE, *names), tokenizer)
        known: dict[_Ids, str] = {}
        for label, ids in zip(names, spelled, strict=True):
            known.setdefault(ids, label)
        following: dict[_Ids, frozenset[int]] = {}
        shortest = dict.fromkeys(known, 0)
        for ids in known:
            for size in range(len(ids)):
                begun = ids[:size]
                following[begun] = following.get(begun, frozenset()) | {ids[size]}
                shortest[begun] = min(shortest.get(begun, len(ids)), len(ids) - size)
        return TreeSpelling(open_[0], close[0], tokenizer.template.end[0], known, following, shortest)

    def is_ambiguous(self, labels: Sequence[str]) -> bool:
        """Whether brackets, or two labels, have the same pieces, as where the vocabulary does not have them."""
        return self.open == self.close or len(self.labels) < len(labels)


def pieces_of_words(words: Sequence[str], tokenizer: Tokenizer) -> list[_Ids]:
    """The pieces of each word as inside a text; at least one."""
    return [tuple(ids.tolist()) for ids in tokenizer.encode_repeated_words(words)]


@dataclasses.dataclass(frozen=True)
class TreeGuide(Guide):
    """A place in a tree that is being written.

    Attributes:
        words: the pieces of each word of the source.
        unwritten: the pieces of words that are not written yet.
        word, piece: the next word, and how many of its pieces are written.
        parts: of each open constituent, from the outermost, whether it has a part.
        label: the pieces of a label that is being written; None elsewhere.
        is_begun: whether the outermost constituent is.
    """

    spelling: TreeSpelling
    words: tuple[_Ids, ...]
    unwritten: int
    word: int = 0
    piece: int = 0
    parts: tuple[bool, ...] = ()
    label: _Ids | None = None
    is_begun: bool = False

    @staticmethod
    def of(spelling: TreeSpelling, words: Sequence[_Ids]) -> "TreeGuide":
        """The guide at the beginning of a tree of these words."""
        return TreeGuide(spelling, tuple(words), sum(map(len, words)))

    def allowed(self, left: int) -> list[int]:
        """See `Guide`; where no tree can be completed in the pieces that are left, the shortest way to one."""
        needs = {id: self._needed_after(kind, id) for id, kind in self._kinds.items()}
        most = max(left - 1, min(needs.values()))
        return [id for id, needed in needs.items() if needed <= most]

    def after(self, id: int) -> "TreeGuide":
        """See `Guide`; after the end, the same."""
        return self._state(self._kinds[id], id)

    @property
    def needed(self) -> int:
        """The fewest pieces that complete the tree, its end included."""
        if not self.words or self.is_begun:
            return self._label + self.unwritten + len(self.parts) + 1
        return 1 + self.spelling.shortest[()] + self.unwritten + 2

    @property
    def _label(self) -> int:
        """The fewest pieces that complete the label that is being written."""
        return 0 if self.label is None else self.spelling.shortest[self.label]

    def _needed_after(self, kind: str, id: int) -> int:
        """What is needed after one of the pieces that may follow."""
        if kind == _LABEL:
            return self.needed - self._label + self.spelling.shortest[(*(self.label or ()), id)]
        if kind == _OPEN and self.is_begun:
            return self.needed + self.spelling.shortest[()] + 1
        return self.needed - 1

    @functools.cached_property
    def _kinds(self) -> dict[int, str]:
        """What each piece that may follow is."""
        spelling, kinds = self.spelling, dict[int, str]()
        has_words, top = self.word < len(self.words), self.parts[-1:]
        if not self.words or (self.is_begun and not self.parts):
            return {spelling.end: _END}
        if self.piece:
            return {self.words[self.word][self.piece]: _WORD}
        if self.label is not None:
            kinds = dict.fromkeys(sorted(spelling.following.get(self.label, ())), _LABEL)
            if self.label not in spelling.labels:
                return kinds
        if has_words and top:
            kinds.setdefault(self.words[self.word][0], _WORD)
        if has_words and len(self.parts) < DEEPEST - 1:
            kinds.setdefault(spelling.open, _OPEN)
        if top == (True,) and (len(self.parts) > 1 or not has_words):
            kinds.setdefault(spelling.close, _CLOSE)
        return kinds

    def _state(self, kind: str, id: int) -> "TreeGuide":
        changed = functools.partial(dataclasses.replace, self)
        if kind == _LABEL:
            return changed(label=(*(self.label or ()), id))
        if kind == _OPEN:
            return changed(parts=(*self.parts[:-1], *(True for _ in self.parts[-1:]), False), label=(), is_begun=True)
        if kind == _CLOSE:
            return changed(parts=self.parts[:-1], label=None)
        if kind == _END:
            return self
        is_last = self.piece + 1 == len(self.words[self.word])
        parts = (*self.parts[:-1], True)
        return changed(
            unwritten=self.unwritten - 1,
            word=self.word + is_last,
            piece=0 if is_last else self.piece + 1,
            parts=parts,
            label=None,
        )

    def tree(self, written: Iterable[int], words: Sequence[str]) -> Tree | None:
        """The tree in what was written from here on; None without words.

        Where it breaks off, open constituents are closed, and missing words are added to the outermost one.
        """
        state, open_ = self, list[tuple[str, list[Tree]]]()
        whole: tuple[str, list[Tree]] = (SENTENCE, [])
        for id in written:
            kind = state._kinds.get(id)
            if kind is None or kind == _END:
                break
            if kind == _OPEN:
                open_.append((SENTENCE, []))
            elif kind == _WORD and not state.piece:
                open_[-1][1].append(Tree(TAG, word=words[state.word]))
            elif kind == _CLOSE:
                whole = _closed(open_)
            state = state.after(id)
            if kind == _LABEL and state.label is not None:
                open_[-1] = (state.spelling.labels.get(state.label, SENTENCE), open_[-1][1])
        while open_:
            whole = _closed(open_)
        label, parts = whole
        count = len(list(Tree(label, tuple(parts)).words()))
        parts = [*parts, *(Tree(TAG, word=word) for word in words[count:])]
        return Tree(label, tuple(parts)) if parts else None


def _closed(open_: list[tuple[str, list[Tree]]]) -> tuple[str, list[Tree]]:
    """The innermost constituent, which becomes a part of the one around it."""
    label, parts = open_.pop()
    if open_ and parts:
        open_[-1][1].append(Tree(label, tuple(parts)))
    return label, parts
