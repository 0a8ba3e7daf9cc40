"""Trees as the model writes them: the same tree comes back, and a guide leaves only trees of all words."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import choose
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.tasks.baselines.written import right_branching_trees
from bertsmith.tasks.datasets.examples import SequenceExample
from bertsmith.tasks.datasets.labels import constituent_labels
from bertsmith.tasks.metrics.brackets import bracket_counts, read_tree
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.tree_guide import TreeGuide
from bertsmith.tasks.specs.written_forms import WrittenForm, form_of_texts
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from tasks.task_samples import CONFIG
from tasks.task_samples import TOKENIZER as WITHOUT_BRACKETS

GOLD = "( (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sees) (NP (PRP it)) (PP (IN in) (NP (NNP Oslo)))) (. .)) )"
SOURCE = "The cat sees it in Oslo ."
LABELS = ("NP", "NPX", "PP", "S", "VP")
PIECES = "( ) . np ##x pp s v ##p x the cat see ##s it in oslo a ##b w ##1 ##2 [".split()
TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *PIECES]))
FORM = form_of_texts("parsing")
END = TOKENIZER.vocabulary.sep_id
WORDS = ["a", "ab", "sees", "w12", "unknown", "(", ")", "x", "[SEP]", ".", ":)", "\u200b"]


def example(target: str = GOLD, source: str = SOURCE) -> SequenceExample:
    return SequenceExample(id="0", source=source, targets=(target,), location="line 1 of 'trees'")


def guide_of(source: str, labels: tuple[str, ...] = LABELS) -> TreeGuide:
    guides = FORM.guides([source], labels, TOKENIZER)
    (guide,) = guides
    return guide


def read(ids: list[int], source: str) -> str:
    return FORM.read_back(ids, source, guide_of(source), TOKENIZER)


def named(source: str) -> list[str]:
    return source.replace("(", "-LRB-").replace(")", "-RRB-").split()


def ids_of(text: str) -> list[int]:
    return TOKENIZER.encode(text).tolist()


def test_a_tree_is_written_with_its_words_and_comes_back_with_its_brackets() -> None:
    (ids,) = FORM.encoded([GOLD], TOKENIZER)
    written = "( S ( NP The cat ) ( VP sees ( NP it ) ( PP in ( NP Oslo ) ) ) . )"
    assert ids.tolist() == ids_of(written)
    assert constituent_labels([example()]) == ("NP", "PP", "S", "VP")
    assert bracket_counts(read_tree(read(ids.tolist(), SOURCE)), read_tree(GOLD)) == (6, 6, 6)
    assert type(form_of_texts("summarization")) is WrittenForm
    (single,) = FORM.encoded(["(NN cat)"], TOKENIZER)
    assert read(single.tolist(), "cat") == "(S (XX cat))"


@pytest.mark.parametrize(
    ("written", "tree"),
    [
        ("", "(S (XX a) (XX ab))"),
        ("( np", "(NP (XX a) (XX ab))"),
        ("( np a", "(NP (XX a) (XX ab))"),
        ("( npx ( vp a )", "(NPX (VP (XX a)) (XX ab))"),
        ("( np ( s ( pp", "(NP (XX a) (XX ab))"),
        ("( np b ) )", "(NP (XX a) (XX ab))"),
        ("( s ( v", "(S (XX a) (XX ab))"),
    ],
)
def test_what_breaks_off_becomes_a_tree_of_all_words(written: str, tree: str) -> None:
    assert read(ids_of(written), "a ab") == tree


@given(st.lists(st.sampled_from(WORDS), max_size=6), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_every_way_a_guide_leaves_ends_as_a_tree_of_the_words_in_order(words: list[str], left: int, seed: int) -> None:
    source, draw = " ".join(words), generator(seed, "ways")
    guide: TreeGuide = guide_of(source)
    words, enough = source.split(), guide.needed <= left
    written: list[int] = []
    while len(written) < left and (not written or written[-1] != END):
        ids = guide.allowed(left - len(written))
        assert len(set(ids)) == len(ids) > 0
        written.append(ids[int(draw.integers(len(ids)))])
        guide = guide.after(written[-1])
    assert (written[-1] == END) >= enough
    text = read([id for id in written if id != END], source)
    assert [leaf.word for leaf in read_tree(text).words()] == named(source) if words else text == ""


def test_every_tree_of_a_training_is_left_by_its_guide_and_comes_back() -> None:
    draw = generator(0, "trees")

    def grown(words: list[str]) -> str:
        label = LABELS[int(draw.integers(len(LABELS)))]
        if len(words) == 1:
            return f"(NN {words[0]})" if draw.random() < 0.5 else f"({label} (NN {words[0]}))"
        cut = int(draw.integers(1, len(words)))
        return f"({label} {grown(words[:cut])} {grown(words[cut:])})"

    for count in range(2, 30):
        words = [("a", "ab", "sees", "w12", "unknown")[int(draw.integers(5))] for _ in range(count)]
        gold = read_tree(grown(words))
        (ids,) = FORM.encoded([str(gold)], TOKENIZER)
        guide = guide_of(" ".join(words))
        for written, id in enumerate([*ids.tolist(), END]):
            assert id in guide.allowed(len(ids) + 1 - written)
            guide = guide.after(id)
        back = read_tree(read(ids.tolist(), " ".join(words)))
        shared, predicted, wanted = bracket_counts(back, gold)
        assert shared == predicted == wanted


def test_trees_that_are_too_deep_to_walk_through_are_refused_and_never_written() -> None:
    with pytest.raises(InputError, match="more than 150 brackets around a word"):
        read_tree("(S " * 2000 + "(NN a)" + ")" * 2000)
    deep = read_tree(read(ids_of("( s " * 2000 + "a a"), "a b"))
    assert [leaf.word for leaf in deep.words()] == ["a", "b"]
    guide, written = guide_of("a b"), list[int]()
    while ids_of("( s")[0] in guide.allowed(2000):
        for id in ids_of("( s"):
            written.append(id)
            guide = guide.after(id)
    assert [leaf.word for leaf in read_tree(read(written, "a b")).words()] == ["a", "b"]
    words = " ".join(f"w{number}" for number in range(2000))
    (baseline,) = right_branching_trees([("a", ["(S (NN a))"])], [words])
    assert [leaf.word for leaf in read_tree(baseline).words()] == words.split()


def test_a_label_that_begins_another_one_and_a_word_that_does_are_told_apart() -> None:
    assert read(ids_of("( np x )"), "x") == "(NP (XX x))"
    assert read(ids_of("( npx x )"), "x") == "(NPX (XX x))"
    assert read([*ids_of("( s"), *FORM.encoded(["(NN -LRB-)"], TOKENIZER).ids[2:]], "(") == "(S (XX -LRB-))"


@pytest.mark.parametrize("beam", [1, 3])
def test_an_untrained_model_writes_trees_of_the_words_alone_and_together(beam: int) -> None:
    sources = [SOURCE, "a", "w12 unknown ab", "a ab a ab", "a ab a ab", "x ( )", " "]
    settings = TaskSettings(max_length=32, max_target_length=40, beam=beam, answers=beam, copy=True)
    spec = dataclasses.replace(spec_for("parsing", [example()], settings), labels=LABELS)
    task, config = task_for(spec), dataclasses.replace(CONFIG, vocab_size=len(TOKENIZER.vocabulary))
    model = EncoderForTask(TransformerEncoder(config), task.head, seed=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.2)
    predictor = Predictor(model.eval(), task, TOKENIZER, choose("cpu", "fp32"))
    examples = [SequenceExample(id=str(n), source=source, targets=()) for n, source in enumerate(sources)]
    together = predictor.predict(examples)
    for row, prediction in zip(examples, together, strict=True):
        for text, _ in prediction.answers:
            leaves = [leaf.word for leaf in read_tree(text).words()] if text else []
            assert leaves == named(row.source)
        (alone,) = predictor.predict([row])
        assert [text for text, _ in alone.answers] == [text for text, _ in prediction.answers]
        np.testing.assert_allclose(alone.score, prediction.score, rtol=1e-4)
        assert prediction.has_ended


def test_sources_of_the_same_pieces_but_other_words_have_their_own_trees() -> None:
    task = task_for(dataclasses.replace(spec_for("parsing", [example()]), labels=LABELS))
    config = dataclasses.replace(CONFIG, vocab_size=len(TOKENIZER.vocabulary))
    model = EncoderForTask(TransformerEncoder(config), task.head, seed=2).eval()
    examples = [SequenceExample(id=text, source=text, targets=()) for text in ("a.", "a .", "a.")]
    task = task_for(dataclasses.replace(task.spec, settings=TaskSettings(max_length=32, max_target_length=20)))
    first, second, third = Predictor(model, task, TOKENIZER, choose("cpu", "fp32")).predict(examples)
    assert [leaf.word for leaf in read_tree(first.text).words()] == ["a."]
    assert [leaf.word for leaf in read_tree(second.text).words()] == ["a", "."]
    assert first.text == third.text


def test_a_vocabulary_that_cannot_spell_trees_is_refused_in_training() -> None:
    task = task_for(spec_for("parsing", [example()]))
    with pytest.raises(ConfigError, match=r"a vocabulary that spells \(, \) and each label"):
        task.encode([example()], WITHOUT_BRACKETS, training=True)
    task.encode([example()], TOKENIZER, training=True)
    ignored = task_for(spec_for("parsing", [example()], TaskSettings(no_repeat_ngram=3, beam=2))).ignored_settings()
    assert ignored == ["no_repeat_ngram"]
    assert task.settings_of_answers == ("max_target_length", "beam", "length_penalty", "answers")


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
