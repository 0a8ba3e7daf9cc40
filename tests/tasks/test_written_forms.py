"""Trees as the model writes them: the same tree comes back, and whatever was written becomes one of all words."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.baselines.written import right_branching_trees
from bertsmith.tasks.datasets.examples import SequenceExample
from bertsmith.tasks.metrics.brackets import bracket_counts, read_tree
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.specs.written_forms import Trees, WrittenForm, form_of_texts, labels_of_trees

GOLD = "( (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sees) (NP (PRP it)) (PP (IN in) (NP (NNP Oslo)))) (. .)) )"
SOURCE = "The cat sees it in Oslo ."
LABELS = ("NP", "PP", "S", "VP")


def example(target: str = GOLD, source: str = SOURCE) -> SequenceExample:
    return SequenceExample(id="0", source=source, targets=(target,), location="line 1 of 'trees'")


def test_a_tree_is_written_without_words_and_comes_back_with_its_brackets() -> None:
    form = form_of_texts("parsing")
    written = form.as_written(GOLD)
    assert written == "( S ( NP . . ) ( VP . ( NP . ) ( PP . ( NP . ) ) ) . )"
    assert labels_of_trees([example()]) == LABELS
    for spelled in (written, written.lower(), written.lower().replace(" ", ""), written.replace("( ", "(")):
        back = read_tree(form.read_back(spelled, SOURCE, LABELS))
        assert bracket_counts(back, read_tree(GOLD)) == (6, 6, 6)
    assert type(form_of_texts("summarization")) is WrittenForm


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", "(S (XX a) (XX b))"),
        ("( np . . . . )", "(NP (XX a) (XX b))"),
        ("( np . ) ) ) ( vp .", "(S (NP (XX a)) (VP (XX b)))"),
        (". ( vp . )", "(S (XX a) (VP (XX b)))"),
        ("( ( . ( ) . ", "(S (S (XX a) (XX b)))"),
        ("np np", "(S (XX a) (XX b))"),
        ("( ADVP . )", "(ADVP (XX a) (XX b))"),
    ],
)
def test_what_is_no_tree_becomes_one_of_all_words(written: str, read: str) -> None:
    assert Trees().read_back(written, "a b", LABELS) == read


@given(st.lists(st.sampled_from(["(", ")", ".", "np", "s", "x y"]), max_size=30), st.integers(1, 8))
def test_every_tree_has_the_words_of_its_source_in_order(tokens: list[str], count: int) -> None:
    words = [f"w{number}" for number in range(count)]
    tree = read_tree(Trees().read_back(" ".join(tokens), " ".join(words), LABELS))
    assert [leaf.word for leaf in tree.words()] == words


def test_any_tree_comes_back() -> None:
    draw = generator(0, "trees")

    def grown(words: list[str]) -> str:
        label = LABELS[int(draw.integers(len(LABELS)))]
        if len(words) == 1:
            return f"(NN {words[0]})" if draw.random() < 0.5 else f"({label} (NN {words[0]}))"
        cut = int(draw.integers(1, len(words)))
        return f"({label} {grown(words[:cut])} {grown(words[cut:])})"

    for count in range(2, 30):
        words = [f"w{number}" for number in range(count)]
        gold = read_tree(grown(words))
        back = read_tree(Trees().read_back(Trees().as_written(str(gold)).lower(), " ".join(words), LABELS))
        shared, predicted, wanted = bracket_counts(back, gold)
        assert shared == predicted == wanted


def test_trees_that_are_too_deep_to_walk_through_are_refused_and_never_written() -> None:
    with pytest.raises(InputError, match="more than 150 brackets around a word"):
        read_tree("(S " * 2000 + "(NN a)" + ")" * 2000)
    deep = read_tree(Trees().read_back("( s " * 2000 + ". .", "a b", LABELS))
    assert [leaf.word for leaf in deep.words()] == ["a", "b"]
    words = " ".join(f"w{number}" for number in range(2000))
    (baseline,) = right_branching_trees([("a", ["(S (NN a))"])], [words])
    assert [leaf.word for leaf in read_tree(baseline).words()] == words.split()


@pytest.mark.parametrize(
    ("target", "source", "message"),
    [
        ("(S (NN a)", "a", "a tree in brackets in line 1 of 'trees'; found 1 \\( without \\)"),
        ("(S (NN a) (NN b))", "a  c", "the words of the tree as the source, .* in line 1 of 'trees'; found 'a c'"),
    ],
)
def test_a_tree_that_does_not_fit_its_source_is_refused(target: str, source: str, message: str) -> None:
    task = task_for(spec_for("parsing", [example()]))
    with pytest.raises(InputError, match=message):
        task.check([example(target, source)], gold=True)
    task.check([dataclasses.replace(example(target, source), targets=())], gold=False)
