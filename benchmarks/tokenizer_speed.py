"""Speed of WordPiece encoding of English text in MB/s, ours against `tokenizers` (line 1 of README.md).

    python benchmarks/tokenizer_speed.py [--vocab vocab.txt] [--text DIR ...] [--megabytes 100] [--rounds 5]

Without a vocabulary, texts and BERTSMITH_DATA, it is the vocabulary of the starter, and docstrings of the installed
packages are read.
Every line is a text. Files are read in the given order until there are enough megabytes. Duplicate lines are dropped,
because they would favour a word cache. Both sides get the same list of strings, use all cores and add no special
pieces. The peer is `encode_batch_fast`; its lists of ids are not converted to arrays, which saves it work that ours
includes.

There are two cases for ours: `cold` creates a new tokenizer in every round, so building tables and filling the cache is
timed; `warm` reuses one tokenizer, like a long run. Before timing, the ids of the whole text are compared. Lines that
differ are counted and shown; docs/decisions/0009-unicode-tables.md lists the characters on which they may differ.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
import tokenizers
from harness import docstring_files, interleave, machine, ratio_summary, spread, write_result
from tokenizers import Tokenizer as PeerTokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertsmith.models.checkpoints.packaged import STARTER, packaged_folder
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

SUFFIXES = (".txt", ".tsv")


def read_lines(paths: list[Path], limit: float) -> tuple[list[str], dict[str, float]]:
    """(distinct lines of up to `limit` bytes in total, megabytes read from each path)."""
    lines: dict[str, None] = {}
    taken: dict[str, float] = {}
    total = 0
    for path in paths:
        files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES) if path.is_dir() else [path]
        before = total
        for file in files:
            for line in file.read_text(encoding="utf-8", errors="replace").split("\n"):
                if total >= limit:
                    break
                if line not in lines:
                    lines[line] = None
                    total += len(line.encode()) + 1
        taken[path.name] = round((total - before) / 1e6, 2)
    return list(lines), taken


def peer_tokenizer(vocabulary: Vocabulary, *, lowercase: bool) -> PeerTokenizer:
    """The tokenizer of the other library, with the same vocabulary and rules."""
    peer = PeerTokenizer(WordPiece(dict(vocabulary.index), unk_token="[UNK]", max_input_chars_per_word=100))
    peer.normalizer = BertNormalizer(lowercase=lowercase)
    peer.pre_tokenizer = BertPreTokenizer()
    return peer


def differing_lines(ours: Encoded, peer: PeerTokenizer, lines: list[str]) -> list[str]:
    """The lines on which the ids differ."""
    different = []
    for begin in range(0, len(lines), 50_000):
        batch = lines[begin : begin + 50_000]
        encodings = peer.encode_batch_fast(batch, add_special_tokens=False)
        different += [
            line
            for number, (line, encoding) in enumerate(zip(batch, encodings, strict=True), start=begin)
            if not np.array_equal(ours[number], encoding.ids)
        ]
    return different


def main() -> None:
    """Runs the benchmark and writes its result file."""
    data = os.environ.get("BERTSMITH_DATA")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=Path, default=data and Path(data, "vocab", "bert-base-uncased-vocab.txt"))
    parser.add_argument("--text", type=Path, action="append", help="a file, or a folder of .txt and .tsv files")
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cased", action="store_true")
    parser.add_argument("--name", default="tokenizer_speed", help="name of the result file")
    arguments = parser.parse_args()
    folders = ("pretrain_gutenberg100", "pretrain_misc", "glue", "nli")
    texts = arguments.text or [Path(data, folder) for folder in folders if data]
    arguments.vocab = arguments.vocab or packaged_folder(STARTER) / "vocab.txt"
    with tempfile.TemporaryDirectory() as folder:
        lines, taken = read_lines(texts or docstring_files(Path(folder)), arguments.megabytes * 1e6)
    megabytes = sum(taken.values())
    vocabulary = Vocabulary.load(arguments.vocab)
    rules = TextRules(lowercase=not arguments.cased)
    peer = peer_tokenizer(vocabulary, lowercase=not arguments.cased)
    warm = WordPieceTokenizer(vocabulary, rules)
    encoded = warm.encode_batch(lines)
    different = differing_lines(encoded, peer, lines)
    print(f"{megabytes:.1f} MB in {len(lines)} lines, {len(encoded.ids)} ids; {len(different)} lines differ")
    for line in different[:5]:
        print("  differs:", repr(line[:200]))

    seconds = interleave(
        {
            "ours_cold": lambda: WordPieceTokenizer(Vocabulary.load(arguments.vocab), rules).encode_batch(lines),
            "peer": lambda: peer.encode_batch_fast(lines, add_special_tokens=False),
            "ours_warm": lambda: warm.encode_batch(lines),
        },
        arguments.rounds,
    )
    rates = {name: spread([megabytes / second for second in times]) for name, times in seconds.items()}
    ratios = {name: ratio_summary(seconds[name], seconds["peer"]) for name in ("ours_cold", "ours_warm")}
    print({name: rate["median"] for name, rate in rates.items()}, {name: r["median"] for name, r in ratios.items()})
    write_result(
        arguments.name,
        {
            "machine": machine(),
            "peer": f"tokenizers {tokenizers.__version__}, encode_batch_fast, all cores",
            "text_megabytes": taken,
            "lines": len(lines),
            "ids": len(encoded.ids),
            "cased": arguments.cased,
            "vocabulary": vocabulary.digest,
            "lines_with_different_ids": len(different),
            "first_of_them": different[:5],
            "megabytes_per_second": rates,
            "times_as_fast_as_peer": ratios,
            "seconds": {name: [round(second, 4) for second in times] for name, times in seconds.items()},
        },
    )


if __name__ == "__main__":
    main()
