"""The labelled rows of three classifications in their official files: TREC, SST-2 and CLINC-150."""

import json
from pathlib import Path

Row = tuple[str, str]


def trec(path: Path, *, fine: bool = False) -> list[Row]:
    """Questions with their coarse labels, from lines like `NUM:dist How far is it from Denver to Aspen ?`.

    Args:
        fine: with their fine labels, such as NUM:dist, instead.
    """
    lines = path.read_text(encoding="latin-1").splitlines()
    return [(text, label if fine else label.split(":")[0]) for label, text in (line.split(" ", 1) for line in lines)]


def rows_of(task: str, data: Path) -> tuple[list[Row], list[Row]]:
    """The training and the dev rows of a task, text and label."""
    if task == "trec":
        return trec(data / "cls/nltk/qc/train.txt"), trec(data / "cls/nltk/qc/test.txt")
    if task == "sst-2":
        parts = []
        for name in ("train", "dev"):
            lines = (data / f"glue/SST-2/{name}.tsv").read_text(encoding="utf-8").splitlines()[1:]
            parts.append([(text.strip(), label) for text, label in (line.split("\t") for line in lines)])
        return parts[0], parts[1]
    rows = json.loads((data / "cls/clinc150/data_full.json").read_text(encoding="utf-8"))
    return [(text, label) for text, label in rows["train"]], [(text, label) for text, label in rows["val"]]
