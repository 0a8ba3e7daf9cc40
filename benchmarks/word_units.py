"""Characters, WordPieces and words with the same budget: what a language model of each predicts, and what it is for.

    python benchmarks/word_units.py --text FILE --aside FILE --data DIR --work WORK [--tokens 2000000] [--seeds 1]

Three models read the same text from left to right, each for as many tokens: tokens are characters (which spell a word
as pieces of one character), the WordPieces of a vocabulary of --pieces, or the --words most frequent words, where any
other word is [UNK]. So a model of characters has read a fifth of the text that one of words has.

The loss is that of a word of the lines of --aside, which no model has read, in bits. An unknown word costs what its
[UNK] does, and, in `bits_with_spelling`, also its letters by their frequencies, which a reader would still have to
guess. The tasks are TREC and SST-2 of DIR: --labels examples, fine-tuned with the recipe of `finetune`, accuracy.

Corpora and runs are kept in WORK; what is there is not made again.
"""

import argparse
import csv
import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from harness import begun, write_result
from labelled_rows import rows_of

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.inference.predictors.perplexity import Perplexity
from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.documents.words import count_files
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary

UNITS = ("characters", "pieces", "words")
TASKS = ("trec", "sst-2")
LEAST = 5  # occurrences of a character that has a piece


def vocabulary_of(unit: str, counts: Mapping[str, int], options: argparse.Namespace) -> Vocabulary:
    """The vocabulary of a unit, from the counts of the words."""
    if unit == "pieces":
        return learn_vocabulary(counts, options.pieces)
    if unit == "words":
        often = sorted(counts, key=lambda word: (-counts[word], word))[: options.words]
        return Vocabulary([*SPECIAL_PIECES, *often])
    characters = letters_of(counts)
    often = sorted(character for character, count in characters.items() if count >= LEAST)
    return Vocabulary([*SPECIAL_PIECES, *often, *(f"##{character}" for character in often)])


def letters_of(counts: Mapping[str, int]) -> Counter[str]:
    """How often each character occurs."""
    characters = Counter[str]()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    return characters


def bits_of_spelling(tokenizer: WordPieceTokenizer, counts: Mapping[str, int], lines: list[str]) -> float:
    """The bits of the letters, and of the end, of every unknown word of some lines, by the frequencies in the text."""
    characters, known, bits = letters_of(counts), set(tokenizer.vocabulary.pieces), 0.0
    total = sum(characters.values()) + sum(counts.values())
    end = -math.log2(sum(counts.values()) / total)
    for line in lines:
        for word in basic_tokens(line, tokenizer.rules):
            if word not in known:
                bits += end - sum(math.log2(max(characters[character], 1) / total) for character in word)
    return bits


def arm_of(unit: str, seed: int, counts: Mapping[str, int], options: argparse.Namespace) -> dict[str, Any]:
    """What one model has learned; read if it was measured before."""
    folder = options.work / f"{unit}-{seed}"
    if (folder / "scores.json").is_file():
        return read_json(folder / "scores.json")
    corpus, begin = options.work / f"corpus-{unit}", time.process_time()
    if not corpus.exists():
        tokenizer = WordPieceTokenizer(vocabulary_of(unit, counts, options), TextRules())
        settings = CorpusSettings(form="lines", held_out=0.02)
        build_corpus([options.text], tokenizer, corpus, **vars(settings), workers=1)
    run = folder / "run"
    bertsmith.pretrain(
        corpus, run, size="tiny", objective="left-to-right", contiguous=True, max_length=128, tokens=options.tokens,
        seed=seed, device="cpu", resume=run.exists(),
    )  # fmt: skip
    seconds, model = time.process_time() - begin, bertsmith.load(run, device="cpu")
    lines = [line for line in options.aside.read_text(encoding="utf-8").splitlines() if line.strip()][: options.lines]
    whole = Perplexity.of_all(model.perplexity(lines))
    bits = whole.nll / math.log(2)
    spelled = bits_of_spelling(model.tokenizer, counts, lines) if unit == "words" else 0.0
    scores: dict[str, Any] = {
        "pieces_of_vocabulary": len(model.tokenizer.vocabulary),
        "words": whole.words,
        "tokens_per_word": round(whole.pieces / whole.words, 3),
        "unknown": round(whole.unknown / whole.pieces, 4),
        "bits_per_word": round(bits / whole.words, 3),
        "bits_with_spelling": round((bits + spelled) / whole.words, 3),
        "processor_seconds": round(seconds, 1),
    }
    for task in TASKS:
        files = {}
        for part, rows, most in zip(("train", "dev"), rows_of(task, options.data), (options.labels, 1000), strict=True):
            files[part] = folder / f"{task}-{part}.csv"
            chosen = sorted(generator(seed, f"{task} {part}").permutation(len(rows))[:most].tolist())
            with files[part].open("w", encoding="utf-8", newline="") as stream:
                csv.writer(stream).writerows([("text", "label"), *(rows[number] for number in chosen)])
        out = folder / task
        report = bertsmith.finetune(
            run, "classification", out, seeds=1, seed=seed, max_length=256, device="cpu", baselines=False,
            resume=out.exists(), **files,
        ).report  # fmt: skip
        scores[task] = round(report["scores"]["accuracy"]["mean"], 4)
    write_json(folder / "scores.json", scores)
    return scores


def main() -> None:
    """Trains and scores what is missing, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="a sentence a line, documents apart by empty lines")
    parser.add_argument("--aside", type=Path, required=True, help="text that is scored, in the same form")
    parser.add_argument("--data", type=Path, required=True, help="a folder with `cls` and `glue`")
    parser.add_argument("--work", type=Path, required=True, help="folder of corpora and runs")
    parser.add_argument("--tokens", type=int, default=2_000_000, help="of each pre-training")
    parser.add_argument("--pieces", type=int, default=4000)
    parser.add_argument("--words", type=int, default=16_000)
    parser.add_argument("--lines", type=int, default=2000, help="of --aside")
    parser.add_argument("--labels", type=int, default=1000, help="of each task")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    counts = count_files([options.text], TextRules()).total
    described, name, _ = begun("word_units")
    settings = {key: getattr(options, key) for key in ("tokens", "pieces", "words", "lines", "labels", "seeds")}
    cells: dict[str, list[dict[str, Any]]] = {}
    for seed in range(1, options.seeds + 1):
        for unit in UNITS:
            with quiet():
                cells.setdefault(unit, []).append(arm_of(unit, seed, counts, options))
            print(unit, seed, cells[unit][-1], flush=True)
            write_result(name, {"machine": described, "settings": settings, "units": cells})


if __name__ == "__main__":
    main()
