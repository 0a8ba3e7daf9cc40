"""Records model folders of format 1, as version 0.1.0 wrote them, with what the models answer.

The archive is kept, not recorded again: it shows that what was written is still read. It was made with the sources of
0.1.0 on the path, in two minutes:

    python tests/golden/record_folders_of_0_1_0.py

::

    folders/
        models/          finished models, by their kind
        answers.json     what the models say
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bertsmith

ARCHIVE = Path(__file__).with_name("folders_of_0_1_0.tar.gz")

PIECES = 120
CONFIG = {
    "vocab_size": PIECES,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}
WORDS = "the a good film bad plot fine poor in rome oslo anna bert was saw of and".split()

PRETRAIN = (
    "pretrain corpus --config config.json --max-length 16 --rows-per-step 4 --evaluation-rows 8 --steps 12 "
    "--learning-rate 2e-3 --device cpu --precision fp32"
)
FINETUNE = (
    "finetune --model models/pretrained --seeds 1 --epochs 10 --batch-size 6 --max-length 24 --learning-rate 2e-2 "
    "--dropout 0 --schedule constant --bias-correction --device cpu --precision fp32"
)
PRETRAINED = {
    "pretrained": "--objective mlm+nsp",
    "sentence-order": "--objective mlm+sop",
    "left-to-right": "--objective left-to-right",
}
# The task of each fine-tuned model, the ending of its file, and how a user asks for it.
TUNED = {
    "label": ("classification", "csv", "classify"),
    "labels": ("multi-label", "jsonl", "classify"),
    "pair": ("classification", "tsv", "classify"),
    "number": ("regression", "csv", "score"),
    "choice": ("swag", "csv", "choose"),
    "tags": ("ner", "conll", "tag"),
    "answer": ("squad", "json", "answer"),
    "answer-or-none": ("squad2", "json", "answer"),
}
ASKED: dict[str, list[Any]] = {
    "fill": ["the good [MASK] was in [MASK]", "[MASK] anna"],
    "next_sentence": [["the film was good", "anna saw it"], ["a poor plot", "rome and oslo"]],
    "embed": ["the good film", "anna was in oslo"],
    "classify": ["the good film", "a bad plot of bert and anna"],
    "score": ["good good film", "the plot"],
    "choose": [["the film", ["was good", "was bad", "in rome"]]],
    "tag": [["anna", "saw", "the", "film", "in", "Rome"], ["oslo"]],
    "answer": [["who ?", "a film in oslo was of anna and the plot was fine"], ["where ?", "bert saw rome"]],
}
PAIRS = [["the good film", "a bad plot"], ["anna", "in rome"]]


def answers_of(folder: Path, methods: Sequence[str], is_pair: bool = False) -> dict[str, Any]:
    """What the model in a folder says when it is loaded and asked, as plain values, by the method."""
    model = bertsmith.load(folder, device="cpu")
    result = {}
    for method in methods:
        items = PAIRS if is_pair and method == "classify" else ASKED[method]
        result[method] = plain(getattr(model, method)([tuple(item) for item in items] if _is_paired(items) else items))
    return result


def plain(value: Any) -> Any:
    """Answers as JSON has them."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def methods_of(kind: str) -> list[str]:
    """The methods that answer for a kind of model."""
    if kind in TUNED:
        return [TUNED[kind][2], "embed"]
    if kind in ("pretrained", "google"):
        return ["fill", "next_sentence", "embed"]
    return {"int8": ["classify"], "sentence-order": ["fill", "embed"], "left-to-right": ["embed"]}[kind]


def write_data(folder: Path) -> None:
    """The text and the labelled examples."""
    draws = np.random.default_rng(0)

    def some(count: int) -> str:
        return " ".join(draws.choice(WORDS, count).tolist())

    documents = ["\n".join(f"{some(6).capitalize()}." for _ in range(4)) for _ in range(30)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    data = folder / "data"
    data.mkdir()
    label, pair, number, choice = ["text,label"], ["text\ttext2\tlabel"], ["text,label"], []
    labels, tags, answer, none = [], [], [], []
    choice.append("id,sent1,sent2,ending0,ending1,ending2,label")
    for line in range(18):
        good = "good" if line % 2 else "bad"
        person, city = ("anna", "bert")[line % 2], ("rome", "oslo")[line // 2 % 2]
        label.append(f"{some(3)} {good},{good}")
        pair.append(f"{some(3)}\t{good} {some(2)}\t{good}")
        number.append(f"{some(3)} {' '.join(['good'] * (line % 3))},{line % 3}")
        several = [[], [person], [city], [person, city]][line % 4]
        labels.append(json.dumps({"text": f"{some(2)} {' '.join(several)}", "labels": several}))
        endings = ["bad plot", "bad film", "poor film"]
        endings[line % 3] = "good film"
        choice.append(f"{line},{some(3)},was,{','.join(endings)},{line % 3}")
        tags.append(f"{person.title()} B-PER\nwas O\nin O\n{city.title()} B-LOC\n")
        context = f"{some(2)} {person} was in {city} {some(3)}"
        question: dict[str, Any] = {"id": str(line), "question": ("who ?", "where ?")[line % 2]}
        text = (person, city)[line % 2]
        question["answers"] = [{"text": text, "answer_start": context.index(text)}]
        answer.append({"context": context, "qas": [question]})
        gone = {"answers": []} if line % 3 == 0 else {}
        none.append({"context": context, "qas": [{**question, "is_impossible": line % 3 == 0, **gone}]})
    tables = {"label.csv": label, "labels.jsonl": labels, "pair.tsv": pair, "number.csv": number, "choice.csv": choice}
    for name, lines in {**tables, "tags.conll": tags}.items():
        (data / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, paragraphs in (("answer", answer), ("answer-or-none", none)):
        content = {"version": "2.0", "data": [{"title": name, "paragraphs": paragraphs}]}
        (data / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def command(arguments: str) -> None:
    """Runs a command in the current folder."""
    program = [sys.executable, "-m", "bertsmith", *arguments.split()]
    subprocess.run(program, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)


def record() -> None:
    """Makes all folders in the current one, and what the models answer."""
    write_data(Path())
    command(f"vocab text.txt --size {PIECES} --out vocab.txt")
    command("corpus text.txt --vocab vocab.txt --workers 1 --held-out 0.1 --out corpus")
    for kind, objective in PRETRAINED.items():
        command(f"{PRETRAIN} {objective} --out run")
        keep_model(kind)
    for kind, (task, ending, _) in TUNED.items():
        file = f"data/{kind}.{ending}"
        command(f"{FINETUNE} --task {task} --train {file} --dev {file} --out run")
        keep_model(kind)
    shutil.copytree("models/label", "models/int8")
    command("quantize --model models/int8 --data data/label.csv --limit 0")
    command("convert models/pretrained models/google --to google")
    answers: dict[str, Any] = {}
    for kind in (*PRETRAINED, *TUNED, "int8", "google"):
        answers[kind] = answers_of(Path("models") / kind, methods_of(kind), kind == "pair")
    Path("answers.json").write_text(json.dumps({"models": answers}), encoding="utf-8")


def keep_model(kind: str) -> None:
    """Moves the model of the folder `run` to its place and removes the rest."""
    Path("models").mkdir(exist_ok=True)
    shutil.move("run/model", f"models/{kind}")
    shutil.rmtree("run")


def main() -> None:
    """Writes the archive."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        record()
        with tarfile.open(ARCHIVE, "w:gz", compresslevel=9) as archive:
            for path in [Path("answers.json"), *sorted(Path("models").rglob("*"))]:
                if path.is_file():
                    archive.add(path, f"folders/{path}", filter=_anonymous)
        os.chdir(ARCHIVE.parent)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without its owner and its date."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def _is_paired(items: Sequence[Any]) -> bool:
    return isinstance(items[0], list) and items is not ASKED["tag"]


if __name__ == "__main__":
    main()
