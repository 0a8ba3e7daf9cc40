"""The same task on another data set: what a model that learned one set of film reviews knows of two others.

    python benchmarks/film_reviews.py --data DIR --work WORK --model NAME=FOLDER [--model ...] [--most 4000] [--seeds 3]

Data sets, from `glue`, `cls` and `noisy_labels` of DIR: SST-2 (phrases, sentences), rt-polarity (sentences; SST-2 was
made of them, so no sentence that is scored in one of the two sets is trained on in the other) and IMDB (whole
reviews). Every model learns --most examples of each set and is scored on the others without further training, next to
a bag of words (`transfer_matrix.py --direct`).

Source: Pang and Lee (2005) for rt-polarity; Socher et al. (2013) for SST-2; Maas et al. (2011) for IMDB.
"""

import argparse
import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import transfer_matrix
from harness import machine, machine_label

Row = tuple[str, str]
EVERY = 3  # of the lines of rt-polarity that SST-2 does not have, every one of this many is scored


def _plain(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def _sst2(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["sentence"].strip(), row["label"]) for row in reader]


def _imdb(path: Path) -> list[Row]:
    rows = map(json.loads, path.read_text(encoding="utf-8").strip().split("\n"))
    return [(" ".join(row["text"].replace("<br />", " ").split()), str(row["label"])) for row in rows]


def data_sets(data: Path) -> dict[str, tuple[list[Row], list[Row]]]:
    """The examples to learn and those to score of each data set: texts, and 1 for positive or 0 for negative."""
    phrases = tuple(_sst2(data / "glue" / "SST-2" / f"{name}.tsv") for name in ("train", "dev"))
    learned, scored = ({_plain(text) for text, _ in rows} for rows in phrases)
    sentences: tuple[list[Row], list[Row]] = ([], [])
    for name, label in (("neg", "0"), ("pos", "1")):
        path = data / "cls" / "nltk" / "sentence_polarity" / f"rt-polarity.{name}"
        for number, line in enumerate(path.read_text(encoding="latin-1").splitlines()):
            plain = _plain(line)
            if plain not in scored:
                sentences[number % EVERY == 0 and plain not in learned].append((line.strip(), label))
    reviews = tuple(_imdb(data / "noisy_labels" / f"imdb_{name}.jsonl") for name in ("train", "test"))
    return {
        "sst-2": (phrases[0], phrases[1]),
        "rt-polarity": sentences,
        "imdb": (reviews[0], reviews[1]),
    }


def _write(path: Path, rows: Iterable[Row]) -> None:
    lines = (json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    path.write_text("".join(lines), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Writes the files of the data sets and measures every pair of them; returns the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder with `glue`, `cls` and `noisy_labels`")
    parser.add_argument("--work", type=Path, required=True, help="folder of what was measured; a run resumes from it")
    options, others = parser.parse_known_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    command = ["--direct", "--work", str(options.work), "--out", f"film_reviews_{machine_label(machine())}", *others]
    for name, parts in data_sets(options.data).items():
        paths = [options.work / f"{name}-{part}.jsonl" for part in ("train", "dev")]
        for path, rows in zip(paths, parts, strict=True):
            _write(path, rows)
        command += ["--task", f"{name}:classification={','.join(map(str, paths))}"]
    return transfer_matrix.main(command)


if __name__ == "__main__":
    main()
