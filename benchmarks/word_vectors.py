"""Word vectors against gensim 4: words per second, and what the vectors know.

gensim is not a dependency of the project; install it where this runs (`pip install gensim`). Both sides get the same
sentences and settings, take turns, and train skip-gram or CBOW with noise words or the Huffman tree. Words per second
are those of the vocabulary, before frequent ones are thinned out, per processor second of all threads of a side. Ours
reads the numbers of the words, which `vectors train` writes to disk once; gensim looks the words up in each epoch.
Compiling, a few seconds on the first use of a machine, is not counted.

With `--threads`, both sides share their vectors among that many threads, and words are counted per second of the
clock.

Each round has a seed of its own, the same on both sides, so that quality has a spread too. It is measured in three
ways: the fraction of halves of frequent words whose nearest word is their other half (half of the occurrences of `w`,
by chance, are written `w_`); with `--questions`, the rank correlation with judged word pairs and the accuracy on
analogies.

Usage: OMP_NUM_THREADS=1 python benchmarks/word_vectors.py FILE ... [--megabytes 1] [--rounds 5] [--threads 1]
    [--questions DIR]
    DIR has questions-words.txt (the analogies of Word2Vec), and judged pairs in word-sim/*.txt.
"""

import argparse
import copy
import dataclasses
import importlib.metadata
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness import interleave, machine, machine_label, ratio_summary, spread, write_result

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, quiet
from bertsmith.inference.word_vectors.answers import score_analogies, score_similarities
from bertsmith.inference.word_vectors.settings import WordVectorSettings
from bertsmith.inference.word_vectors.word2vec import Word2Vec
from bertsmith.inference.word_vectors.word_stream import WordStream
from bertsmith.inference.word_vectors.word_vectors import WordVectors
from bertsmith.text.documents.readers import read_documents
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens

SPLIT = 200  # frequent words, after the first ones, whose occurrences are split in halves
SKIPPED = 50
FEWEST_PAIRS = 40  # of a file of judged pairs, that both words of are known
CASES = {
    "skip-gram": {"method": "skip-gram"},
    "cbow": {"method": "cbow"},
    "skip-gram hierarchical": {"method": "skip-gram", "hierarchical": True},
    "cbow hierarchical": {"method": "cbow", "hierarchical": True},
}


def sentences_of(files: list[Path], characters: int) -> tuple[list[list[str]], list[str]]:
    """(sentences as words, with frequent words split in halves; these words)."""
    rules, sentences, held = TextRules(), [], 0
    for document in read_documents(files):
        for sentence in document.sentences:
            sentences.append(basic_tokens(sentence, rules))
            held += len(sentence)
        if held >= characters:
            break
    counts: dict[str, int] = {}
    for sentence in sentences:
        for word in sentence:
            counts[word] = counts.get(word, 0) + 1
    chosen = sorted((word for word in counts if word.isalpha()), key=lambda word: -counts[word])[
        SKIPPED : SKIPPED + SPLIT
    ]
    halves = {word: f"{word}_" for word in chosen}
    coin = np.random.default_rng(0)
    return [[halves[w] if w in halves and coin.random() < 0.5 else w for w in s] for s in sentences], chosen


def quality(vectors: WordVectors, chosen: list[str], questions: Path | None) -> dict[str, float]:
    """What the vectors know, by test."""
    right = 0
    for word in chosen:
        row = vectors.rows([word])[0]
        cosines = vectors.units @ vectors.units[row]
        cosines[row] = -1
        right += vectors.words[int(cosines.argmax())] == f"{word}_"
    scores = {"other half": right / len(chosen)}
    if questions is not None:
        total = score_analogies(vectors, questions / "questions-words.txt")[-1]
        assert total.accuracy is not None, "a file of which nothing can be asked is refused"
        scores["analogies"] = total.accuracy
        for path in sorted((questions / "word-sim").glob("*.txt")):
            try:
                score = score_similarities(vectors, path)
            except InputError:
                continue
            if score.pairs >= FEWEST_PAIRS:
                scores[path.stem.removeprefix("EN-")] = score.spearman
        names = [name for name in scores if name not in ("other half", "analogies")]
        scores["mean of judged pairs"] = float(np.mean([scores[name] for name in names]))
    return scores


def peer_of(settings: WordVectorSettings, sentences: list[list[str]]) -> Any:
    """A model of gensim with its vocabulary."""
    from gensim.models import Word2Vec as Peer

    model = Peer(
        vector_size=settings.width, window=settings.window, min_count=5, sg=int(settings.method == "skip-gram"),
        hs=int(settings.hierarchical), negative=settings.negatives, sample=settings.subsample, workers=settings.threads,
        alpha=settings.learning_rate, min_alpha=settings.learning_rate * 1e-4, epochs=settings.epochs,
    )  # fmt: skip
    model.build_vocab(sentences)
    return model


def run_case(
    settings: WordVectorSettings,
    sentences: list[list[str]],
    chosen: list[str],
    rounds: int,
    *,
    questions: Path | None,
    start: float,
) -> dict[str, Any]:
    """The rounds of one case."""
    blank = peer_of(settings, sentences)
    words = blank.wv.index_to_key
    index = {word: row for row, word in enumerate(words)}
    counts = np.array([blank.wv.get_vecattr(word, "count") for word in words], dtype=np.int64)
    made: dict[str, list[Any]] = {"ours": [], "gensim": []}

    with tempfile.TemporaryDirectory() as folder:
        stream = Path(folder) / "stream.i32"
        numbers = [[*(index[word] for word in sentence if word in index), -1] for sentence in sentences]
        np.concatenate([row for row in numbers if len(row) > 1]).astype("<i4").tofile(stream)
        del numbers
        few = Path(folder) / "few.i32"  # compiles, or loads what was compiled before
        np.fromfile(stream, dtype="<i4", count=1000).tofile(few)
        with Progress("warming up") as progress:
            Word2Vec(counts, settings).train_epoch(WordStream(few), 0, progress)

        def ours() -> None:
            seed = len(made["ours"]) + 1
            model = Word2Vec(counts, dataclasses.replace(settings, seed=seed))
            model.tables["inputs"] *= np.float32(start)
            with Progress("training") as progress:
                for epoch in range(settings.epochs or 0):
                    model.train_epoch(WordStream(stream), epoch, progress)
            made["ours"].append(model.vectors)

        def peer() -> None:
            model = copy.deepcopy(blank)
            model.seed = len(made["gensim"]) + 1
            model.random = np.random.RandomState(model.seed)
            model.init_weights()
            model.wv.vectors *= np.float32(start)
            model.train(sentences, total_examples=model.corpus_count, epochs=settings.epochs)
            made["gensim"].append(model.wv.vectors)

        clock = time.process_time if settings.threads == 1 else time.perf_counter
        seconds = interleave({"ours": ours, "gensim": peer}, rounds, clock=clock)
    total = int(counts.sum()) * (settings.epochs or 0)
    known = {
        side: [quality(WordVectors(words=words, vectors=table), chosen, questions) for table in tables]
        for side, tables in made.items()
    }
    return {
        "words": int(counts.sum()),
        "vocabulary": len(words),
        "engine": settings.engine,
        "seeds": list(range(1, rounds + 1)),
        f"words_per{'_processor' * (settings.threads == 1)}_second": {
            side: spread([total / elapsed for elapsed in times]) for side, times in seconds.items()
        },
        "speed_against_gensim": ratio_summary(seconds["ours"], seconds["gensim"]),
        "quality": {
            name: {side: spread([row[name] for row in rows]) for side, rows in known.items()}
            for name in known["ours"][0]
        },
    }


def main() -> None:
    """Runs the rounds and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--megabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--engine", choices=("compiled", "numpy"), default="compiled")
    parser.add_argument("--threads", type=int, default=1, help="of both sides; more than 1 only with compiled")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--start", type=float, default=1.0, help="multiply the vectors that training starts from")
    parser.add_argument("--name", default="", help="a word for the name of the result")
    options = parser.parse_args()

    logging.disable(logging.WARNING)
    sentences, chosen = sentences_of(options.files, int(options.megabytes * 1e6))
    result = {}
    with quiet():
        for name in options.cases:
            settings = WordVectorSettings(
                epochs=options.epochs, engine=options.engine, threads=options.threads, **CASES[name]
            ).resolved()
            result[name] = run_case(
                settings, sentences, chosen, options.rounds, questions=options.questions, start=options.start
            )
            print(name, result[name], flush=True)
    about = {"machine": machine(), "gensim": importlib.metadata.version("gensim"), "epochs": options.epochs,
             "start": options.start, "threads": options.threads}  # fmt: skip
    threads = f"{options.threads}-threads_" if options.threads > 1 else ""
    label = f"{threads}{machine_label(about['machine'])}_gensim-{about['gensim']}"
    write_result("_".join(filter(None, ("word_vectors", options.name, label))), {**about, "cases": result})


if __name__ == "__main__":
    main()
