"""Tagging: every word is read once, in the window where it has the most context, and no label is ever cut."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.tasks.datasets.examples import TaggedExample
from bertsmith.tasks.datasets.marked_texts import words_of
from bertsmith.tasks.encoding.units import NO_LABEL, EncodedExamples, micro_batches
from bertsmith.tasks.specs.predictions import Entity, TagsPrediction
from bertsmith.tasks.specs.tagging import TaggingTask
from bertsmith.tasks.specs.task import TaskSettings, TaskSpec
from bertsmith.tasks.task_data import task_files
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from model.examples import small_config

LETTERS = "abcdefghij"
TOKENIZER = WordPieceTokenizer(
    Vocabulary([*SPECIAL_PIECES, *LETTERS, *(f"##{letter}" for letter in LETTERS), ",", '"'])
)
CLS, SEP, UNK = TOKENIZER.vocabulary.cls_id, TOKENIZER.vocabulary.sep_id, TOKENIZER.vocabulary.unk_id
LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def task(scheme: str = "IOB2", labels: tuple[str, ...] = LABELS, **settings: object) -> TaggingTask:
    spec = TaskSpec(kind="tagging", name="names", labels=labels, scheme=scheme, settings=TaskSettings(**settings))
    return TaggingTask(spec)


def sentence(words: str, tags: str | None = None, document: int = 0) -> TaggedExample:
    return TaggedExample(
        id="0",
        words=tuple(words.split()),
        tags=None if tags is None else tuple(tags.split()),
        document=document,
        location="names.conll, line 7",
    )


def numbered(piece_counts: list[list[int]], documents: list[int]) -> list[TaggedExample]:
    """Sentences whose words have that many pieces each, with tags that differ from word to word."""
    letters, tags = itertools.cycle(LETTERS), itertools.cycle(LABELS)
    return [
        TaggedExample(
            id=str(number),
            words=tuple("".join(next(letters) for _ in range(count)) for count in counts),
            tags=tuple(next(tags) for _ in counts),
            document=document,
            location=f"sentence {number}",
        )
        for number, (counts, document) in enumerate(zip(piece_counts, documents, strict=True))
    ]


def pieces(*words: str) -> list[int]:
    return [id for word in words for id in TOKENIZER.encode(word).tolist()]


def read_words(features: EncodedExamples) -> list[tuple[int, int]]:
    """(row, position in the row) of every position that is read."""
    rows = np.searchsorted(features.rows.offsets, features.read, side="right") - 1
    return list(zip(rows.tolist(), (features.read - features.rows.offsets[rows]).tolist(), strict=True))


# Words of one or two pieces mostly, sometimes longer than a row.
piece_counts = st.lists(st.lists(st.sampled_from([1, 1, 1, 2, 3, 20]), max_size=40), max_size=6)
max_lengths = st.integers(3, 30)
strides = st.integers(1, 40)


@given(piece_counts, max_lengths, strides, st.booleans(), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_every_word_is_read_once_at_its_first_piece_and_keeps_its_label(
    counts: list[list[int]], max_length: int, stride: int, context: bool, documents: list[int]
) -> None:
    sentences = numbered(counts, sorted(documents)[: len(counts)])
    tagging = task(max_length=max_length, stride=stride, document_context=context)
    features = tagging.encode(sentences, TOKENIZER)
    words = [(number, word) for number, example in enumerate(sentences) for word in example.words]
    read = read_words(features)
    assert len(read) == len(words)
    for (row, position), (number, word) in zip(read, words, strict=True):
        tokens = features.rows.row(row)[0].tolist()
        assert tokens[position] == pieces(word)[0]
        assert features.example_of_row[row] == number
    if words:
        gold = [tag for example in sentences for tag in example.tags]
        assert [LABELS[target] for target in features.targets.tolist()] == gold
        assert features.rows.lengths.max() <= max_length
        assert features.read_per_row.min() >= 1
    assert np.all(np.diff(features.read) > 0)
    assert features.rows.cut_tokens == 0
    assert set(features.rows_per_unit.tolist()) <= {1}


def looped_windows(length: int, room: int, stride: int) -> list[tuple[int, int]]:
    """(begin, end) of full windows over one sentence, found one after another."""
    if length <= room:
        return [(0, length)]
    result, begin = [], 0
    while begin + room < length:
        result.append((begin, begin + room))
        begin += max(1, min(stride, room // 2))
    return [*result, (length - room, length)]


@given(st.lists(st.sampled_from([1, 1, 2, 4]), min_size=1, max_size=60), max_lengths, strides)
def test_a_word_is_read_where_it_has_the_most_context(counts: list[int], max_length: int, stride: int) -> None:
    (example,) = numbered([counts], [0])
    features = task(max_length=max_length, stride=stride).encode([example], TOKENIZER)
    windows = looped_windows(sum(counts), max_length - 2, stride)
    expected = []
    for position in itertools.accumulate(counts[:-1], initial=0):
        context = [
            min(position - begin, end - 1 - position) if begin <= position < end else -1 for begin, end in windows
        ]
        begin, end = windows[context.index(max(context))]
        expected.append(([CLS, *pieces(*example.words)[begin:end], SEP], position - begin + 1))
    result = [(features.rows.row(row)[0].tolist(), position) for row, position in read_words(features)]
    assert result == expected


def test_a_sentence_of_exactly_max_length_is_one_row_and_one_piece_more_makes_two() -> None:
    fits, longer = sentence("a b c d e f g h"), sentence("a b c d e f g hi")
    features = task(max_length=10).encode([fits, longer], TOKENIZER)
    assert features.example_of_row.tolist() == [0, 1, 1]
    assert features.rows.lengths.tolist() == [10, 10, 10]
    assert features.rows.row(0)[0].tolist() == [CLS, *pieces(*fits.words), SEP]
    assert features.rows.row(2)[0].tolist() == [CLS, *pieces(*longer.words)[1:], SEP]
    assert features.read_per_row.tolist() == [8, 5, 3]


def test_a_window_inside_one_long_word_is_dropped() -> None:
    features = task(max_length=6).encode([sentence("a " + "b" * 30 + " c")], TOKENIZER)
    assert [features.rows.row(row)[0].tolist()[position] for row, position in read_words(features)] == pieces(
        "a", "b", "c"
    )
    assert len(features) == 2


def test_a_sentence_without_words_has_no_row_and_one_word_has_one() -> None:
    features = task().encode([sentence(""), sentence("ab"), sentence("")], TOKENIZER)
    assert features.rows.token_ids.tolist() == [CLS, *pieces("ab"), SEP]
    assert (features.example_of_row.tolist(), features.read.tolist()) == ([1], [1])
    logits = np.zeros((1, len(LABELS)), np.float32)
    predictions = task().decode([sentence(""), sentence("ab"), sentence("")], features, logits, TOKENIZER)
    assert [prediction.tags for prediction in predictions] == [(), ("O",), ()]


@pytest.mark.parametrize("context", [False, True])
def test_without_sentences_there_are_no_units(context: bool) -> None:
    features = task(document_context=context).encode([], TOKENIZER)
    assert (len(features), features.num_read, features.targets) == (0, 0, None)
    assert task().decode([], features, np.zeros((0, len(LABELS)), np.float32), TOKENIZER) == []


def test_a_word_without_pieces_is_read_as_unknown() -> None:
    example = TaggedExample(id="0", words=("a", "\x01\x02", "\u200b", "b"), tags=("O", "B-LOC", "I-LOC", "O"))
    features = task().encode([example], TOKENIZER)
    assert features.rows.token_ids.tolist() == [CLS, *pieces("a"), UNK, UNK, *pieces("b"), SEP]
    assert features.targets.tolist() == [0, 1, 2, 0]


def test_special_pieces_in_a_text_are_ordinary_words() -> None:
    features = task().encode([sentence("[SEP] a")], TOKENIZER)
    assert features.rows.token_ids[1:-1].tolist() == [UNK, UNK, UNK, *pieces("a")]
    assert features.read.tolist() == [1, 4]


def test_the_words_around_a_sentence_fill_its_row_equally_from_both_sides() -> None:
    document = [sentence("a b c"), sentence("d e"), sentence("f g h i j")]
    features = task(max_length=8, document_context=True).encode(document, TOKENIZER)
    rows = [features.rows.row(row)[0].tolist() for row in range(3)]
    assert rows == [[CLS, *pieces(*words), SEP] for words in ("abcdef", "bcdefg", "efghij")]
    assert [position for _, position in read_words(features)] == [1, 2, 3, 3, 4, 2, 3, 4, 5, 6]
    assert features.rows.segment_ids.tolist() == [0] * 24


def test_context_ends_at_the_document_and_consists_of_whole_words() -> None:
    many = [sentence("a b", document=0), sentence("cd", document=1), sentence("ef gh", document=1),
            sentence("i", document=2), sentence("j", document=1)]  # fmt: skip
    features = task(max_length=7, document_context=True).encode(many, TOKENIZER)
    rows = [features.rows.row(row)[0].tolist() for row in range(len(many))]
    expected = [["a", "b"], ["cd", "ef"], ["ef", "gh"], ["i"], ["j"]]
    assert rows == [[CLS, *pieces(*words), SEP] for words in expected]


def fitting(words: list[str], most: int) -> list[str]:
    """The first words that together have at most that many pieces."""
    taken: list[str] = []
    for word in words:
        if len(pieces(*taken, word)) > most:
            break
        taken.append(word)
    return taken


@given(piece_counts, max_lengths, st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_rows_with_context_are_those_of_a_plain_loop(
    counts: list[list[int]], max_length: int, documents: list[int]
) -> None:
    sentences = numbered(counts, sorted(documents)[: len(counts)])
    alone = task(max_length=max_length).encode(sentences, TOKENIZER)
    wide = task(max_length=max_length, document_context=True).encode(sentences, TOKENIZER)
    assert wide.example_of_row.tolist() == alone.example_of_row.tolist()
    for row, number in enumerate(wide.example_of_row.tolist()):
        example = sentences[number]
        size, room = len(pieces(*example.words)), max_length - 2
        tokens = wide.rows.row(row)[0].tolist()
        if size > room:
            assert tokens == alone.rows.row(row)[0].tolist()
            continue
        left = [w for other in sentences[:number] if other.document == example.document for w in other.words]
        right = [w for other in sentences[number + 1 :] if other.document == example.document for w in other.words]
        most_right = max(room - size - (room - size) // 2, room - size - len(pieces(*left)))
        most_left = room - size - min(most_right, len(pieces(*right)))
        before = fitting(left[::-1], most_left)[::-1]
        expected = [*before, *example.words, *fitting(right, most_right)]
        assert tokens == [CLS, *pieces(*expected), SEP]


def test_the_loss_is_the_cross_entropy_of_the_words_that_have_a_tag() -> None:
    many = [sentence("a bc d", "O B-LOC I-LOC"), sentence("e f"), sentence("g", "B-ORG")]
    features = task().encode(many, TOKENIZER)
    assert features.targets.tolist() == [0, 1, 2, NO_LABEL, NO_LABEL, NO_LABEL]
    logits = np.random.default_rng(0).normal(size=(6, len(LABELS)))
    total, correct, count = 0.0, 0, 0
    for batch in micro_batches(features, np.arange(3), micro_tokens=6, device="cpu"):
        loss, sums = task().loss(torch.from_numpy(logits[batch.chosen]), batch)
        assert batch.step_targets == 3
        total, correct, count = total + float(loss), correct + int(sums["correct"]), count + int(sums["count"])
    rows = [(row, target) for row, target in enumerate(features.targets.tolist()) if target != NO_LABEL]
    expected = sum(math.log(sum(math.exp(x) for x in logits[row])) - logits[row][target] for row, target in rows)
    assert total == pytest.approx(expected, rel=1e-12)
    assert correct == sum(int(logits[row].argmax()) == target for row, target in rows)
    assert count == 3


def one_hot(features: EncodedExamples) -> np.ndarray:
    return 20 * np.eye(len(LABELS), dtype=np.float32)[features.targets]


@given(piece_counts, max_lengths, st.booleans())
def test_labels_survive_the_round_trip_through_targets(counts: list[list[int]], max_length: int, context: bool) -> None:
    sentences = numbered(counts, [0] * len(counts))
    tagging = task(max_length=max_length, document_context=context, constrained_tags=False)
    features = tagging.encode(sentences, TOKENIZER)
    if features.targets is None:
        return
    predictions = tagging.decode(sentences, features, one_hot(features), TOKENIZER)
    assert [prediction.tags for prediction in predictions] == [sentence.tags for sentence in sentences]
    assert all(chance > 0.99 for prediction in predictions for chance in prediction.probabilities)


def test_an_impossible_sequence_is_not_answered_and_its_probabilities_are_those_of_the_model() -> None:
    many = [sentence("a b c", "O B-PER I-PER"), sentence("d", "B-LOC")]
    shares = np.array(
        [[0.7, 0.1, 0.05, 0.1, 0.05], [0.1, 0.1, 0.1, 0.3, 0.4], [0.1, 0.1, 0.1, 0.2, 0.5], [0.1, 0.6, 0.1, 0.1, 0.1]]
    )
    logits = np.log(shares).astype(np.float32)
    free, bound = task(constrained_tags=False), task()
    plain, answered = (
        tagging.decode(many, tagging.encode(many, TOKENIZER), logits, TOKENIZER) for tagging in (free, bound)
    )
    assert plain[0].tags == ("O", "I-PER", "I-PER")
    assert answered[0].tags == ("O", "B-PER", "I-PER")
    assert answered[0].probabilities == pytest.approx((0.7, 0.3, 0.5))
    assert answered[1] == plain[1]
    assert bound.score(many, answered)["accuracy"] == 1.0
    plain_tags = task(scheme="")
    (words, _) = plain_tags.decode(many, plain_tags.encode(many, TOKENIZER), logits, TOKENIZER)
    assert words.tags == plain[0].tags


def test_tags_that_admit_no_sequence_are_answered_word_by_word_with_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tagging = task(scheme="IOBES", labels=("B-LOC", "E-LOC"))
    many = [sentence("a b c"), sentence("d e")]
    logits = np.array([[0, 1], [1, 0], [0, 1], [0, 1], [1, 0]], dtype=np.float32)
    predictions = tagging.decode(many, tagging.encode(many, TOKENIZER), logits, TOKENIZER)
    assert [prediction.tags for prediction in predictions] == [("E-LOC", "B-LOC", "E-LOC"), ("B-LOC", "E-LOC")]
    assert capsys.readouterr().err == (
        "warning: 1 sentence without a sequence of the model's tags that IOBES allows: each word has its most likely "
        "tag\n"
    )


def test_the_setting_for_sequences_is_stored_and_ignored_by_plain_tags() -> None:
    stored = task(constrained_tags=False).spec.to_dict()
    assert TaskSpec.from_dict(stored, "a model").settings.constrained_tags is False
    del stored["settings"]["constrained_tags"]  # a model of an earlier release
    assert TaskSpec.from_dict(stored, "a model").settings.constrained_tags is True
    assert task(constrained_tags=False).ignored_settings() == []
    assert task(scheme="", constrained_tags=False).ignored_settings() == ["constrained_tags"]


def test_the_temperature_softens_the_probability_but_keeps_the_tag() -> None:
    warm = TaggingTask(dataclasses.replace(task(labels=("O", "B-LOC")).spec, temperature=2.0))
    examples = [sentence("a")]
    logits = np.array([[0.0, 2.0]], dtype=np.float32)
    (prediction,) = warm.decode(examples, warm.encode(examples, TOKENIZER), logits, TOKENIZER)
    assert prediction.tags == ("B-LOC",)
    assert prediction.probabilities == pytest.approx((1 / (1 + math.exp(-1)),))


def test_the_logits_of_a_word_do_not_depend_on_the_batch() -> None:
    config = small_config(vocab_size=len(TOKENIZER.vocabulary), max_position_embeddings=64)
    tagging = task(max_length=12)
    net = EncoderForTask(new_encoder(config), tagging.head, seed=1).double()
    sentences = numbered([[1] * 30, [2, 1], [1, 3, 1, 1], [1]], [0, 0, 0, 0])
    features = tagging.encode(sentences, TOKENIZER)

    def logits(micro_tokens: int) -> np.ndarray:
        scores = np.full((features.num_read, len(LABELS)), np.nan)
        for batch in micro_batches(features, np.arange(len(features)), micro_tokens=micro_tokens, device="cpu"):
            scores[batch.chosen] = net(batch.batch, read=batch.read).detach()
        return scores

    np.testing.assert_allclose(logits(1), logits(10_000), rtol=1e-9)


def test_entities_have_their_words_and_their_exact_characters() -> None:
    text = 'He saw "New\tYork", d.'
    example = dataclasses.replace(words_of(text), tags=("O", "O", "O", "B-LOC", "I-LOC", "O", "O", "B-PER", "I-PER"))
    features = task().encode([example], TOKENIZER)
    (prediction,) = task().decode([example], features, one_hot(features), TOKENIZER)
    assert prediction.entities == (
        Entity(type="LOC", start=3, end=5, text="New York", characters=(8, 16)),
        Entity(type="PER", start=7, end=9, text="d.", characters=(19, 21)),
    )
    assert text[8:16] == "New\tYork"
    assert prediction.line() == 'He saw " New/B-LOC York/I-LOC " , d/B-PER ./I-PER'
    assert prediction.to_dict()["entities"][1] == {
        "type": "PER", "start": 7, "end": 9, "text": "d.", "characters": (19, 21), "words": [7, 9],
        "probability": min(prediction.probabilities[7:9]),
    }  # fmt: skip


def test_entities_of_words_without_a_text_have_no_characters() -> None:
    example = sentence("New York", "B-LOC I-LOC")
    features = task().encode([example], TOKENIZER)
    (prediction,) = task().decode([example], features, one_hot(features), TOKENIZER)
    assert prediction.entities == (Entity(type="LOC", start=0, end=2, text="New York"),)
    (plain,) = task(scheme="").decode([example], features, one_hot(features), TOKENIZER)
    assert plain.entities == ()


@given(st.text(max_size=40) | st.text("ab ,.\"'\t\n博\x01\u200bÉİ\u0301", max_size=40))
def test_words_of_a_text_have_their_character_spans_in_order(text: str) -> None:
    example = words_of(text)
    assert [text[start:end] for start, end in example.offsets] == list(example.words)
    borders = [border for span in example.offsets for border in span]
    assert borders == sorted(borders)
    assert all(start < end for start, end in example.offsets)
    together = [id for word in example.words for id in TOKENIZER.encode(word).tolist()]
    assert together == TOKENIZER.encode(text).tolist()


def said(*tags: str) -> list[TagsPrediction]:
    rows = [tuple(row.split()) for row in tags]
    return [TagsPrediction(words=row, tags=row, probabilities=(1.0,) * len(row)) for row in rows]


def test_scores_are_those_of_entities_or_of_words() -> None:
    gold = [sentence("a b c", "B-LOC I-LOC O"), sentence("d e", "B-PER O")]
    predicted = said("B-LOC I-LOC O", "B-LOC O")
    assert task().score(gold, predicted) == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5, "accuracy": 0.8})
    assert task(scheme="").score(gold, predicted) == {"accuracy": 0.8}
    assert task().example_scores(gold, predicted).tolist() == [1.0, 0.5]


def test_one_tag_for_every_word_is_a_collapse_only_if_gold_has_others() -> None:
    gold = [sentence("a b", "B-LOC O"), sentence("c", "O")]
    assert task().is_collapsed(said("O O", "O"), gold)
    assert task().is_collapsed(said("I-PER I-PER", "I-PER"), gold)
    assert not task().is_collapsed(said("O O", "B-LOC"), gold)
    assert not task().is_collapsed(said("O"), gold[1:])


@pytest.mark.parametrize(
    ("wrong", "gold", "message"),
    [
        (sentence("", ""), False, "a sentence in names.conll, line 7; found no words"),
        (sentence("a b", "O"), False, "a tag for each word in names.conll, line 7; found 2 words and 1 tag;"),
        (sentence("a b"), True, "a tag for each word in names.conll, line 7; found none"),
        (sentence("a b", "O S-LOC"), True, "a tag of IOB2 in names.conll, line 7; found 'S-LOC'"),
    ],
)
def test_sentences_that_cannot_be_read_are_named(wrong: TaggedExample, gold: bool, message: str) -> None:
    with pytest.raises(InputError, match=message):
        task().check([sentence("a", "O"), wrong], gold=gold)


def test_an_unknown_tag_is_refused_in_training_and_an_error_in_scoring(
    capsys: pytest.CaptureFixture[str],
) -> None:
    many = [sentence("a b", "B-LOC O"), sentence("a b c", "B-LOK O B-ORG"), sentence("a", "B-ORG")]
    with pytest.raises(InputError) as error:
        task().check(many, gold=True, training=True)
    assert str(error.value) == (
        "expected a known tag in names.conll, line 7; found 'B-LOK' once, 'B-ORG' 2 times; "
        "did you mean 'B-LOC'? Tags come from the training file"
    )
    task().check(many, gold=True)
    assert capsys.readouterr().err == (
        "warning: 3 of 6 gold tags are unknown to the model, scored as a miss: "
        "'B-ORG' (2 times, first in names.conll, line 7), 'B-LOK' (once, in names.conll, line 7); "
        "correct them, or train with examples of them\n"
    )
    answers = [("B-LOC", "O"), ("O", "O", "O"), ("O",)]
    predictions = [
        TagsPrediction(words=example.words, tags=tags, probabilities=(1.0,) * len(tags))
        for example, tags in zip(many, answers, strict=True)
    ]
    assert task().score(many, predictions) == {"precision": 1.0, "recall": 0.25, "f1": 0.4, "accuracy": 0.5}
    with pytest.raises(InputError, match="found 'B-ORG'"):
        task().check(many[2:], gold=True)  # nothing could be right


def test_tags_that_violate_their_scheme_cause_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    many = [sentence("a b", "B-LOC I-LOC"), sentence("a b", "O I-LOC"), sentence("a b", "I-PER O")]
    task().check(many, gold=True)
    assert capsys.readouterr().err.splitlines() == [
        "warning: 2 of 3 sentences with tags that violate IOB2; scored as conlleval reads them",
        "warning: names.conll, line 7, word 2: expected 'B-LOC'; found 'I-LOC'",
        "warning: names.conll, line 7, word 1: expected 'B-PER'; found 'I-PER'",
    ]
    task(scheme="").check(many, gold=True)
    task().check(many[:1], gold=True)
    task().check(many, gold=False)
    assert capsys.readouterr().err == ""


def test_truncation_is_refused_and_error_refuses_sentences_that_are_too_long() -> None:
    with pytest.raises(ConfigError, match="which keeps every word, must be windows or error, not 'head'"):
        task(long_text="head").check([], gold=False)
    with pytest.raises(ConfigError, match="which keeps every word, must be windows or error, not 'tail'"):
        task(long_text="tail").encode([sentence("a")], TOKENIZER)
    strict = task(long_text="error", max_length=5)
    assert len(strict.encode([sentence("a b c"), sentence("")], TOKENIZER)) == 1
    with pytest.raises(InputError, match=r"at most 3 pieces in names.conll, line 7; found 4; raise max_length"):
        strict.encode([sentence("a"), sentence("a b cd")], TOKENIZER)


def read_conll(path: Path) -> list[TaggedExample]:
    """The sentences of a file with words in the first column, tags in the last, and blank lines in between."""
    blocks, lines = [[]], path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        if line.strip():
            blocks[-1].append(line.split("\t"))
        elif blocks[-1]:
            blocks.append([])
    return [
        TaggedExample(
            id=str(number),
            words=tuple(row[0] for row in block),
            tags=tuple(row[-1] for row in block),
            location=f"{path.name}, sentence {number}",
        )
        for number, block in enumerate(blocks)
        if block
    ]


@pytest.mark.parametrize(
    ("file", "count", "settings"),
    [
        ("wnut17/wnut17train.conll", 3394, {}),
        ("wnut17/wnut17train.conll", 3394, {"max_length": 24}),
        ("bio_scibert/NCBI-disease/train.txt", 5424, {"max_length": 32, "document_context": True}),
    ],
)
def test_every_tag_of_a_real_file_is_a_target_and_is_decoded_back(
    real_data: Path, file: str, count: int, settings: dict[str, int | bool]
) -> None:
    sentences = read_conll(real_data / "ner" / file)
    assert len(sentences) == count
    tokenizer = WordPieceTokenizer(
        Vocabulary.load(real_data / "vocab/bert-base-cased-vocab.txt"), TextRules(lowercase=False)
    )
    labels = tuple(sorted({tag for example in sentences for tag in example.tags}))
    tagging = task(labels=labels, **settings)
    tagging.check(sentences, gold=True)
    features = tagging.encode(sentences, tokenizer)
    words = [word for sentence in sentences for word in sentence.words]
    firsts = [next(iter(tokenizer.encode(word).tolist()), tokenizer.vocabulary.unk_id) for word in words]
    assert features.rows.token_ids[features.read].tolist() == firsts
    logits = np.eye(len(labels), dtype=np.float32)[features.targets]
    predictions = tagging.decode(sentences, features, logits, tokenizer)
    assert tagging.score(sentences, predictions) == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "accuracy": 1.0}


def test_the_context_of_drawn_sentences_is_that_of_the_file(tmp_path: Path) -> None:
    path, documents = tmp_path / "a.txt", []
    for document in range(3):
        rows = [f"{word}\tO" for word in "abcdefgh"]
        documents.append("-DOCSTART-\tO\n\n" + "\n\n".join(rows[document:]))
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    settings = TaskSettings(max_length=6, document_context=True)
    spec, data = task_files.read_task("pos", path, path, settings=settings, limit=5)
    whole = EncodedRows.of(TaggingTask(spec), data.dev)
    drawn = EncodedRows.of(TaggingTask(spec), data.train)
    assert len(drawn.rows) == len(data.train) == 5
    assert drawn.example_of_row == list(range(5))
    assert drawn.read_words == [sentence.words[0] for sentence in data.train]
    places = [sentence.location for sentence in data.dev]
    assert drawn.rows == [whole.rows[places.index(sentence.location)] for sentence in data.train]
    held = task_files.read_task("pos", path, None, settings=settings)[1]
    rows = EncodedRows.of(TaggingTask(spec), held.dev).rows
    assert rows == [whole.rows[places.index(sentence.location)] for sentence in held.dev]


@dataclasses.dataclass
class EncodedRows:
    """The pieces of each row, and those of the words that are classified."""

    rows: list[list[str]]
    example_of_row: list[int]
    read_words: list[str]

    @classmethod
    def of(cls, tagging: TaggingTask, sentences: Sequence[TaggedExample]) -> "EncodedRows":
        features = tagging.encode(sentences, TOKENIZER)
        pieces = TOKENIZER.vocabulary.pieces
        rows = [[pieces[id] for id in features.rows.row(row)[0].tolist()] for row in range(len(features))]
        read = [pieces[id] for id in features.rows.token_ids[features.read].tolist()]
        return cls(rows, features.example_of_row.tolist(), read)
