"""The benchmarks of nested expressions and of units of text: the values they ask for, the cost of an unknown word."""

import argparse
import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest

from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

BENCHMARKS = str(Path(__file__).parent.parent / "benchmarks")
COUNTS = {"aba": 6, "abb": 3, "c": 1}


@pytest.fixture
def nested(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("sequence_layers")


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("word_units")


def test_the_value_at_each_operator_is_that_of_the_expression_which_it_ends(nested: ModuleType) -> None:
    batch, places, gold = nested._nested(seed=1, step=0)
    tokens = batch.token_ids.reshape(batch.num_rows, -1).tolist()
    values, heights = [], []
    for row in tokens:
        stack: list[tuple[int, int]] = []
        for token in row:
            if token < nested.SYMBOLS:
                stack.append((token, 0))
                continue
            (right, one_height), (left, other_height) = stack.pop(), stack.pop()
            value = [left & right, left | right, left ^ right][token - nested.SYMBOLS]
            stack.append((value, 1 + max(one_height, other_height)))
            values.append(value)
            heights.append(stack[-1][1])
        assert len(stack) == 1, "one expression a row"
    assert gold.tolist() == values
    assert heights == nested._heights() * batch.num_rows
    assert [token for row in tokens for token in row if token >= nested.SYMBOLS] == (batch.token_ids[places].tolist())
    assert {*values} == {0, 1}


def test_a_unit_has_the_pieces_of_its_kind(units: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "LEAST", 2)
    options = argparse.Namespace(words=2, pieces=20)
    words = units.vocabulary_of("words", COUNTS, options).pieces
    characters = units.vocabulary_of("characters", COUNTS, options).pieces
    assert list(words[-2:]) == ["aba", "abb"]
    assert list(characters[-4:]) == ["a", "b", "##a", "##b"], "c is too rare"


def test_an_unknown_word_costs_the_bits_of_its_letters_and_of_its_end(units: ModuleType) -> None:
    tokenizer = WordPieceTokenizer(units.vocabulary_of("words", COUNTS, argparse.Namespace(words=2)), TextRules())
    total = sum(len(word) * count for word, count in COUNTS.items()) + sum(COUNTS.values())
    bits = units.bits_of_spelling(tokenizer, COUNTS, ["aba abb aba", "c c"])
    assert bits == pytest.approx(-2 * (math.log2(1 / total) + math.log2(10 / total)))
