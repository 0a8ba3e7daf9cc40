"""The example texts that come with the package."""

from collections import Counter

import pytest

from bertsmith.tasks.specs.named_tasks import PRESETS, bundled_examples
from bertsmith.tasks.task_data.task_files import read_examples, read_task

ASKED_IN_THE_EXAMPLE = ("Buy these pills", "Win cash prizes", "Dear Mr. Atreides, please find attached...")


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_as_many_texts_of_each_label_and_none_twice(name):
    path = bundled_examples(name)
    result = read_examples(name, path)
    counts = Counter(example.label for example in result.examples)
    assert set(counts) == set(PRESETS[name])
    assert len(set(counts.values())) == 1
    assert 48 <= counts.total() <= 80
    assert result.skipped == ()
    assert len({example.first.lower() for example in result.examples}) == counts.total()
    assert all(example.first == " ".join(example.first.split()) for example in result.examples)


@pytest.mark.parametrize("name", ["spam", "spam4"])
def test_the_mails_of_the_example_are_not_among_those_that_teach(name):
    texts = {example.first for example in read_examples(name, bundled_examples(name)).examples}
    assert texts.isdisjoint(ASKED_IN_THE_EXAMPLE)


@pytest.mark.parametrize("name", PRESETS)
def test_the_first_texts_of_a_preset_have_all_labels(name):
    spec, data = read_task(name, None, None, limit=16)
    assert len(data.train) + len(data.dev) == 16
    assert {example.label for example in (*data.train, *data.dev)} == set(spec.labels)
