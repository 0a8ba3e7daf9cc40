"""How the targets of a task are spelled for the model that writes them, and read back from what it wrote.

Most texts are written as they are. A tree of constituents is written with its words and without parts of speech:
"(S (NP (NNP Ann)) (VP (VBZ reads)))" as "( S ( NP Ann ) ( VP reads ) )". So the decoder sees which word is next, the
words can be copied from the source, and a guide (`tree_guide.py`) leaves only what becomes a tree of all words.

Source: Vinyals et al. (2015), "Grammar as a Foreign Language", section 2, for trees as sequences; there without words.
"""

from collections.abc import Mapping, Sequence

from bertsmith.base.core.errors import ConfigError
from bertsmith.tasks.datasets.examples import SequenceExample
from bertsmith.tasks.encoding.writing import Guide
from bertsmith.tasks.metrics.brackets import Tree, read_tree, read_tree_of
from bertsmith.tasks.specs.task import RIGHT_BRANCHING, WRITTEN
from bertsmith.tasks.specs.tree_guide import CLOSE, OPEN, SENTENCE, TreeGuide, TreeSpelling, pieces_of_words
from bertsmith.text.tokenizers.encoded import Encoded, offsets_of
from bertsmith.text.tokenizers.tokenizer import Tokenizer


class WrittenForm:
    """Texts as they are.

    Attributes:
        unread: settings that have no effect on such texts.
        baselines: the names of the baselines of a task of such texts.
    """

    unread: tuple[str, ...] = ()
    baselines: tuple[str, ...] = WRITTEN

    def check(self, example: SequenceExample) -> None:
        """Refuses targets that cannot be written, or do not fit their source."""

    def require_spelling(self, labels: Sequence[str], tokenizer: Tokenizer) -> None:
        """Refuses to train where the vocabulary cannot spell the texts; `labels` are those of the training."""

    def encoded(self, targets: Sequence[str], tokenizer: Tokenizer) -> Encoded:
        """The pieces that the model writes for each target."""
        return tokenizer.encode_batch(targets)

    def guides(self, sources: Sequence[str], labels: Sequence[str], tokenizer: Tokenizer) -> list[Guide] | None:
        """What may be written for each source; None for any text."""
        return None

    def read_back(self, ids: Sequence[int], source: str, guide: Guide | None, tokenizer: Tokenizer) -> str:
        """The text in what a model wrote for a source, under its guide."""
        return tokenizer.decode(ids)


class Trees(WrittenForm):
    """Trees in brackets over the words of the source, which white space separates."""

    unread = ("min_target_length", "no_repeat_ngram")
    baselines = (RIGHT_BRANCHING,)

    def check(self, example: SequenceExample) -> None:
        """See `WrittenForm`; the tree has the words of the source."""
        for target in example.targets:
            read_tree_of(example.source, target, example.location)

    def require_spelling(self, labels: Sequence[str], tokenizer: Tokenizer) -> None:
        """See `WrittenForm`; brackets and labels are told apart."""
        if TreeSpelling.of(labels, tokenizer).is_ambiguous(labels):
            raise ConfigError(
                expected=f"a vocabulary that spells {OPEN}, {CLOSE} and each label of the trees with other pieces",
                found="some of them with the same, or unknown",
                fix="use a model with a larger vocabulary",
            )

    def encoded(self, targets: Sequence[str], tokenizer: Tokenizer) -> Encoded:
        """See `WrittenForm`."""
        spelled = [_spelled(_constituent(read_tree(target))) for target in targets]
        pieces = tokenizer.encode_repeated_words([part for parts in spelled for part in parts])
        return Encoded(pieces.ids, pieces.offsets[offsets_of([len(parts) for parts in spelled])])

    def guides(self, sources: Sequence[str], labels: Sequence[str], tokenizer: Tokenizer) -> list[Guide] | None:
        """See `WrittenForm`."""
        spelling, words = TreeSpelling.of(labels, tokenizer), [_words(source) for source in sources]
        pieces = iter(pieces_of_words([word for of_source in words for word in of_source], tokenizer))
        return [TreeGuide.of(spelling, [next(pieces) for _ in of_source]) for of_source in words]

    def read_back(self, ids: Sequence[int], source: str, guide: Guide | None, tokenizer: Tokenizer) -> str:
        """See `WrittenForm`; a tree of all words, or "" for a source without words."""
        assert isinstance(guide, TreeGuide)
        return str(guide.tree(ids, _words(source)) or "")


WRITTEN_FORMS: Mapping[str, WrittenForm] = {"parsing": Trees()}  # by the name of the task; for others as they are


def form_of_texts(name: str) -> WrittenForm:
    """The form of the texts of a task."""
    return WRITTEN_FORMS.get(name, WrittenForm())


def _words(source: str) -> list[str]:
    """The words of a source as a tree spells them: brackets by their names in the Treebank.

    >>> _words("a (b)")
    ['a', '-LRB-b-RRB-']
    """
    return source.replace(OPEN, "-LRB-").replace(CLOSE, "-RRB-").split()


def _constituent(tree: Tree) -> Tree:
    """The tree, around a single word a sentence."""
    return tree if tree.word is None else Tree(SENTENCE, (tree,))


def _spelled(tree: Tree) -> list[str]:
    """Brackets, labels and words as they are written."""
    if tree.word is not None:
        return [tree.word]
    return [OPEN, tree.label, *(part for child in tree.children for part in _spelled(child)), CLOSE]
