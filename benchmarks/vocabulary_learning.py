"""Vocabulary learning, ours against `WordPieceTrainer` of `tokenizers`: excess pieces, seconds (line 2 of README.md).

    python benchmarks/vocabulary_learning.py [--text DIR] [--size 8000 --size 30522] [--rounds 5]

Without a folder and BERTSMITH_DATA, docstrings of the installed packages are read.
Of the files of a folder, in sorted order, every tenth is held out, starting with the first. Both sides get the paths of
the other files and end with a vocabulary of the same size with the same five special pieces; reading and counting are
timed. Both follow the same rules for lower-casing, accents and words, and both may use all cores.

The excess is the number of pieces beyond one per basic token, per whitespace-separated chunk, in the held-out files.
The peer splits the held-out texts into basic tokens; a loop in this file, independent of both sides, splits those into
pieces.
"""

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from harness import docstring_files, interleave, machine, ratio_summary, spread, write_result
from tokenizers import Tokenizer as PeerTokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer

from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.text.vocabularies.word_counts import WordCounter

HELD_OUT_EVERY = 10


def learn_ours(files: list[Path], size: int) -> list[str]:
    """The pieces learned by our trainer."""
    counter = WordCounter(TextRules())
    for path in files:
        counter.add([path.read_text(encoding="utf-8")])
        counter.end_source()
    return list(learn_vocabulary(counter.counts, size).pieces)


def learn_peer(files: list[Path], size: int) -> list[str]:
    """The pieces learned by `tokenizers`."""
    tokenizer = PeerTokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    trainer = WordPieceTrainer(vocab_size=size, special_tokens=list(SPECIAL_PIECES), show_progress=False)
    tokenizer.train([str(path) for path in files], trainer)
    return list(tokenizer.get_vocab())


def held_out_words(files: list[Path]) -> tuple[Counter[str], int]:
    """(basic tokens of the files as split by the peer, number of whitespace-separated chunks)."""
    normalizer, cutter = BertNormalizer(lowercase=True), BertPreTokenizer()
    chunks: Counter[str] = Counter()
    for path in files:
        chunks.update(path.read_text(encoding="utf-8").split())
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word, _ in cutter.pre_tokenize_str(normalizer.normalize_str(chunk)):
            words[word] += count
    return words, chunks.total()


def num_pieces(word: str, pieces: Collection[str]) -> int:
    """Number of pieces of a word by the longest-match rule; 0 if the word is unknown."""
    start, number = 0, 0
    while start < len(word):
        end = len(word)
        while end > start and ("##" * (start > 0) + word[start:end]) not in pieces:
            end -= 1
        if end == start:
            return 0
        start, number = end, number + 1
    return number


def figures(words: Mapping[str, int], chunks: int, pieces: Collection[str]) -> dict[str, float]:
    """The excess and the fraction of unknown words, which count as one piece."""
    known = set(pieces)
    extra = unknown = 0
    for word, count in words.items():
        number = num_pieces(word, known)
        extra += count * max(number - 1, 0)
        unknown += count * (number == 0)
    total = sum(words.values())
    return {
        "excess": round(extra / chunks, 5),
        "pieces_per_chunk": round((total + extra) / chunks, 5),
        "unknown_rate": round(unknown / total, 7),
    }


def main() -> None:
    """Runs the benchmark and writes its result file."""
    data = os.environ.get("BERTSMITH_DATA")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=data and Path(data, "pretrain_gutenberg100"))
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--name", default="vocabulary_learning", help="name of the result file")
    arguments = parser.parse_args()
    temporary = tempfile.TemporaryDirectory()
    files = sorted(arguments.text.glob("*.txt")) if arguments.text else docstring_files(Path(temporary.name))
    held_out = files[::HELD_OUT_EVERY]
    training = [path for path in files if path not in held_out]
    megabytes = sum(path.stat().st_size for path in training) / 1e6
    words, chunks = held_out_words(held_out)
    print(f"{len(training)} files, {megabytes:.1f} MB; {len(held_out)} held out with {chunks} words")
    results: dict[str, Any] = {}
    for size in arguments.size or [8000, 30522]:
        ours, peer = learn_ours(training, size), learn_peer(training, size)
        assert len(ours) == len(peer) == size
        quality = {"ours": figures(words, chunks, ours), "peer": figures(words, chunks, peer)}
        less = 1 - quality["ours"]["excess"] / quality["peer"]["excess"]
        print(size, quality, f"{less:.1%} less excess")
        seconds = interleave(
            {
                "ours": lambda size=size: learn_ours(training, size),  # type: ignore[misc]
                "peer": lambda size=size: learn_peer(training, size),  # type: ignore[misc]
            },
            arguments.rounds,
        )
        ratio = ratio_summary(seconds["ours"], seconds["peer"])
        print(size, {side: spread(times) for side, times in seconds.items()}, ratio)
        results[str(size)] = {
            "held_out": quality,
            "less_excess_than_peer": round(less, 4),
            "seconds": {side: spread(times) for side, times in seconds.items()},
            "times_as_fast_as_peer": ratio,
        }
    write_result(
        arguments.name,
        {
            "machine": machine(),
            "peer": f"tokenizers {tokenizers.__version__}, WordPieceTrainer, all cores",
            "text": arguments.text.name if arguments.text else "docstrings",
            "training": {"files": len(training), "megabytes": round(megabytes, 2)},
            "held_out": {"files": [path.name for path in held_out], "chunks": chunks, "basic_tokens": words.total()},
            "least_pieces_per_chunk": round(words.total() / chunks, 5),
            "sizes": results,
        },
    )


if __name__ == "__main__":
    main()
