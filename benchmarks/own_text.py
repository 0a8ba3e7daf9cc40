"""What pre-training on text of a domain buys on a task of it, by amounts of text and of labels.

    python benchmarks/own_text.py --data DIR --work WORK [--domains mail law] [--megabytes 1 10] [--table]

Four domains, each with a classification of its texts: mail (AESLC; the topic, which is a word of the subject line that
the model does not see), law (licences and agreements; their category), biomedicine (sentences of abstracts, and a book
of anatomy; whether a sentence names a disease) and technical documentation (docstrings of the packages that are
installed here; which package). Texts of dev rows are not part of the text of their domain.

The arms: the starter and MiniLM as they are, each after `bertsmith.adapt` continued its pre-training on the text, a new
model of the shape of the starter with a vocabulary of the text, and a bag of words. All are fine-tuned with the default
recipe on the same labels. A gain is the accuracy of an arm minus that of the model that a person would otherwise
fine-tune: of the starter, for the new model too, or of MiniLM; with the paired test of the project, over the rows of
all domains, of which each has as many. Each row takes its mean over the seeds.

A model is adapted once, whatever the seed, which is that of the draw of labels and of the fine-tuning. An adaptation
reads its text --passes times, but takes at most --most-steps steps of 32 rows of 128 tokens. A cell (domain, text, arm,
labels, seed) that is in the result file is not repeated, and an adaptation in WORK neither. Everything runs on one
thread; the processor seconds are in the cells. --table measures nothing, but writes the tables of the package and of
docs/adaptation.md from the result files.
"""

import argparse
import itertools
import json
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean as mean
from typing import Any

import numpy as np
import torch
from harness import RESULTS, begun, write_result

import bertsmith
from bertsmith.base.core.progress import counted, quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import digest_file, read_json, read_json_lines, write_json, write_text
from bertsmith.recipes.results.finished_run import PREDICTIONS_FILE
from bertsmith.tasks.metrics.uncertainty import paired_test
from bertsmith.text.documents.docstrings import docstring_documents
from bertsmith.text.documents.sentences import split_sentences
from bertsmith.training.planning.gains import FILE, NEW_MODEL, Gain, table_text

DEV = 500  # rows of each domain
BYTES_A_STEP = 18_000  # of English text in 32 rows of 128 tokens, about
BAG = "bag of words"
# Of the arms that read the text: the model that they are compared with, the way of `adapt`, the name in the table.
TRAINED = {
    "adapted starter": ("starter", "keep", "starter"),
    "adapted minilm": ("minilm", "keep", "minilm"),
    "new model": ("starter", "new", NEW_MODEL),
}
ARMS = ("starter", BAG, "adapted starter", "minilm", "adapted minilm", "new model")
TOPICS = ("agreement", "gas", "meeting", "power", "report", "trading", "update")
CATEGORIES = ("Copyleft", "Copyleft Limited", "Permissive", "Proprietary Free")
PACKAGES = 8
WORDS = 100  # of a row
PAGE, MARK, END = (
    Path(__file__).parent.parent / "docs/adaptation.md",
    "<!-- table of gains -->",
    "<!-- end of table -->",
)
BLOCK = re.compile(f"{MARK}\n.*?{END}", re.DOTALL)
REACH = 0.8  # of an amount of text that a domain must have

Row = tuple[str, str]


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Fills in the cells that are missing, and prints the gains; returns the content of the result file."""
    options = _options(arguments)
    torch.set_num_threads(1)
    if options.table:
        return write_tables()
    described, name, cells = begun("own_text", options.out)
    settings = {"most_steps": options.most_steps, "dev_rows": DEV}
    payload: dict[str, Any] = {"machine": described, "settings": settings, "cells": cells}
    for seed, megabytes, domain, arm, labels in itertools.product(
        options.seeds, options.megabytes, options.domains, options.arms, options.labels
    ):
        budget = f"{megabytes:g} MB x {options.passes:g}, " if arm in TRAINED else ""
        key = f"{domain}, {budget}{arm}, {labels} labels, seed {seed}"
        if key in cells:
            continue
        material = _material(domain, options)
        values: dict[str, Any] = {"domain": domain, "arm": arm, "labels": labels, "seed": seed}
        model = str(getattr(options, TRAINED[arm][0] if arm in TRAINED else arm, options.starter))
        if arm in TRAINED:
            text = _text(material["documents"], megabytes, options.work / "texts" / f"{domain}-{megabytes:g}.txt")
            if text is None:
                continue
            out = options.work / "adapted" / re.sub(r"\W+", "-", f"{domain}-{budget}-{arm}")
            values |= _adapted(arm, model, text, out, megabytes, options)
            model = str(out / "model")
        cells[key] = {**values, **_fine_tuned(model, arm, material, labels, seed)}
        write_result(name, payload)
        print(key, cells[key]["accuracy"], cells[key]["finetuning_seconds"], flush=True)
    for gain in gains_of(cells.values()):
        print(f"{gain.arm}, {gain.megabytes:g} MB: {gain.line()}")
    return payload


def all_cells() -> dict[str, Any]:
    """The cells of all result files."""
    return {
        key: cell for file in sorted(RESULTS.glob("own_text_*.json")) for key, cell in read_json(file)["cells"].items()
    }


def write_tables() -> dict[str, Any]:
    """Writes the table of the package and that of the page from the result files; returns their cells."""
    cells = all_cells()
    gains = gains_of(cells.values())
    write_text(FILE, table_text(gains))
    write_text(PAGE, with_table(PAGE.read_text(encoding="utf-8"), gains))
    return cells


def with_table(page: str, gains: Sequence[Gain]) -> str:
    """A page whose table is of these gains."""
    lines = ["| pre-training on text of the domain | text | labels | as it is | bag of words | gain | do this |"]
    lines.append("|---|---|---|---|---|---|---|")
    for gain in gains:
        arm = next(arm for arm, (_, _, name) in TRAINED.items() if name == gain.arm).replace("minilm", "MiniLM")
        text = f"{gain.megabytes:g} MB, read {gain.passes:.2g} times; {counted(gain.domains, 'domain')}"
        scores = f"{100 * gain.before:.1f} | {100 * gain.bag:.1f}"
        lines.append(f"| {arm} | {text} | {gain.labels:,} | {scores} | {gain.shown} | {gain.advice} |")
    if not gains:
        lines = ["Nothing is measured yet."]
    return BLOCK.sub(lambda _: "\n".join([MARK, "", *lines, "", END]), page)


def gains_of(cells: Iterable[Mapping[str, Any]]) -> list[Gain]:
    """The gain of each arm with each amount of text and of labels, over the domains and seeds that have its cells.

    Of several numbers of passes over a text, the largest one counts.
    """
    names = ("domain", "arm", "megabytes", "passes", "labels", "seed")
    by_key = {tuple(cell.get(name) for name in names): cell for cell in cells}
    groups: dict[tuple[Any, ...], dict[str, list[list[Mapping[str, Any]]]]] = {}
    for (domain, arm, megabytes, passes, labels, seed), cell in by_key.items():
        if arm in TRAINED:
            others = [by_key.get((domain, other, None, None, labels, seed)) for other in (TRAINED[arm][0], BAG)]
            if None not in others:
                group = groups.setdefault((arm, megabytes, labels, passes), {})
                group.setdefault(domain, []).append([cell, *(other for other in others if other is not None)])
    last = {key[:3]: key for key in sorted(groups)}
    return [
        _gain(*last[key], groups[last[key]]) for key in sorted(last, key=lambda key: (ARMS.index(key[0]), *key[1:]))
    ]


def _gain(
    arm: str, megabytes: float, labels: int, _: float, domains: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]
) -> Gain:
    """The gain over some domains.

    Args:
        domains: for each domain and seed, the cells of the arm, of the model as it is and of the bag of words.
    """
    right = [
        np.concatenate([np.mean([_right(triple[side]) for triple in seeds], axis=0) for seeds in domains.values()])
        for side in range(3)
    ]
    test = paired_test(right[0], right[1])
    first = [seeds[0][0] for seeds in domains.values()]
    return Gain(
        arm=TRAINED[arm][2],
        megabytes=megabytes,
        words=round(mean(cell["words"] for cell in first)),
        passes=round(mean(cell["passes_read"] for cell in first), 2),
        labels=labels,
        domains=len(domains),
        seeds=min(len(seeds) for seeds in domains.values()),
        rows=len(right[0]),
        before=round(float(right[1].mean()), 4),
        bag=round(float(right[2].mean()), 4),
        difference=round(test.difference, 4),
        low=round(test.low, 4),
        high=round(test.high, 4),
    )


def _right(cell: Mapping[str, Any]) -> list[int]:
    """Whether each answer of a cell is right."""
    return [int(bit) for bit in f"{int(cell['right'], 16):0{cell['rows']}b}"]


def _adapted(
    arm: str, model: str, text: Path, out: Path, megabytes: float, options: argparse.Namespace
) -> dict[str, Any]:
    """What an adaptation took, after it was made, resumed or read."""
    record = out / "cell.json"
    if not record.exists():
        passes = options.passes * text.stat().st_size / BYTES_A_STEP
        began = time.process_time()
        with quiet():
            report = bertsmith.adapt(
                model, [text], out, general=[text], vocabulary=TRAINED[arm][1],
                steps=max(1, min(options.most_steps, round(passes))), score_words=2000,
                resume=(out / "settings.json").exists(),
            ).report  # fmt: skip
        read = re.search(r"([\d.e+-]+) passes over the text", report["trained"])
        assert read is not None
        values = {
            "megabytes": megabytes,
            "passes": options.passes,
            "bytes": text.stat().st_size,
            "digest": digest_file(text),
            "words": report["forecast"]["words"],
            "passes_read": float(read[1]),
            "trained": report["trained"],
            "losses": report["losses"]["field"],
            "adaptation_seconds": round(time.process_time() - began, 1),
        }
        write_json(record, values)
    return dict(read_json(record))


def _fine_tuned(model: str, arm: str, material: Mapping[str, Any], labels: int, seed: int) -> dict[str, Any]:
    """The answers to the dev rows of a model that was fine-tuned on some labels, and the processor seconds."""
    began = time.process_time()
    order = generator(seed, "labels of a domain").permutation(len(material["train"]))[:labels]
    with quiet(), tempfile.TemporaryDirectory() as folder:
        out, options = Path(folder) / "run", {"keep": "bag"} if arm == BAG else {"seeds": 1, "seed": seed}
        files = [Path(folder) / f"{part}.jsonl" for part in ("train", "dev")]
        for file, rows in zip(files, ([material["train"][n] for n in order], material["dev"]), strict=True):
            write_text(file, "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
        bertsmith.finetune(model, "classification", out, train=files[0], dev=files[1], baselines=False, **options)
        lines = sorted(read_json_lines(out / PREDICTIONS_FILE), key=lambda line: int(line["id"]))
    right = "".join("1" if line["prediction"]["label"] == line["gold"] else "0" for line in lines)
    return {
        "accuracy": round(right.count("1") / len(right), 4),
        "train_rows": len(order),
        "rows": len(right),
        "right": f"{int(right, 2):x}",
        "finetuning_seconds": round(time.process_time() - began, 1),
    }


def _text(documents: Sequence[str], megabytes: float, path: Path) -> Path | None:
    """A file with about that much text: documents in the same order for every amount; None if there is less.

    A smaller text is the beginning of a larger one.
    """
    if not path.exists():
        taken, size = list[str](), 0
        for index in generator(1, "documents of a domain").permutation(len(documents)):
            if size >= megabytes * 10**6:
                break
            taken.append(documents[index])
            size += len(taken[-1].encode()) + 2
        if size < REACH * megabytes * 10**6:
            print(f"{path.stem}: only {size / 10**6:.1f} MB of text")
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "\n\n".join(taken) + "\n")
    return path


def _material(domain: str, options: argparse.Namespace) -> dict[str, Any]:
    """The documents of a domain, and the rows of its task to draw labels from and to score; read once, kept in WORK."""
    path = options.work / "material" / f"{domain}.json"
    if not path.exists():
        documents, train, dev = DOMAINS[domain](options.data)
        known = {text for text, _ in train}
        dev = [row for row in dev if row[0] not in known]
        chosen = generator(1, "dev rows of a domain").permutation(len(dev))[:DEV]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"documents": documents, "train": train, "dev": [dev[index] for index in sorted(chosen)]})
    return dict(read_json(path))


def _mail(data: Path) -> tuple[list[str], list[Row], list[Row]]:
    """E-mails of AESLC: those of the training file as text, and as rows those whose subject names a single topic."""
    parts: list[list[Row]] = []
    documents = []
    for name in ("train", "dev", "test"):
        mails = read_json_lines(data / "summarization" / f"aeslc_{name}.jsonl")
        if name == "train":
            documents = [mail["body"] for mail in mails]
        topics = [sorted(set(TOPICS) & set(re.findall(r"[a-z]+", mail["subject"].lower()))) for mail in mails]
        parts.append(
            [(_row(mail["body"]), named[0]) for mail, named in zip(mails, topics, strict=True) if len(named) == 1]
        )
    return documents, parts[0], parts[1] + parts[2]


def _law(data: Path) -> tuple[list[str], list[Row], list[Row]]:
    """Licences and agreements of ScanCode's collection (files of licensedcode-data), each with its category."""
    texts, rows = list[str](), list[Row]()
    for file in sorted((data / "licences").glob("*.LICENSE")):
        header, _, body = file.read_text(encoding="utf-8").removeprefix("---\n").partition("\n---\n")
        category = re.search(r"^category: (.*)$", header, re.MULTILINE)
        if category is not None and len(body.split()) >= WORDS // 2:
            texts.append(body.strip())
            rows.append((_row(body), category[1]))
    train, dev = _divided(len(rows))
    return (
        [texts[index] for index in train],
        *([rows[index] for index in part if rows[index][1] in CATEGORIES] for part in (train, dev)),
    )


def _biomedicine(data: Path) -> tuple[list[str], list[Row], list[Row]]:
    """Abstracts of all files with tags but the scored ones of NCBI disease, a book; as rows the sentences of NCBI."""
    documents = []
    for file in sorted((data / "ner" / "bio_scibert").glob("*/*.txt")):
        if file.parent.name != "NCBI-disease" or file.name == "train.txt":
            sentences = [" ".join(words) for words, _ in _tagged(file)]
            documents += ["\n".join(sentences[n : n + 10]) for n in range(0, len(sentences), 10)]
    for file in sorted((data / "text_modern" / "openstax" / "anatomy_physiology").glob("*.txt")):
        documents.append("\n".join(split_sentences(file.read_text(encoding="utf-8"))))
    parts: list[list[Row]] = []
    for name in ("train", "dev"):
        sentences_with_tags = _tagged(data / "ner" / "bio_scibert" / "NCBI-disease" / f"{name}.txt")
        parts.append([(" ".join(words), "yes" if set(tags) != {"O"} else "no") for words, tags in sentences_with_tags])
    return documents, parts[0], parts[1]


def _tagged(file: Path) -> Iterator[tuple[list[str], list[str]]]:
    """The words and tags of each sentence of a file with a word a line."""
    for block in file.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = [line.split() for line in block.split("\n") if line.strip() and not line.startswith("-DOCSTART-")]
        if lines:
            yield [line[0] for line in lines], [line[-1] for line in lines]


def _documentation(data: Path) -> tuple[list[str], list[Row], list[Row]]:
    """Docstrings of the standard library and of installed packages, a module each; as rows those of a few packages."""
    modules = [(module.source.split(".")[0], module.sentences) for module in docstring_documents(workers=1)]
    counts: dict[str, int] = {}
    for package, sentences in modules:
        counts[package] = counts.get(package, 0) + (sum(len(text.split()) for text in sentences) >= WORDS)
    largest = sorted(counts, key=lambda package: (-counts[package], package))[:PACKAGES]
    train, dev = _divided(len(modules))
    return (
        ["\n".join(modules[index][1]) for index in train],
        *(
            [
                (_row(" ".join(modules[index][1])), modules[index][0])
                for index in part
                if modules[index][0] in largest and sum(len(text.split()) for text in modules[index][1]) >= WORDS
            ]
            for part in (train, dev)
        ),
    )


DOMAINS = {"mail": _mail, "law": _law, "biomedicine": _biomedicine, "documentation": _documentation}


def _divided(count: int) -> tuple[list[int], list[int]]:
    """The indices to train on and those to score, a third."""
    order = generator(1, "division of a domain").permutation(count).tolist()
    return sorted(order[count // 3 :]), sorted(order[: count // 3])


def _row(text: str) -> str:
    """The first words of a text, on a line."""
    return " ".join(text.split()[:WORDS])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with summarization/, licences/, ner/, text_modern/")
    parser.add_argument("--work", type=Path, help="folder of texts and adapted models, kept for the next call")
    parser.add_argument("--starter", default="starter", help="another model in its place")
    parser.add_argument("--minilm", default="minilm", help="MiniLM, if it is not installed: its folder")
    parser.add_argument("--domains", nargs="+", default=list(DOMAINS), choices=list(DOMAINS))
    parser.add_argument("--megabytes", nargs="+", type=float, default=[1.0, 10.0, 60.0])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--labels", nargs="+", type=int, default=[100, 1000])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--passes", type=float, default=1.0, help="over the text, in each adaptation")
    parser.add_argument("--most-steps", type=int, default=1200, help="of each adaptation")
    parser.add_argument(
        "--table",
        action="store_true",
        help="measure nothing, but write the tables of the package and of docs/adaptation.md",
    )
    parser.add_argument("--out", help="name of the result file, without .json")
    options = parser.parse_args(arguments)
    if not options.table and None in (options.data, options.work):
        parser.error("expected --data and --work, or --table")
    return options


if __name__ == "__main__":
    main()
