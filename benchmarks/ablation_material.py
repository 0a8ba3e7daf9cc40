"""What the ablations read: chapters of a text in two orders, and the labelled examples of their tasks.

::

    WORK/text/ordered.txt    chapters, a sentence per line, a blank line after each
    WORK/text/shuffled.txt   the same sentences in random order, in chapters of the same lengths
    WORK/text/aside.txt      chapters that no model reads, for tasks that are made from text
    WORK/text/vocab.txt      the vocabulary of all models
    WORK/text/ordered/, WORK/text/shuffled/   token shards
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ablation_words import gaps, minimal_pairs, responses, senses, sentence_order, tagged
from finetuning_recipes import FILES, KINDS, drawn, examples_of

import bertsmith
from bertsmith.base.core.errors import RunError
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json, write_json, write_text
from bertsmith.tasks.datasets.examples import Example, QuestionExample, TextExample
from bertsmith.tasks.specs.named_tasks import default_settings, spec_for
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData, split_dev
from bertsmith.tasks.task_data.task_files import read_examples
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.docstrings import docstring_documents
from bertsmith.text.documents.readers import Document, read_documents
from bertsmith.text.documents.words import count_files
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary

CHAPTER = 60  # sentences; a novel is too long to be one document of a next-sentence task
ASIDE, HELD_OUT = 10, 0.04  # one chapter in ten is set aside; the share of the others that scores pre-training
CUT, SHORT = ("topic",), 32  # tasks whose long texts are cut to that many tokens
# How many times as many training and dev examples a task has as others, where it has them; the first one that is more
# than the files have takes all.
MORE = {
    "pos": (4, 2),
    "chunks": (4, 2),
    "entities": (4, 2),
    "squad": (8, 2),
    "senses": (30, 25),
    "gaps": (1, 4),
    "blimp": (1, 20),
    "next-sentence": (3, 2),
    "sentence-order": (3, 2),
    "response": (3, 2),
    "qnli": (3, 2),
}
WORDS = (6, 25)  # of a sentence in a task that is made from text
TASK_SEED = 7

Chapters = Sequence[Sequence[str]]
Labelled = tuple[Sequence[Example], Sequence[Example]]  # training and dev examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class Material:
    """Text and tasks.

    Attributes:
        folder: WORK/text.
        data: a folder with the files of TASKS, or None for tasks that need none.
        dev: the most dev examples of a task, apart from those in MORE.
        length: tokens per row, of pairs of texts and of questions with a part of their text half as many again.
    """

    folder: Path
    data: Path | None
    dev: int
    length: int

    def prepare(self, texts: Sequence[Path], pieces: int) -> None:
        """Writes texts, vocabulary and token shards, unless they are there.

        Args:
            texts: files and folders; if there are none, the docstrings of this package are read.
            pieces: of the vocabulary.
        """
        if (self.folder / "shuffled").is_dir():
            return
        package = Path(bertsmith.__file__).parent
        documents = read_documents(texts) if texts else docstring_documents([package], workers=1)
        every = list(chapters(documents))
        kept = [chapter for number, chapter in enumerate(every) if number % ASIDE]
        write_text(self.folder / "ordered.txt", _lines(kept))
        write_text(self.folder / "shuffled.txt", _lines(shuffled(kept)))
        write_text(self.folder / "aside.txt", _lines(every[::ASIDE]))
        rules = TextRules()
        counts = count_files([self.folder / "ordered.txt"], rules).total
        tokenizer = WordPieceTokenizer(learn_vocabulary(counts, pieces), rules)
        tokenizer.vocabulary.save(self.folder / "vocab.txt")
        settings = CorpusSettings(form="lines", held_out=HELD_OUT)
        for name in ("ordered", "shuffled"):
            build_corpus([self.folder / f"{name}.txt"], tokenizer, self.folder / name, **vars(settings), workers=1)

    def task(self, name: str) -> tuple[TaskSpec, TaskData]:
        """A task of `TASKS` with its examples; rows are short, so that a fit takes seconds.

        Raises:
            InputError: a file of it is missing.
        """
        kind, read = TASKS[name]
        train, dev = read(self)
        settings = default_settings(kind)
        asks = isinstance(train[0], QuestionExample)
        has_two = asks or (isinstance(train[0], TextExample) and train[0].second is not None)
        limits = {"max_length": SHORT if name in CUT else self.length + self.length // 2 * has_two}
        if asks:
            limits |= {"stride": self.length // 2, "max_question": self.length // 2}
        spec = spec_for(kind, train, dataclasses.replace(settings, **limits))
        return spec, TaskData(train=train, dev=drawn(dev, self.dev * MORE.get(name, (1, 1))[1], [0]))

    def is_piece(self, word: str) -> bool:
        """Whether a word is a single piece of the vocabulary."""
        return len(self._tokenizer.encode(word)) == 1

    @functools.cached_property
    def _tokenizer(self) -> Tokenizer:
        return Corpus.open(self.folder / "ordered").tokenizer

    def sentences(self) -> list[list[str]]:
        """The sentences of each chapter that was set aside."""
        return [document.sentences for document in read_documents([self.folder / "aside.txt"], _lines_form())]


def require_same(work: Path, settings: Mapping[str, Any]) -> None:
    """Notes the settings of what a folder holds, or checks that they are those of an earlier call.

    Raises:
        RunError: they are others.
    """
    note = work / "settings.json"
    if not note.is_file():
        write_json(note, settings)
    elif (recorded := read_json(note)) != settings:
        raise RunError(
            expected=f"what '{work}' was made with, {recorded}",
            found=str(settings),
            fix="name another folder with --work",
        )


def chapters(documents: Iterable[Document]) -> Iterator[Sequence[str]]:
    """The sentences of documents, at most CHAPTER together."""
    for document in documents:
        for start in range(0, len(document.sentences), CHAPTER):
            yield document.sentences[start : start + CHAPTER]


def shuffled(every: Chapters) -> Chapters:
    """The same sentences in random order, in chapters of the same lengths.

    >>> [len(one) for one in shuffled([["a", "b"], ["c"]])]
    [2, 1]
    """
    sentences = [sentence for chapter in every for sentence in chapter]
    order = iter(generator(TASK_SEED, "shuffled sentences").permutation(len(sentences)).tolist())
    return [[sentences[number] for number in itertools.islice(order, len(chapter))] for chapter in every]


def word_order(material: Material) -> Labelled:
    """Sentences as they are written, and sentences in which two neighboring words have changed places three times.

    Both kinds have the same words, so what counts words is right half of the time.
    """
    draw, examples = generator(TASK_SEED, "word order"), list[Example]()
    for sentence in itertools.chain.from_iterable(material.sentences()):
        words = sentence.split()
        if not WORDS[0] <= len(words) <= WORDS[1]:
            continue
        is_changed = bool(draw.integers(2))
        if is_changed:
            words = _swapped(words, draw)
        label = "changed" if is_changed else "written"
        examples.append(TextExample(id=str(len(examples)), first=" ".join(words), label=label))
    return _halves(examples)


def next_sentence(material: Material) -> Labelled:
    """Pairs of sentences: the second follows the first, or comes from anywhere else in the same text."""
    draw, examples = generator(TASK_SEED, "next sentence"), list[Example]()
    every = [sentence for chapter in material.sentences() for sentence in chapter]
    for chapter in material.sentences():
        for first, second in zip(chapter[::2], chapter[1::2], strict=False):
            follows = bool(draw.integers(2))
            other = second if follows else every[int(draw.integers(len(every)))]
            label = "follows" if follows else "elsewhere"
            examples.append(TextExample(id=str(len(examples)), first=first, second=other, label=label))
    return _halves(examples)


def sick_table(material: Material, part: str) -> Path:
    """SICK's judgments of entailment as a table whose columns are named as in other files of pairs."""
    path = material.folder / f"sick-{part}.tsv"
    if not path.is_file():
        rows = _place(material, f"nli/SICK_{part}.txt").read_text(encoding="utf-8").splitlines()
        cells = [row.split("\t") for row in rows[1:]]
        lines = [f"{row[1]}\t{row[2]}\t{row[4].strip().lower()}\n" for row in cells]
        write_text(path, "sentence1\tsentence2\tlabel\n" + "".join(lines))
    return path


def _halves(examples: Sequence[Example]) -> Labelled:
    """Training and dev examples: two thirds and one third, in random order."""
    order = generator(TASK_SEED, "examples from text").permutation(len(examples)).tolist()
    mixed = [examples[number] for number in order]
    return mixed[len(mixed) // 3 :], mixed[: len(mixed) // 3]


def _swapped(words: Sequence[str], draw: np.random.Generator) -> list[str]:
    swapped = list(words)
    for position in draw.choice(len(swapped) - 1, size=3, replace=False).tolist():
        swapped[position], swapped[position + 1] = swapped[position + 1], swapped[position]
    return swapped


def _lines(every: Chapters) -> str:
    return "".join("".join(f"{sentence}\n" for sentence in chapter) + "\n" for chapter in every)


def _lines_form() -> CorpusSettings:
    return CorpusSettings(form="lines")


def _of_recipes(name: str) -> Callable[[Material], Labelled]:
    """The task as `finetuning_recipes` reads it."""

    def read(material: Material) -> Labelled:
        train, dev = FILES[name]
        return examples_of(name, _place(material, train)), examples_of(name, _place(material, dev))

    return read


def _of_files(kind: str, train: str, dev: str = "") -> Callable[[Material], Labelled]:
    """A task in files of DATA; without a dev file, a part of the training file is held out."""

    def read(material: Material) -> Labelled:
        examples = read_examples(kind, _place(material, train), training=True).examples
        if dev:
            return examples, read_examples(kind, _place(material, dev)).examples
        return split_dev(examples, TASK_SEED, share=0.2)

    return read


def _topics(material: Material) -> Labelled:
    """News with one of eight topics, from lines of a topic, a tab and a text."""
    parts = []
    for part in ("train", "test"):
        lines = _place(material, f"cls/reuters_r8/r8-{part}-all-terms.txt").read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t", 1) for line in lines if "\t" in line]
        rows = [row for row in rows if row != ["Class", "Example"]]
        parts.append([TextExample(id=str(at), first=text, label=topic) for at, (topic, text) in enumerate(rows)])
    return parts[0], parts[1]


def _place(material: Material, path: str) -> Path:
    assert material.data is not None, "checked before"
    return material.data / path


def _tagged(kind: str) -> Callable[[Material], Labelled]:
    return lambda material: tagged(_place(material, "nltk/treebank.jsonl"), kind)


def _senses(material: Material) -> Labelled:
    return tuple(senses(_place(material, f"wsd/coarsewsd20_{part}.jsonl")) for part in ("train", "test"))


def _gaps(material: Material) -> Labelled:
    return gaps(list(itertools.chain.from_iterable(material.sentences())), TASK_SEED)


def _responses(material: Material) -> Labelled:
    paths = [_place(material, f"dialogue/pairs_sgd_{part}.jsonl") for part in ("train", "dev")]
    return tuple(responses(path, TASK_SEED) for path in paths)


# What reads the examples of each task, by its name, and the kind of the task.
TASKS: dict[str, tuple[str, Callable[[Material], Labelled]]] = {
    "nli": ("classification", _of_files("classification", "nli/mnli_train.tsv", "nli/mnli_val.tsv")),
    "mrpc": ("mrpc", _of_recipes("mrpc")),
    "qnli": ("qnli", _of_files("qnli", "glue/QNLI/dev.tsv")),
    "sst-2": ("sst-2", _of_recipes("sst-2")),
    "trec": (KINDS["trec"], _of_recipes("trec")),
    "cola": ("cola", _of_recipes("cola")),
    "topic": ("classification", _topics),
    "squad": ("squad", _of_files("squad", "squad/train-v1.1-partial.json", "squad/dev-v1.1.json")),
    "word-order": ("classification", word_order),
    "next-sentence": ("classification", next_sentence),
    "sentence-order": (
        "classification",
        lambda material: _halves(sentence_order(material.sentences(), TASK_SEED)),
    ),
    "response": ("classification", _responses),
    "pos": ("pos", _tagged("pos")),
    "chunks": ("ner", _tagged("chunks")),
    "entities": (KINDS["wnut-17"], _of_recipes("wnut-17")),
    "senses": ("classification", _senses),
    "gaps": ("choice", _gaps),
    "blimp": ("choice", lambda material: minimal_pairs(_place(material, "blimp"))),
}
FROM_TEXT = ("word-order", "next-sentence")  # need no files, and are those of most questions without any
