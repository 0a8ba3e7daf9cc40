"""Word vectors against gensim 4: words per second on one thread, and whether related words are found.

gensim is no dependency of the project; install it where this runs (`pip install gensim`). Both sides get the same
sentences and settings, take turns, and train skip-gram or CBOW with noise words, and skip-gram with the Huffman tree.
Words per second are those of the vocabulary, before frequent ones are thinned out. Quality is the fraction of halves of
frequent words whose nearest word is their other half: half of the occurrences of `w`, by chance, are written `w_`.

Usage: OMP_NUM_THREADS=1 python benchmarks/word_vectors.py FILE ... [--megabytes 1] [--rounds 3]
"""

import argparse
import importlib.metadata
import logging
import tempfile
from pathlib import Path

import numpy as np
from harness import interleave, machine, machine_label, ratio_summary, spread, write_result

from bertsmith.corpus.readers import read_documents
from bertsmith.metrics.vectors import unit
from bertsmith.progress import quiet
from bertsmith.text.normalize import TextRules, basic_tokens
from bertsmith.word_vectors.settings import WordVectorSettings
from bertsmith.word_vectors.word2vec import Word2Vec
from bertsmith.word_vectors.word_stream import WordStream

SPLIT = 200  # frequent words, after the first ones, whose occurrences are split in halves
SKIPPED = 50
CASES = {
    "skip-gram": {"method": "skip-gram"},
    "cbow": {"method": "cbow"},
    "skip-gram hierarchical": {"method": "skip-gram", "hierarchical": True},
}


def sentences_of(files: list[Path], characters: int) -> tuple[list[list[str]], list[str]]:
    """(sentences as words, with frequent words split in halves; these words)."""
    rules, found, held = TextRules(), [], 0
    for document in read_documents(files):
        for sentence in document.sentences:
            found.append(basic_tokens(sentence, rules))
            held += len(sentence)
        if held >= characters:
            break
    counts: dict[str, int] = {}
    for sentence in found:
        for word in sentence:
            counts[word] = counts.get(word, 0) + 1
    chosen = sorted((word for word in counts if word.isalpha()), key=lambda word: -counts[word])[
        SKIPPED : SKIPPED + SPLIT
    ]
    halves = {word: f"{word}_" for word in chosen}
    coin = np.random.default_rng(0)
    return [[halves[w] if w in halves and coin.random() < 0.5 else w for w in s] for s in found], chosen


def quality(words: list[str], vectors: np.ndarray, chosen: list[str]) -> float:
    """The fraction of split words whose nearest word is their other half."""
    index, units = {word: row for row, word in enumerate(words)}, unit(np.asarray(vectors))
    right = 0
    for word in chosen:
        cosines = units @ units[index[word]]
        cosines[index[word]] = -1
        right += words[int(cosines.argmax())] == f"{word}_"
    return right / len(chosen)


def main() -> None:
    """Runs the rounds and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--megabytes", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    from gensim.models import Word2Vec as Peer

    logging.disable(logging.WARNING)
    sentences, chosen = sentences_of(options.files, int(options.megabytes * 1e6))
    result = {}
    with tempfile.TemporaryDirectory() as folder, quiet():
        for name, changes in CASES.items():
            settings = WordVectorSettings(epochs=options.epochs, **changes).resolved()
            peers: list[Peer] = []
            ours: list[Word2Vec] = []
            first = Peer(
                vector_size=settings.width, window=settings.window, min_count=5, sg=int(settings.method == "skip-gram"),
                hs=int(settings.hierarchical), negative=settings.negatives, sample=settings.subsample, workers=1,
                alpha=settings.learning_rate, min_alpha=settings.learning_rate * 1e-4, epochs=options.epochs, seed=1,
            )  # fmt: skip
            first.build_vocab(sentences)
            words = first.wv.index_to_key
            index = {word: row for row, word in enumerate(words)}
            counts = np.array([first.wv.get_vecattr(word, "count") for word in words], dtype=np.int64)
            stream = Path(folder) / "stream.i32"
            numbers = [[*(index[word] for word in sentence if word in index), -1] for sentence in sentences]
            np.concatenate([row for row in numbers if len(row) > 1]).astype("<i4").tofile(stream)

            def peer(made: list[Peer] = peers, blank: Peer = first) -> None:
                import copy

                model = copy.deepcopy(blank)
                model.train(sentences, total_examples=model.corpus_count, epochs=options.epochs)
                made.append(model)

            def own(made: list[Word2Vec] = ours, counts=counts, settings=settings, stream=stream) -> None:
                from bertsmith.progress import Progress

                model = Word2Vec(counts, settings)
                with Progress("training") as progress:
                    for epoch in range(options.epochs):
                        model.train_epoch(WordStream(stream), epoch, progress)
                made.append(model)

            seconds = interleave({"ours": own, "gensim": peer}, options.rounds)
            total = int(counts.sum()) * options.epochs
            result[name] = {
                "words": int(counts.sum()),
                "vocabulary": len(words),
                "block": ours[0].block,
                "words_per_second": {side: spread([total / one for one in times]) for side, times in seconds.items()},
                "speed_against_gensim": ratio_summary(seconds["ours"], seconds["gensim"]),
                "other_half_found": {
                    "ours": quality(words, ours[0].vectors, chosen),
                    "gensim": quality(words, peers[0].wv.vectors, chosen),
                },
            }
            print(name, result[name])
    about = {"machine": machine(), "gensim": importlib.metadata.version("gensim"), "epochs": options.epochs}
    name = f"word_vectors_{machine_label(about['machine'])}_gensim-{about['gensim']}"
    write_result(name, {**about, "cases": result})


if __name__ == "__main__":
    main()
