"""Word sense disambiguation: tables, the three ways, their order, scores, and the commands."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bertsmith
from bertsmith.app.library.disambiguation import write_gloss_pairs
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.inference.search.disambiguation import (
    RIGHT,
    WRONG,
    Disambiguator,
    SenseAnswer,
    labelled_pairs,
    sense_scores,
)
from bertsmith.inference.search.sense_tables import ByWord, Gloss, WordInText, read_glosses, read_words
from bertsmith.inference.search.senses import Occurrence, occurrence_vectors
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.tasks.task_data.task_files import read_examples
from bertsmith.text.tokenizers.normalize import TextRules
from tasks.task_samples import write_base_model
from written_files import file_of_records

RULES = TextRules()
# Any text that is not blank; lone surrogates are not text, and files with NUL are binary.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("\"',;\t\r\n|"), max_size=12
).map("x{} y".format)
EXAMPLES = [
    {"lemma": "rome", "sense": "city", "text": "anna where [[rome]] ?"},
    {"lemma": "rome", "sense": "city", "text": "bert who [[rome]] ."},
    {"lemma": "rome", "sense": "empire", "text": "[[rome]] . oslo . lima"},
]
GLOSSES = [
    {"lemma": "oslo", "pos": "noun", "sense": "oslo-1", "gloss": "anna who ?"},
    {"lemma": "oslo", "pos": "noun", "sense": "oslo-2", "gloss": "where lima ."},
    {"lemma": "oslo", "pos": "verb", "sense": "oslo-3", "gloss": "carl ."},
    {"lemma": "carl", "sense": "carl-1", "gloss": "bert ?"},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    write_base_model(folder, 4)
    return folder


def word(text: str, spelling: str, **values: Any) -> WordInText:
    start = text.index(spelling)
    occurrence = Occurrence(sentence=text, start=start, end=start + len(spelling))
    return WordInText(**{"id": "1", "lemma": spelling, "occurrence": occurrence, **values})


def test_the_place_of_a_word_is_marked_or_counted_or_found(tmp_path: Path) -> None:
    rows = [
        {"lemma": "bank", "text": "the [[Banks]] of a bank", "sense": "a"},
        {"lemma": "bank", "text": "the Banks of a bank", "index": 1, "sense": "a|b", "id": "second"},
        {"lemma": "bank", "text": "the Banks of a bank", "start": 4, "end": 9, "sense": ["a", "b"]},
        {"lemma": "New_York", "text": "in new York .", "pos": "NOUN", "sense": "a"},
    ]
    words = read_words(file_of_records(tmp_path / "words.jsonl", rows), RULES, gold=True)
    places = [each.occurrence.sentence[each.occurrence.start : each.occurrence.end] for each in words]
    assert places == ["Banks", "Banks", "Banks", "new York"]
    assert words[0].occurrence.sentence == "the Banks of a bank"
    assert [each.senses for each in words] == [("a",), ("a", "b"), ("a", "b"), ("a",)]
    assert [each.id for each in words] == ["1", "second", "3", "4"]
    assert (words[3].lemma, words[3].pos) == ("new york", "n")
    (tmp_path / "marked.csv").write_text("text\nthe [[Bank]] .\n", encoding="utf-8")
    assert read_words(tmp_path / "marked.csv", RULES, gold=False)[0].lemma == "bank"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"lemma": "bank", "text": "a bank , a bank", "sense": "a"},
            r"'bank' once in the text .*; found 2 times; mark",
        ),
        ({"lemma": "bank", "text": "a tree", "sense": "a"}, "found no such word"),
        (
            {"lemma": "bank", "text": "in [[1]] a bank", "sense": "a", "index": 3},
            r"which word it is in line 2 .*\[\[1\]\]' and a column index",
        ),
        ({"lemma": "", "text": "a tree", "sense": "a"}, "a word in .*; found none; add a column lemma"),
        ({"lemma": "bank", "text": "a bank", "sense": ""}, "a sense in line 2 .*; found none"),
        ({"lemma": "bank", "text": "a bank", "sense": "a", "index": 2}, "an index below 2"),
        ({"lemma": "bank", "text": "a bank", "sense": "a", "index": -1}, "a whole number from 0 as index"),
        ({"lemma": "bank", "text": "a bank", "sense": "a", "start": 2, "end": 7}, "within 6 characters"),
        ({"lemma": "bank", "text": "a bank", "sense": "a", "start": 1, "end": 2}, "a word at its start and end"),
    ],
)
def test_a_row_without_word_place_or_sense_is_named(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    first = {"lemma": "tree", "text": "a tree", "sense": "a"}
    with pytest.raises(InputError, match=message) as caught:
        read_words(file_of_records(tmp_path / "words.jsonl", [first, row]), RULES, gold=True)
    assert "line 2" in str(caught.value)


def test_glosses_need_their_columns_and_cells_and_each_sense_once(tmp_path: Path) -> None:
    assert [gloss.pos for gloss in read_glosses(file_of_records(tmp_path / "good.jsonl", GLOSSES))] == [
        "n",
        "n",
        "v",
        "",
    ]
    for rows, message in (
        ([{"lemma": "oslo", "sense": "a"}], "the column 'gloss'"),
        ([{"lemma": "oslo", "sense": "a", "gloss": ""}], "a lemma, a sense and a gloss .*; found an empty cell"),
        ([GLOSSES[0], GLOSSES[0]], "each sense of a word once in .*line 2"),
    ):
        with pytest.raises(InputError, match=message):
            read_glosses(file_of_records(tmp_path / "bad.jsonl", rows))


def test_a_part_of_speech_narrows_the_senses_where_both_have_one() -> None:
    glosses = [
        Gloss(lemma="oslo", pos="n", sense="a", text="a"),
        Gloss(lemma="oslo", pos="v", sense="b", text="b"),
        Gloss(lemma="oslo", sense="c", text="c"),
    ]
    of = ByWord(glosses).of
    assert of(word("oslo", "oslo", pos="n")) == [0, 2]
    assert of(word("oslo", "oslo")) == [0, 1, 2]
    assert of(word("lima", "lima")) == []


def test_glosses_are_for_words_without_examples_and_unknown_words_are_counted(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"lemma": "rome", "text": EXAMPLES[2]["text"]},
        {"lemma": "oslo", "pos": "v", "text": "who [[oslo]] ."},
        {"lemma": "oslo", "pos": "n", "text": "where [[oslo]] lima ."},
        {"lemma": "lima", "text": "who lima ."},
    ]
    request = {
        "model": model,
        "examples": file_of_records(tmp_path / "examples.jsonl", EXAMPLES),
        "glosses": file_of_records(tmp_path / "glosses.jsonl", GLOSSES),
        "device": "cpu",
    }
    answers = bertsmith.disambiguate(file_of_records(tmp_path / "words.jsonl", rows), **request).answers
    assert [(answer.sense, answer.by, answer.first) for answer in answers[:2]] == [
        ("empire", "examples", "city"),
        ("oslo-3", "glosses", "oslo-3"),
    ]
    assert answers[0].scores["empire"] == pytest.approx(1, abs=1e-5)
    assert answers[2].scores.keys() == {"oslo-1", "oslo-2"}
    assert (answers[3].sense, answers[3].by, dict(answers[3].scores)) == (None, "", {})
    assert "no sense is known for 1 row: lima" in capsys.readouterr().err
    for number, row in enumerate(rows):
        (alone,) = bertsmith.disambiguate(file_of_records(tmp_path / "alone.jsonl", [row]), **request).answers
        assert alone.sense == answers[number].sense
        assert alone.scores == pytest.approx(answers[number].scores, abs=1e-5)
    first = bertsmith.disambiguate(tmp_path / "words.jsonl", **request, prior=1000.0).answers[2]
    assert (first.sense, first.first) == ("oslo-1", "oslo-1")


def test_labelled_examples_that_are_scored_are_counted(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_of_records(tmp_path / "words.jsonl", EXAMPLES)
    scores = bertsmith.disambiguate(path, model=model, examples=path, evaluate=True, device="cpu").scores
    assert scores is not None
    assert "the score is too high: 3 of 3 words" in capsys.readouterr().err


def test_examples_of_some_senses_decide_together_with_the_glosses_of_all(model: Path, tmp_path: Path) -> None:
    glosses = [
        {"lemma": "rome", "sense": sense, "gloss": text}
        for sense, text in (("city", "anna who ?"), ("empire", "where lima ."), ("god", "carl ."))
    ]
    path = file_of_records(tmp_path / "words.jsonl", [{"lemma": "rome", "text": "who rome oslo ?"}])
    known = {
        "examples": file_of_records(tmp_path / "examples.jsonl", EXAMPLES),
        "glosses": file_of_records(tmp_path / "glosses.jsonl", glosses),
    }
    (both,), (by_examples,), (by_glosses,) = (
        bertsmith.disambiguate(path, model=model, device="cpu", **settings).answers
        for settings in (known, {"examples": known["examples"]}, {"glosses": known["glosses"]})
    )
    assert (both.by, both.first) == ("glosses with examples", "city")
    nearness, fits = dict(by_examples.scores), dict(by_glosses.scores)
    means = sum(nearness.values()) / 2, sum(fits.values()) / 3
    expected = {sense: fits[sense] - means[1] + nearness.get(sense, means[0]) - means[0] for sense in fits}
    assert both.scores == pytest.approx(expected, abs=1e-5)
    assert both.sense == max(expected, key=expected.__getitem__)
    file_of_records(known["glosses"], glosses[:2])  # now every sense has an example
    (answer,) = bertsmith.disambiguate(path, model=model, device="cpu", **known).answers
    assert (answer.by, answer.scores) == ("examples", pytest.approx(by_examples.scores, abs=1e-5))
    file_of_records(known["glosses"], glosses[2:])  # senses without a gloss stay
    (answer,) = bertsmith.disambiguate(path, model=model, device="cpu", **known).answers
    assert answer.scores.keys() == {"city", "empire", "god"}


def test_a_centroid_is_the_mean_of_the_vectors_of_a_sense(model: Path, tmp_path: Path) -> None:
    asked = word("who rome oslo ?", "rome")
    path = file_of_records(tmp_path / "words.jsonl", [{"lemma": "rome", "text": asked.occurrence.sentence}])
    examples = file_of_records(tmp_path / "examples.jsonl", EXAMPLES)
    (answer,) = bertsmith.disambiguate(path, model=model, examples=examples, device="cpu").answers
    words = [asked, *read_words(examples, RULES, gold=True)]
    encoder = load_frozen_encoder(model, device="cpu")
    mine, *vectors = unit(occurrence_vectors(encoder, [each.occurrence for each in words]).astype(np.float64))
    centers = {"city": unit((vectors[0] + vectors[1])[None])[0], "empire": vectors[2]}
    expected = {sense: float(center @ mine) for sense, center in centers.items()}
    assert answer.scores == pytest.approx(expected, abs=1e-5)
    assert answer.sense == max(expected, key=expected.__getitem__)
    (answer,) = bertsmith.disambiguate(path, model=model, examples=examples, method="nearest", device="cpu").answers
    expected["city"] = max(float(vector @ mine) for vector in vectors[:2])
    assert answer.scores == pytest.approx(expected, abs=1e-5)


def test_a_model_of_other_pairs_is_refused() -> None:
    with pytest.raises(ConfigError, match="with the labels no and yes; found one whose last label is 'neutral'"):
        Disambiguator(None, scorer=SimpleNamespace(label="neutral"))
    for label in ("yes", "relevant", ""):
        assert Disambiguator(None, scorer=SimpleNamespace(label=label)).scorer


def test_scores_count_words_without_an_answer_as_missed() -> None:
    def answered(sense: str | None, first: str | None, *gold: str) -> SenseAnswer:
        scores = {} if sense is None else {sense: 1.0, str(first): 0.5}
        of = word("oslo", "oslo", senses=gold)
        return SenseAnswer(word=of, sense=sense, by="glosses" if sense else "", scores=scores, first=first)

    answers = [
        answered("a", "a", "a"),
        answered("b", "a", "b", "c"),
        answered("b", "a", "c"),
        answered(None, None, "a"),
    ]
    scores = sense_scores(answers)
    assert (scores.words, scores.answered) == (4, 3)
    assert scores.f1 == pytest.approx(2 * 2 / (3 + 4))  # precision 2/3, recall 2/4
    assert scores.f1_of_first == pytest.approx(2 * 1 / (3 + 4))
    assert scores.reachable == 0.5
    assert scores.by == {"glosses": (3, pytest.approx(2 / 3), pytest.approx(1 / 3))}
    assert scores.test.difference == pytest.approx(2 / 7)


def test_pairs_have_the_word_in_quotes_and_every_gloss_of_it() -> None:
    glosses = [Gloss(lemma="oslo", sense=sense, text=f"gloss {sense}") for sense in "ab"]
    words = [word("who oslo ?", "oslo", senses=("b",)), word("oslo", "oslo", senses=("z",))]
    pairs, without = labelled_pairs(words, glosses)
    assert pairs == [('who "oslo" ?', "oslo: gloss a", "no"), ('who "oslo" ?', "oslo: gloss b", "yes")]
    assert without == 1


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(TEXTS, TEXTS, st.sampled_from([RIGHT, WRONG])), min_size=2, max_size=5, unique_by=lambda row: row[:2]
    )
)
def test_a_table_of_pairs_is_read_back_by_finetune(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    write_gloss_pairs(path, [("a", "b", RIGHT), ("a", "c", WRONG), *rows])
    examples = read_examples("classification", path, training=True).examples[2:]
    assert [(example.first, example.second, example.label) for example in examples] == rows


def test_a_column_that_no_option_names_has_to_be_in_the_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the column 'text' .*; add it, or rename the column that is the text"):
        read_words(file_of_records(tmp_path / "words.jsonl", [{"txt": "a bank", "lemma": "bank"}]), RULES, gold=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model": "absent", "glosses": "absent", "pair_model": "absent"},
            "`model` next to `pair_model` needs `examples`; leave `model` out",
        ),
        ({"model": "absent"}, "`examples`, `glosses` or both; found neither"),
        ({"glosses": "absent"}, "`model` for the vectors"),
        ({"examples": "absent", "glosses": "absent", "pair_model": "absent"}, "`model` for the vectors"),
        ({"model": "absent", "examples": "absent", "prior": 0.1}, "`prior` needs `glosses`"),
        ({"model": "absent", "glosses": "absent", "method": "nearest"}, "`method` needs `examples`"),
        ({"model": "absent", "glosses": "absent", "layers": "first"}, "`layers` needs `examples`"),
        ({"model": "absent", "examples": "absent", "pair_model": "absent"}, "`pair_model` needs `glosses`"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_file_is_read(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bertsmith.disambiguate("absent.csv", **settings)
