"""Bracket scores of trees by evalb's rules."""

import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.metrics.brackets import bracket_counts, bracket_scores, brackets_of, read_tree, right_branching

GOLD = "(TOP (S (NP-SBJ (DT The) (NN cat)) (VP (VBD sat) (PP-LOC (IN on) (NP (DT the) (NN mat)))) (. .)))"


def test_brackets_are_constituents_without_top_functions_and_punctuation():
    assert brackets_of(read_tree(GOLD)) == {
        ("S", 0, 6): 1,
        ("NP", 0, 2): 1,
        ("VP", 2, 6): 1,
        ("PP", 3, 6): 1,
        ("NP", 4, 6): 1,
    }


def test_the_worked_example():
    """The prepositional phrase is attached to the subject: two brackets of five are shared."""
    other = "(S (NP (DT The) (NN cat)) (VP (VBD sat)) (PP (IN on) (NP (DT the) (NN mat))) (. .))"
    shared, predicted, wanted = bracket_counts(read_tree(other), read_tree(GOLD))
    assert (shared, predicted, wanted) == (4, 5, 5)
    assert bracket_scores([read_tree(other)], [read_tree(GOLD)]) == pytest.approx(
        dict.fromkeys(("precision", "recall", "f1"), 0.8)
    )


def test_a_unary_chain_of_one_label_counts_as_often_as_it_has_members():
    tree = read_tree("(NP (NP (NP (NN a) (NN b))))")
    assert brackets_of(tree) == {("NP", 0, 2): 3}
    assert bracket_counts(read_tree("(NP (NN a) (NN b))"), tree) == (1, 1, 3)


def test_particles_and_adverbs_are_one_label():
    assert bracket_counts(read_tree("(VP (VB go) (ADVP (RP on)))"), read_tree("(VP (VB go) (PRT (RP on)))")) == (
        2,
        2,
        2,
    )


def test_empty_elements_and_what_holds_nothing_else_are_left_out():
    tree = read_tree("( (S (NP-SBJ (-NONE- *)) (VP (VB go) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))) )")
    assert str(tree) == "(S (VP (VB go)))"


def test_punctuation_is_what_the_gold_tree_says_it_is():
    gold = read_tree("(S (NP (NN a)) (, ,) (VP (VB b)))")
    assert bracket_counts(read_tree("(S (NP (NN a) (NN ,)) (VP (VB b)))"), gold) == (3, 3, 3)


def test_other_words_and_no_tree_miss_every_bracket():
    gold = read_tree(GOLD)
    assert bracket_counts(read_tree("(S (NP (DT The) (NN dog)))"), gold) == (0, 0, 5)
    assert bracket_scores([None], [gold])["f1"] == 0.0
    assert bracket_scores([gold], [gold]) == dict.fromkeys(("precision", "recall", "f1"), 1.0)


@pytest.mark.parametrize(
    "text", ["(S (NN a)", "(S (NN a)))", "", "a b", "(S (NN a)) (S (NN b))", "(S a (NN b))", "(S)"]
)
def test_what_is_no_tree_is_refused(text):
    with pytest.raises(InputError, match="one tree in brackets"):
        read_tree(text)


def test_right_branching_trees_begin_a_word_later_each_time():
    words = list(read_tree("(S (A a) (B b) (C c))").words())
    assert str(right_branching(words, "X")) == "(X (A a) (X (B b) (C c)))"
    assert str(right_branching(words[:1], "X")) == "(X (A a))"
