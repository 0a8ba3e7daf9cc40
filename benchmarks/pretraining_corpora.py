"""What the corpus contributes to what a model learns: the size of its vocabulary, and copies in its text.

    python benchmarks/pretraining_corpora.py --what pieces --corpus gutenberg --data DIR [--sizes 4000,8000,16000]
    python benchmarks/pretraining_corpora.py --what duplicates --corpus docstrings --data DIR

Every model has the size tiny and the default recipe, and gets `--minutes` of the processor, as in `learning_speed.py`,
whose parts this uses. With `pieces`, vocabularies of several sizes are learned from the same text. Losses of different
vocabularies cannot be compared, so the probes are what counts. With `duplicates`, 4 % of the documents are set aside,
and a corpus of the others is built as it is and without near-duplicates and boilerplate. All models are scored on the
same held-out rows: of the documents set aside that are not near-duplicates of others. The vocabulary is that of the
text as it is.

Each run appends a line to results/NAME.jsonl; runs that are already there are skipped.
"""

import argparse
import contextlib
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from unittest import mock

import learning_speed
import numpy as np
import torch
from harness import RESULTS, machine, machine_label
from learning_speed import HELD_OUT, Bench, parse
from learning_speed_report import append_line, read_lines
from model_scores import HeldOutRows

from bertsmith.text.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.corpus.duplicates import near_duplicates
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.docstrings import docstring_documents
from bertsmith.text.documents.readers import Document, read_documents
from bertsmith.text.documents.words import count_files
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies.learn import learn_vocabulary

ASIDE = 0.04  # of the documents


def bench_of(options: argparse.Namespace, work: Path) -> Bench:
    """The parts of learning_speed.py for the corpus in WORK/CORPUS/corpus, which is built if it is not there."""
    values = {"corpus": options.corpus, "minutes": options.minutes, "work": work, "data": options.data, "size": "tiny"}
    return Bench(parse([f"--{name}={value}" for name, value in values.items()]))


def of_pieces(options: argparse.Namespace) -> dict[str, Bench]:
    """One bench per size of the vocabulary."""
    benches = {}
    for size in map(int, options.sizes.split(",")):
        with mock.patch.object(learning_speed, "VOCABULARY_SIZE", size):
            benches[f"{size:,} pieces"] = bench_of(options, options.work / f"pieces-{size}")
    return benches


def documents_of(options: argparse.Namespace) -> list[Document]:
    """The documents of the text."""
    if options.corpus == "docstrings":
        with contextlib.closing(docstring_documents(workers=1)) as documents:
            return list(documents)
    novels = sorted(options.data.glob("pretrain_gutenberg100/*.txt"))
    return list(read_documents([path for path in novels if not path.name.startswith("README")]))


def of_duplicates(options: argparse.Namespace) -> dict[str, Bench]:
    """The text as it is, and without copies; both with the same held-out rows."""
    work = options.work / "duplicates"
    if not (work / "held-out").exists():
        documents = documents_of(options)
        order = np.random.default_rng(1).permutation(len(documents)).tolist()
        count = round(ASIDE * len(documents))
        aside, kept = ([documents[number] for number in sorted(part)] for part in (order[:count], order[count:]))
        text = work / "text.txt"
        work.mkdir(parents=True, exist_ok=True)
        text.write_text("\n".join("\n".join([*document.sentences, ""]) for document in kept) + "\n", encoding="utf-8")
        rules = TextRules()
        tokenizer = WordPieceTokenizer(
            learn_vocabulary(count_files([text], rules).total, learning_speed.VOCABULARY_SIZE), rules
        )
        clean = CorpusSettings(remove_duplicates="near", remove_boilerplate=True)
        for name, settings in (("plain", CorpusSettings()), ("clean", clean)):
            build_corpus(kept, tokenizer, work / name / options.corpus / "corpus", **vars(settings), workers=1)
        build_corpus([*kept, *aside], tokenizer, work / "all", held_out=0, workers=1)
        new = near_duplicates(Corpus.open(work / "all")).of[len(kept) :] < 0
        rest = [document for document, is_new in zip(aside, new, strict=True) if is_new]
        print(f"{len(kept):,} documents; {len(aside):,} set aside, of which {len(rest):,} are not near-duplicates")
        build_corpus(rest, tokenizer, work / "held-out", held_out=0.98, workers=1)
    benches = {name: bench_of(options, work / name) for name in ("plain", "clean")}
    for bench in benches.values():
        bench.held_out = HeldOutRows.of(
            Corpus.open(work / "held-out"), length=bench.options.length, rows=bench.options.rows
        )
    return benches


def table(lines: Sequence[dict]) -> str:
    """All runs in Markdown."""
    tasks = list(lines[0]["probes"])
    rows = [f"| {' | '.join(['corpus', 'tokens', 'seed', 'steps', 'seconds', 'held-out loss', *tasks])} |"]
    rows.append("|---" * (6 + len(tasks)) + "|")
    for line in sorted(lines, key=lambda line: (line["variant"], line["seed"])):
        cells = [line["variant"], f"{line['tokens']:,}", str(line["seed"]), str(line["steps"])]
        cells += [f"{line['seconds']:.0f}", f"{line['loss']:.3f}", *(f"{line['probes'][task]:.3f}" for task in tasks)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Trains what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=["pieces", "duplicates"], required=True)
    parser.add_argument("--corpus", choices=sorted(HELD_OUT), required=True)
    parser.add_argument("--sizes", default="4000,8000,16000", help="of the vocabulary [4000,8000,16000]")
    parser.add_argument("--minutes", type=float, default=10 / 6, help="processor minutes of each run [1.67]")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/SST-2, cls/nltk/qc and the novels")
    parser.add_argument("--work", type=Path, required=True, help="folder that keeps the corpora")
    options = parser.parse_args()
    torch.set_num_threads(1)
    described = machine()
    name = f"pretraining_corpora_{options.what}_{options.corpus}_{machine_label(described)}_torch-{torch.__version__}"
    path = RESULTS / f"{name}.jsonl"
    benches = of_pieces(options) if options.what == "pieces" else of_duplicates(options)
    for seed in range(1, options.seeds + 1):
        for variant, bench in benches.items():
            key = {"variant": variant, "seed": seed, "corpus_digest": bench.digest}
            if any(key.items() <= line.items() for line in read_lines(path)):
                continue
            result = {**bench.run("auto", Fraction(1), seed, None), **key, "tokens": bench.corpus.num_tokens}
            print({name: value for name, value in result.items() if name != "settings"}, flush=True)
            append_line(path, {**result, "machine": described})
    print(table(read_lines(path)))


if __name__ == "__main__":
    main()
