"""Entities: their scores against the word-by-word rules of conlleval, and the tagging schemes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.metrics.entities import (
    SCHEMES,
    convert_tags,
    entity_scores,
    entity_spans,
    scheme_errors,
    scheme_of,
)
from oracles import conlleval_oracle

LETTERS = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES"}
KINDS = ("PER", "LOC", "a-b", "")


def tags_of(letters: str, brackets: str = "") -> list[str]:
    kinds = [f"{letter}-{kind}" if kind else letter for letter in letters for kind in KINDS]
    return ["O", *kinds, *(f"{bracket}-{kind}" for bracket in brackets for kind in KINDS if kind)]


def pairs_of_sentences(tags: list[str]) -> st.SearchStrategy[list[list[tuple[str, str]]]]:
    tag = st.sampled_from(tags)
    return st.lists(st.lists(st.tuples(tag, tag) | tag.map(lambda tag: (tag, tag)), max_size=9), min_size=1, max_size=4)


def sides(pairs: list[list[tuple[str, str]]]) -> tuple[list[list[str]], list[list[str]]]:
    return [[gold for gold, _ in sentence] for sentence in pairs], [[tag for _, tag in sentence] for sentence in pairs]


def well_formed(scheme: str) -> st.SearchStrategy[list[str]]:
    """Tags written from entities and gaps."""
    entity = st.tuples(st.sampled_from(KINDS), st.integers(1, 4))
    gap = st.just(("O", 1))

    def write(parts: list[tuple[str, int]]) -> list[str]:
        tags: list[str] = []
        before = "O"
        for kind, length in parts:
            letters = ["I"] * length
            if scheme != "IOB1" or kind == before:
                letters[0] = "B"
            if scheme == "IOBES":
                letters[-1] = "S" if length == 1 else "E"
            tags += ["O"] if kind == "O" else [f"{letter}-{kind}" if kind else letter for letter in letters]
            before = kind
        return tags

    return st.lists(entity | gap, max_size=8).map(write)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_scores_equal_the_rules_of_conlleval_for_any_tags(scheme: str, data: st.DataObject) -> None:
    gold, predicted = sides(data.draw(pairs_of_sentences(tags_of(LETTERS[scheme]))))
    if any(gold):
        assert entity_scores(gold, predicted, scheme) == pytest.approx(conlleval_oracle.scores(gold, predicted))


def clear_brackets(tags: list[str]) -> bool:
    """Whether no bracket is next to an open entity of its own type, which conlleval counts twice or not at all."""
    for before, now in itertools.pairwise(map(conlleval_oracle.split, tags)):
        same = before[1] == now[1]
        if same and ((before[0] in "BI" and now[0] in "[]") or (before[0] in "[]" and now[0] in "IE")):
            return False
    return True


@given(pairs_of_sentences(tags_of("BIES", "[]")))
def test_brackets_are_entities_of_one_word_as_in_conlleval(pairs: list[list[tuple[str, str]]]) -> None:
    gold, predicted = sides([pair for pair in pairs if all(map(clear_brackets, sides([pair])[0] + sides([pair])[1]))])
    if any(gold):
        assert entity_scores(gold, predicted, "IOBES") == pytest.approx(conlleval_oracle.scores(gold, predicted))


@pytest.mark.parametrize(
    ("tags", "scheme", "spans"),
    [
        ("I-PER I-PER B-PER O", "IOB1", [("PER", 0, 2), ("PER", 2, 3)]),
        ("B-PER I-PER I-LOC B-LOC", "IOB2", [("PER", 0, 2), ("LOC", 2, 3), ("LOC", 3, 4)]),
        ("S-PER B-LOC I-LOC E-LOC S-LOC", "IOBES", [("PER", 0, 1), ("LOC", 1, 4), ("LOC", 4, 5)]),
        ("E-PER E-PER I-PER O B-PER", "IOBES", [("PER", 0, 1), ("PER", 1, 2), ("PER", 2, 3), ("PER", 4, 5)]),
        ("[-PER ]-PER O", "IOBES", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B I O I", "IOB2", [("", 0, 2), ("", 3, 4)]),
        ("B-Entity-x I-Entity-x", "IOB2", [("Entity-x", 0, 2)]),
        ("O O", "IOB2", []),
        ("", "IOB2", []),
    ],
)
def test_entities_are_found(tags: str, scheme: str, spans: list[tuple[str, int, int]]) -> None:
    assert entity_spans(tags.split(), scheme) == spans


def test_scores_computed_by_hand() -> None:
    gold = ["B-PER I-PER O B-LOC".split(), "B-LOC O".split()]
    predicted = ["B-PER I-PER O B-PER".split(), "B-LOC I-LOC".split()]
    assert entity_scores(gold, predicted, "IOB2") == pytest.approx(
        {
            "precision": 1 / 3,
            "recall": 1 / 3,
            "f1": 1 / 3,
            "accuracy": 4 / 6,
            "LOC_precision": 0.0,
            "LOC_recall": 0.0,
            "LOC_f1": 0.0,
            "PER_precision": 1 / 2,
            "PER_recall": 1.0,
            "PER_f1": 2 / 3,
        }
    )


def test_an_entity_does_not_continue_in_the_next_sentence() -> None:
    result = entity_scores([["B-PER"], ["I-PER"]], [["B-PER"], ["B-PER"]], "IOB2")
    assert (result["f1"], result["accuracy"]) == (1.0, 0.5)


def test_sentences_without_entities_score_zero_except_for_the_tags() -> None:
    nothing = {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert entity_scores([["O", "O"], []], [["O", "O"], []], "IOB1") == nothing | {"accuracy": 1.0}


@pytest.mark.parametrize(("source", "target"), list(itertools.product(SCHEMES, SCHEMES)))
@given(data=st.data())
def test_conversion_keeps_the_entities_and_is_reversible(source: str, target: str, data: st.DataObject) -> None:
    tags = data.draw(well_formed(source))
    converted = convert_tags(tags, source, target)
    assert entity_spans(converted, target) == entity_spans(tags, source)
    assert scheme_errors(converted, target) == []
    assert convert_tags(converted, target, source) == tags


@pytest.mark.parametrize("scheme", SCHEMES)
@given(data=st.data())
def test_invalid_tags_are_fixed_without_moving_an_entity(scheme: str, data: st.DataObject) -> None:
    tags = data.draw(st.lists(st.sampled_from(tags_of(LETTERS[scheme])), max_size=9))
    fixed = convert_tags(tags, scheme, scheme)
    assert entity_spans(fixed, scheme) == entity_spans(tags, scheme)
    assert [position for position, _ in scheme_errors(tags, scheme)] == [
        position for position, (tag, right) in enumerate(zip(tags, fixed, strict=True)) if tag != right
    ]


@pytest.mark.parametrize(
    ("tags", "scheme", "positions"),
    [
        ("B-PER I-PER O", "IOB2", []),
        ("I-PER I-LOC B-LOC I-LOC", "IOB2", [0, 1]),
        ("B-PER I-PER B-PER B-LOC", "IOB1", [0, 3]),
        ("B-PER O I-PER E-PER", "IOBES", [0, 2]),
        ("X-PER O-PER PER B-PER", "IOB2", [0, 1, 2]),
        ("E-PER", "IOB2", [0]),
    ],
)
def test_scheme_errors_are_found(tags: str, scheme: str, positions: list[int]) -> None:
    assert [position for position, _ in scheme_errors(tags.split(), scheme)] == positions


def test_scheme_errors_say_what_is_wrong() -> None:
    assert scheme_errors(["I-PER", "X"], "IOB2") == [
        (0, "expected 'B-PER'; found 'I-PER'"),
        (1, "expected a tag of IOB2; found 'X'"),
    ]


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["I-PER I-PER O", "I-LOC B-LOC"], "IOB1"),
        (["B-PER I-PER O", "B-LOC B-LOC"], "IOB2"),
        (["B-PER I-PER O"] * 3 + ["I-PER"], "IOB2"),
        (["B-PER E-PER O", "O"], "IOBES"),
        (["S-PER"], "IOBES"),
        (["O O"], "IOB2"),
        ([""], "IOB2"),
        (["NN VB", "O"], ""),
        (["-LRB- NN"], ""),
    ],
)
def test_the_scheme_of_a_file_is_detected(sentences: list[str], scheme: str) -> None:
    assert scheme_of([tags.split() for tags in sentences]) == scheme


@given(st.lists(well_formed("IOB1"), min_size=1, max_size=5))
def test_well_formed_tags_have_no_errors_in_the_detected_scheme(sentences: list[list[str]]) -> None:
    scheme = scheme_of(sentences)
    assert [scheme_errors(tags, scheme) for tags in sentences] == [[] for _ in sentences]


def test_input_that_cannot_be_scored_is_refused() -> None:
    with pytest.raises(InputError, match=r"tags of IOB2: O, B-PER, I-PER; found 'S-PER' for word 1"):
        entity_spans(["O", "S-PER"], "IOB2")
    with pytest.raises(ConfigError, match="unknown scheme 'BIO'"):
        entity_spans([], "BIO")
    with pytest.raises(ConfigError, match="unknown scheme 'IOB3'; did you mean"):
        convert_tags([], "IOB1", "IOB3")
    with pytest.raises(InputError, match="2 tags for sentence 1; found 1"):
        entity_scores([["O"], ["O", "O"]], [["O"], ["O"]], "IOB2")
    for gold, predicted in (([["O"]], []), ([], []), ([[]], [[]])):
        with pytest.raises(InputError, match="as many predicted sentences as gold sentences, with words"):
            entity_scores(gold, predicted, "IOB2")
