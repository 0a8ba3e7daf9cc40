"""Many languages in small: text rules, sampling, a multilingual model against monolingual ones, and Chinese words.

    python benchmarks/languages.py --data DIR --work DIR [--novel FILE] [--steps 60] [--only NAME,...]

DIR has the folders `multilingual/pud` (19 languages, 1,000 parallel sentences each), `multilingual/ja_gsd` and
`cls/chnsenticorp`. Every fifth sentence is for testing, in every language the same ones, so no test sentence is read
in any language before. The cells:

* `rules`: what the text rules `huggingface` and `unspaced` make of test sentences, with a vocabulary of 8,000 pieces,
  and the former with every character as a piece, and in lower case;
* `splits`: four ways to split Thai words, with 2,000 pieces;
* `exponent`: pieces per character of test sentences with vocabularies from unbalanced text: English has a novel more,
  two languages have a tenth of their sentences;
* `transfer`: networks of 2 layers x 128, pre-trained for the same number of steps of 4,096 tokens, one on all
  languages, three on one; retrieval of the parallel sentence from the English one by cosine of mean vectors (200
  candidates); and a classification that the data allows: is a sentence from the news or from an encyclopedia (the first
  375 and the next 375 sentences), trained on English and tested on all languages, three seeds;
* `segmenter`: the speed of the segmenters of Chinese, Japanese and Thai words;
* `chinese`: masks of single characters and of whole words (`--chinese-words`), from scratch, and a linear model on
  character n-grams, on 1,000 labels of ChnSentiCorp, three seeds.

Each finished cell appends a line to results/NAME.jsonl; cells that are already there are skipped. One thread.
"""

import argparse
import functools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

from harness import RESULTS, machine, machine_label
from language_scores import (
    Cells,
    accuracy,
    coverage,
    fine_tuned,
    from_scratch,
    hits,
    linear_scores,
    retrieval,
    rows_of,
    run_of,
)
from sklearn.feature_extraction.text import TfidfVectorizer

import bertsmith
from bertsmith.app.library.training import pretrain
from bertsmith.app.library.vocabulary import learn_vocabulary
from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import write_text
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.languages import SamplingSettings
from bertsmith.text.tokenizers.longest_match import Segmenter
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.tokenizers.unspaced import PATTERN
from bertsmith.text.vocabularies.learn import learn_vocabulary as learn_pieces
from bertsmith.training.pretraining.segmented_words import LANGUAGES, segmenter

PIECES, CHINESE_PIECES, SPLIT_PIECES = 8000, 4000, 2000
PER_DOCUMENT = 8  # sentences
NEWS, LABELLED = 375, 750
MONOLINGUAL = ("en", "zh", "th")
SMALL, SHOWN = ("is", "th"), ("en", "fr", "is", "th")
SEEDS = (1, 2, 3)
LABELS = 1000  # of Chinese reviews
Texts = dict[str, list[str]]


def main() -> None:
    """Runs the cells that have no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--novel", type=Path, help="English text for the cells `exponent`")
    parser.add_argument("--work", type=Path, required=True, help="folder for models, kept for the next call")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--only", default="rules,splits,exponent,transfer,segmenter,chinese")
    options = parser.parse_args()
    described = machine()
    path = RESULTS / f"languages_{machine_label(described)}_torch-{described['packages']['torch']}.jsonl"
    cells = Cells(path, described)
    texts = sentences_of(options.data)
    groups: dict[str, Callable[[Path], None]] = {
        "rules": lambda folder: measure_rules(cells, texts, options.data, folder),
        "splits": lambda folder: measure_splits(cells, texts),
        "exponent": lambda folder: measure_exponents(cells, texts, options.novel, folder),
        "transfer": lambda folder: measure_transfer(cells, texts, options.steps, folder),
        "segmenter": lambda folder: measure_segmenters(cells, texts, options.data),
        "chinese": lambda folder: measure_chinese(cells, options.data / "cls" / "chnsenticorp", options.steps, folder),
    }
    with quiet():
        for name in options.only.split(","):
            (options.work / name).mkdir(parents=True, exist_ok=True)
            groups[name](options.work / name)


def sentences_of(data: Path) -> Texts:
    """The sentences of each language."""
    files = {path.stem: path for path in sorted((data / "multilingual" / "pud").glob("*.txt"))}
    return {
        name: [line for line in path.read_text("utf-8").split("\n") if line.strip()] for name, path in files.items()
    }


def is_test(number: int) -> bool:
    """Whether a sentence, by its number, is for testing."""
    return number % 5 == 4


def training(texts: Sequence[str]) -> list[str]:
    """The sentences that are not for testing."""
    return [text for number, text in enumerate(texts) if not is_test(number)]


def testing(texts: Sequence[str]) -> list[str]:
    """The sentences for testing."""
    return [text for number, text in enumerate(texts) if is_test(number)]


def write_languages(folder: Path, texts: Texts) -> Path:
    """A folder with a file for each language, a blank line after every few sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in texts.items():
        documents = ["\n".join(lines[first : first + PER_DOCUMENT]) for first in range(0, len(lines), PER_DOCUMENT)]
        write_text(folder / f"{name}.txt", "\n\n".join(documents) + "\n")
    return folder


def measure_rules(cells: Cells, texts: Texts, data: Path, folder: Path) -> None:
    """Both rules on the test sentences of all languages, and of Japanese."""
    japanese = (data / "multilingual" / "ja_gsd" / "ja.txt").read_text("utf-8").split("\n")
    every = {**texts, "ja": [line for line in japanese if line.strip()]}
    every_character: dict[str, Any] = {"character_coverage": 1.0}
    for rules, also, options in (
        ("huggingface", "", {}),
        ("huggingface", ", every character", every_character),
        ("huggingface", ", lower case", {"cased": False}),
        ("unspaced", "", {}),
    ):

        def measure(rules: str = rules, options: dict[str, Any] = options) -> dict[str, Any]:
            text = write_languages(folder / rules, {name: training(lines) for name, lines in every.items()})
            learned = learn_vocabulary([text], PIECES, rules=rules, languages=True, **{"cased": True, **options})
            return {"languages": {name: coverage(learned.tokenizer, testing(lines)) for name, lines in every.items()}}

        cells.run(f"rules {rules}{also}", measure)


def measure_splits(cells: Cells, texts: Texts) -> None:
    """Ways to split Thai words, each with a vocabulary of its own; the longest match is the package's."""
    marks = "\u0e30-\u0e3a\u0e45\u0e47-\u0e4e"
    cluster = f"[\u0e40-\u0e44]?[\u0e01-\u0e2f\u0e46][{marks}]*"
    patterns = {
        "not at all": None,
        "in front of leading vowels": PATTERN,
        "every 8 clusters": f"(?:{cluster}){{1,8}}|[\u0e00-\u0e7f]",
        "every cluster": f"{cluster}|[\u0e00-\u0e7f]",
    }
    for name, pattern in patterns.items():
        part = None if pattern is None else re.compile(f"{pattern}|[^\u0e00-\u0e7f]+")

        def words(text: str, part: re.Pattern[str] | None = part) -> list[str]:
            tokens = basic_tokens(text, TextRules(lowercase=False))
            return tokens if part is None else [match.group() for word in tokens for match in part.finditer(word)]

        def measure(words: Callable[[str], list[str]] = words) -> dict[str, Any]:
            counts = Counter(word for text in training(texts["th"]) for word in words(text))
            vocabulary = learn_pieces(counts, SPLIT_PIECES)
            segmenter = Segmenter(vocabulary, max_word_characters=100)
            pieces = characters = lost = 0
            for word in (word for text in testing(texts["th"]) for word in words(text)):
                ids = segmenter.ids(word)
                pieces, characters = pieces + len(ids), characters + len(word)
                lost += len(word) * (vocabulary.unk_id in ids)
            return {"pieces_per_character": round(pieces / characters, 4), "lost": round(lost / characters, 4)}

        cells.run(f"split Thai {name}", measure)


def measure_exponents(cells: Cells, texts: Texts, novel: Path | None, folder: Path) -> None:
    """Vocabularies from unbalanced text with several exponents."""
    read = {name: training(lines) for name, lines in texts.items()}
    read |= {name: read[name][: len(read[name]) // 10] for name in SMALL}
    read["en"] = read["en"] + (novel.read_text("utf-8").split("\n") if novel else [])
    for exponent in (1.0, 0.7, 0.3, 0.0):

        def measure(exponent: float = exponent) -> dict[str, Any]:
            text = write_languages(folder / str(exponent), read)
            learned = learn_vocabulary(
                [text], PIECES, cased=True, rules="unspaced", languages=True, language_exponent=exponent
            )
            sizes = {name: sum(map(len, lines)) for name, lines in read.items()}
            return {
                "share_of_text": {name: round(sizes[name] / sum(sizes.values()), 4) for name in SHOWN},
                "languages": {name: coverage(learned.tokenizer, testing(texts[name])) for name in SHOWN},
            }

        cells.run(f"exponent {exponent:g}", measure)


def measure_transfer(cells: Cells, texts: Texts, steps: int, folder: Path) -> None:
    """The multilingual model, three monolingual ones, and what they are compared with."""
    for name, lines in texts.items():
        rows = [
            f"{text}\t{'news' if number < NEWS else 'encyclopedia'}" for number, text in enumerate(lines[:LABELLED])
        ]
        write_text(folder / f"{name}-train.tsv", "\n".join(["text\tlabel", *training(rows)]) + "\n")
        write_text(folder / f"{name}-test.tsv", "\n".join(["text\tlabel", *testing(rows)]) + "\n")
    systems = {"multilingual": list(texts), **{name: [name] for name in MONOLINGUAL}}
    for system, languages in systems.items():
        path = folder / system

        def prepare(path: Path = path, languages: Sequence[str] = languages) -> Corpus:
            read = write_languages(path / "text", {name: training(texts[name]) for name in languages})
            learned = learn_vocabulary([read], PIECES, cased=True, rules="unspaced", languages=True)
            sampling, settings = SamplingSettings(languages=True), CorpusSettings(form="lines")
            build_corpus([read], learned.tokenizer, path / "corpus", **vars(settings), **vars(sampling), workers=1)
            return Corpus.open(path / "corpus")

        pre_train(cells, system, path, prepare, steps, whole_word=True)
        for language in MONOLINGUAL if system == "multilingual" else languages:
            for seed in SEEDS:
                classify_genre(cells, texts, path, steps, language, seed)
    trained = folder / "multilingual"
    bare = from_scratch(Corpus.open(trained / "corpus"), folder / "from-scratch")
    for system, model in ((f"multilingual, {steps} steps", run_of(trained, steps) / "model"), ("from scratch", bare)):

        def vectors(model: Path = model) -> dict[str, Any]:
            loaded = bertsmith.load(model)
            return {"accuracy": retrieval({name: loaded.embed(testing(lines)) for name, lines in texts.items()})}

        cells.run(f"retrieve {system}", vectors)

    def by_characters() -> dict[str, Any]:
        features = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True)
        features.fit([text for lines in texts.values() for text in training(lines)])
        vectors = {name: features.transform(testing(lines)) for name, lines in texts.items()}  # sparse, of length 1
        return {"accuracy": {name: hits((vectors["en"] @ rows.T).toarray()) for name, rows in vectors.items()}}

    def linear() -> dict[str, Any]:
        score = linear_scores(folder / "en-train.tsv")
        return {"accuracy": {name: score(folder / f"{name}-test.tsv") for name in texts}}

    cells.run("retrieve character n-grams", by_characters)
    cells.run("genre en character n-grams", linear)


def measure_segmenters(cells: Cells, texts: Texts, data: Path) -> None:
    """Characters that the segmenters read in a second of processor time."""
    samples = {
        "chinese_words": "\n".join(texts["zh"]),
        "japanese_words": (data / "multilingual" / "ja_gsd" / "ja.txt").read_text("utf-8"),
        "thai_words": "\n".join(texts["th"]),
    }
    for setting, text in samples.items():

        def measure(setting: str = setting, text: str = text) -> dict[str, Any]:
            segment = segmenter(setting)
            segment(text)  # the first call may read a dictionary
            times = 1 + 1_000_000 // len(text)
            start = time.process_time()
            for _ in range(times):
                segment(text)
            return {"characters_per_second": round(times * len(text) / (time.process_time() - start), -4)}

        cells.run(f"segment {LANGUAGES[setting].name}", measure)


def measure_chinese(cells: Cells, data: Path, steps: int, folder: Path) -> None:
    """Masks of characters and of words, on Chinese reviews and their labels."""
    reviews = [line.split("\t", 1) for line in (data / "train.tsv").read_text("utf-8").splitlines()[1:]]
    write_text(folder / "zh.txt", "\n\n".join(text for _, text in reviews) + "\n")
    corpus = folder / "corpus"

    def prepare() -> Corpus:
        if not corpus.exists():
            learned = learn_vocabulary([folder / "zh.txt"], CHINESE_PIECES, cased=True)
            build_corpus([folder / "zh.txt"], learned.tokenizer, corpus, form="texts", workers=1)
        return Corpus.open(corpus)

    systems = {"characters": {"whole_word": False}, "words": {"whole_word": True, "chinese_words": True}}
    for name, masks in systems.items():
        pre_train(cells, f"chinese {name}", folder / name, prepare, steps, corpus=corpus, **masks)
    models = {f"{name}, {steps} steps": run_of(folder / name, steps) / "model" for name in systems}
    models["from scratch"] = from_scratch(prepare(), folder / "from-scratch")
    for name, model in models.items():
        for seed in SEEDS:

            def measure(model: Path = model, seed: int = seed) -> dict[str, Any]:
                tuned = fine_tuned(model, data / "train.tsv", seed, limit=LABELS, text_column="text_a")
                texts, gold = rows_of(data / "test.tsv", text_last=True)
                return {"accuracy": accuracy(tuned, texts, gold), "labels": LABELS}

            cells.run(f"chinese reviews {name}, seed {seed}", measure)
    score = functools.partial(linear_scores, data / "train.tsv", text_last=True, limit=LABELS)
    cells.run("chinese reviews character n-grams", lambda: {"accuracy": score()(data / "test.tsv"), "labels": LABELS})


def pre_train(
    cells: Cells,
    name: str,
    path: Path,
    prepare: Callable[[], Corpus],
    steps: int,
    corpus: Path | None = None,
    **masks: bool,
) -> None:
    """Pre-trains a model in the run folder of PATH, unless it is there."""
    if (run_of(path, steps) / "model").exists():
        return
    prepare()

    def measure() -> dict[str, Any]:
        result = pretrain(
            corpus or path / "corpus",
            run_of(path, steps),
            size="tiny",
            steps=steps,
            tokens_per_step=4096,
            max_length=128,
            precision="fp32",
            **masks,
        )
        return {"steps": result.steps, "tokens": result.tokens, "scores": dict(result.scores)}

    cells.run(f"pretrain {name}, {steps} steps", measure)


def classify_genre(cells: Cells, texts: Texts, path: Path, steps: int, language: str, seed: int) -> None:
    """Fine-tunes on one language; accuracy on the test sentences of it, and from English on all languages."""
    folder, name = path.parent, path.name

    def measure() -> dict[str, Any]:
        tuned = fine_tuned(run_of(path, steps) / "model", folder / f"{language}-train.tsv", seed)
        tested = list(texts) if name == "multilingual" and language == "en" else [language]
        return {"accuracy": {test: accuracy(tuned, *rows_of(folder / f"{test}-test.tsv")) for test in tested}}

    cells.run(f"genre {language} {name}, {steps} steps, seed {seed}", measure)


if __name__ == "__main__":
    main()
