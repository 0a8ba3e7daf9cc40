"""Damage every kind of file that the package reads, open it with the command a person would use, and report tracebacks.

    python tools/fuzz_files.py --minutes 10                     # until the time is up
    python tools/fuzz_files.py --cases 200 --kinds vocab npy    # the first cases of some kinds
    python tools/fuzz_files.py --seed 7 --case 41               # one case again, with the same --kinds

The good files are made by the commands themselves, on the texts of `reference_steps.py`. Each case is a function of
the seed, its number and the kinds: one file is damaged (bits flipped, bytes inserted, removed, repeated, swapped or
zeroed, the end cut off, the content of another file, a JSON value of another type, a setting of other tools), and a
command runs on it in this process. It must succeed, or end with one line that begins with `bertsmith:`. Anything else
is a finding: a traceback, several lines, or a command that runs for longer than `PATIENCE`. The damaged file is kept in
the folder --out; the exit code is 1 if there is a finding.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_settings import SETTINGS
from fuzzing import changed, damaged, finish
from reference_steps import write_data

from bertsmith.base.core.randomness import generator

PATIENCE = 120  # seconds
_KNOWN = 0.5  # how often a setting that other tools know is changed, in a file that has such settings
MODEL = "pretrained/model"
CATS = ("positive", "negative")
QUICK = "--device cpu --precision fp32"
TUNE = f"finetune --model {MODEL} --seeds 1 --epochs 1 --batch-size 8 --max-length 32 {QUICK}"
TASKS = {
    "single": "classification single.csv",
    "several": "multi-label several.jsonl",
    "pair": "classification pair.tsv",
    "number": "regression number.csv",
    "choice": "swag choice.csv",
    "codah": "codah codah.tsv",
    "tags": "ner tags.conll",
    "answer": "squad answer.json",
    "none": "squad2 none.json",
    "cola": "cola cola.tsv",
}


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        files: what is damaged, one of them in each case; patterns in the folder.
        opened_by: the command.
        needs: names of what must be made first, in `MADE`.
        copied: files and folders that the command needs, besides the damaged one.
        stdin: the input of the command.
    """

    files: tuple[str, ...]
    opened_by: str
    needs: tuple[str, ...]
    copied: tuple[str, ...] = ()
    stdin: str = ""


MADE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "vocab": ((), "vocab text --size 200 --out vocab.txt"),
    "corpus": (("vocab",), "corpus text --vocab vocab.txt --workers 1 --held-out 0.1 --shard-bytes 8192 --out corpus"),
    "pretrained": (
        ("corpus",),
        "pretrain corpus --out pretrained --config config.json --max-length 32 --rows-per-step 8 --steps 4 --seed 3 "
        f"{QUICK}",
    ),
    "stopped": (
        ("corpus",),
        "pretrain corpus --out stopped --config config.json --max-length 32 --rows-per-step 8 --steps 4 --save-every 2 "
        f"--seed 3 {QUICK}",
    ),
    **{
        name: (("pretrained",), f"{TUNE} --out tuned/{name} --task {task.split()[0]} --train data/{task.split()[1]}")
        for name, task in TASKS.items()
    },
    "pairs": (
        ("pretrained",),
        f"{TUNE} --out tuned/pairs --task pairs --train data/pair.tsv --map y=entailment --map n=contradiction",
    ),
    "npy": (("pretrained",), f"embed data/passages.txt --model {MODEL} {QUICK} --out mean.npy"),
    "parquet": (("pretrained",), f"embed data/passages.txt --text --model {MODEL} {QUICK} --out mean.parquet"),
    "index": (
        ("pretrained",),
        f"search data/passages.txt --json --model {MODEL} {QUICK} --queries data/queries.tsv --index index.safetensors",
    ),
    "changes": (("npy",), "vectors mean.npy --whiten --dimensions 8 --save-changes changes.safetensors"),
    "google": (("pretrained",), f"convert {MODEL} google --to google"),
}
# Files of other tools in `formats/`, and the task of the model that reads them.
FORMATS = {
    "a.pubtator": "tags",
    "bioc.json": "tags",
    "bioc.xml": "tags",
    "tokens.jsonl": "tags",
    "tokens.parquet": "tags",
    "words.csv": "tags",
    "sentences.conllup": "tags",
    "brat": "tags",
    "train.ft": "single",
    "studio.json": "single",
    "frame.json": "single",
    "cats.jsonl": "single",
    "table.xlsx": "single",
    "table.parquet": "single",
    "columns.csv": "several",
    "rows.jsonl": "answer",
}
LINES = "the gardener [MASK] the gate\n"
KINDS: Mapping[str, Kind] = {
    "vocab": Kind(("vocab.txt",), "tokenize --vocab vocab.txt", ("vocab",), stdin="a gate\n"),
    "model vocab": Kind((f"{MODEL}/vocab.txt",), f"fill --model {MODEL} {QUICK} -", ("pretrained",), (MODEL,), LINES),
    "config": Kind((f"{MODEL}/*config.json",), f"fill --model {MODEL} {QUICK} -", ("pretrained",), (MODEL,), LINES),
    "tokenizer": Kind(
        (f"{MODEL}/tokenizer.json",), f"fill --model {MODEL} {QUICK} -", ("pretrained",), (MODEL,), LINES
    ),
    "pipeline": Kind(
        ("formats/pipeline/tokenizer.json",),
        "tokenize --vocab formats/pipeline",
        (),
        ("formats/pipeline",),
        "Who mended [SEP] the gate?\n",
    ),
    "metadata": Kind(
        ("tuned/single/model/bertsmith.json", "tuned/single/model/config.json"),
        f"predict --model tuned/single/model {QUICK}",
        ("single",),
        ("tuned/single/model",),
        "a gate\n",
    ),
    "modules": Kind(
        (
            "tuned/pairs/model/modules.json",
            "tuned/pairs/model/*sentence*.json",
            "tuned/pairs/model/1_Pooling/config.json",
        ),
        f"embed data/passages.txt --model tuned/pairs/model {QUICK} --out mean.npy",
        ("pairs",),
        ("tuned/pairs/model", "data/passages.txt"),
    ),
    "safetensors": Kind(
        (f"{MODEL}/model.safetensors",), f"fill --model {MODEL} {QUICK} -", ("pretrained",), (MODEL,), LINES
    ),
    "corpus": Kind(("corpus/*", "corpus/*/*"), "check corpus", ("corpus",), ("corpus",)),
    "shards": Kind(
        ("corpus/*", "corpus/*/*"),
        "rates corpus --rows 50 --max-length 32",
        ("corpus",),
        ("corpus",),
    ),
    "checkpoint": Kind(
        ("stopped/checkpoints/*/*", "stopped/*.json*"),
        "pretrain corpus --out stopped --resume",
        ("stopped",),
        ("stopped", "corpus", "config.json"),
    ),
    **{
        f"task {name}": Kind(
            (f"data/{task.split()[1]}",),
            f"evaluate --model tuned/{name}/model --data data/{task.split()[1]} {QUICK}",
            (name,),
            (f"tuned/{name}/model",),
        )
        for name, task in TASKS.items()
    },
    **{
        f"format {name}": Kind(
            (f"formats/{name}/*" if name == "brat" else f"formats/{name}",),
            f"evaluate --model tuned/{task}/model --data formats/{name} {QUICK}",
            (task,),
            (f"tuned/{task}/model", *(["formats/brat"] if name == "brat" else [])),
        )
        for name, task in FORMATS.items()
    },
    "npy": Kind(("mean.npy",), "vectors mean.npy", ("npy",)),
    "parquet": Kind(("mean.parquet",), "vectors mean.parquet", ("parquet",)),
    "vector record": Kind(
        ("mean.npy.json",),
        f"embed data/passages.txt --model {MODEL} {QUICK} --out mean.npy --resume",
        ("npy",),
        (MODEL, "mean.npy", "data/passages.txt"),
    ),
    "changes": Kind(
        ("changes.safetensors",), "vectors mean.npy --changes changes.safetensors", ("changes",), ("mean.npy",)
    ),
    "index": Kind(
        ("index.safetensors",),
        f"search data/passages.txt --json --model {MODEL} {QUICK} --queries data/queries.tsv --index index.safetensors",
        ("index",),
        (MODEL, "data/passages.txt", "data/queries.tsv"),
    ),
    "queries": Kind(
        ("data/queries.tsv", "data/judged.txt"),
        "search data/passages.txt --bm25 --queries data/queries.tsv --judgements data/judged.txt",
        (),
        ("data/passages.txt", "data/queries.tsv", "data/judged.txt"),
    ),
    **{
        f"word vectors {name}": Kind((f"border/words.{name}",), f"vectors neighbours border/words.{name} the", ())
        for name in ("txt", "bin", "glove")
    },
    **{
        f"text {name}": Kind((f"border/{name}",), f"vocab border/{name} --size 90 --out learned.txt {options}", ())
        for name, options in (
            ("wiki_00", ""),
            ("wiki_01", ""),
            ("utf-16.txt", ""),
            ("cp1252.txt", "--encoding cp1252"),
            ("utf-8.txt", "--bad-bytes drop"),
        )
    },
    "google": Kind(("google/*",), "inspect google --names", ("google",), ("google",)),
    "google weights": Kind(("google/*",), "convert google back --to huggingface --uncased", ("google",), ("google",)),
}


def write_border(folder: Path) -> None:
    """Writes files as other tools do: word vectors of three formats, WikiExtractor's two, text in three encodings."""
    folder.mkdir()
    words = ["the", "gardener", "café", "new york", "3.5", "猫"]
    numbers = generator(0, "word vectors").standard_normal((len(words), 4)).astype("<f4")
    lines = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, numbers.tolist(), strict=True))
    head = f"{len(words)} 4\n"
    (folder / "words.txt").write_text(head + lines, encoding="utf-8")
    (folder / "words.glove").write_text(lines, encoding="utf-8")
    # In the binary format a space ends a word.
    joined = [word.replace(" ", "_") for word in words]
    rows = [f"{word} ".encode() + row.tobytes() + b"\n" for word, row in zip(joined, numbers, strict=True)]
    (folder / "words.bin").write_bytes(head.encode() + b"".join(rows))
    text = "The gardener's café &amp; the gate: 3 &lt; 4.\nIt rained.\n" * 9
    (folder / "wiki_00").write_text(f'<doc id="1" url="a" title="b">\n{text}</doc>\n' * 3, encoding="utf-8")
    (folder / "wiki_01").write_text((json.dumps({"id": "1", "title": "b", "text": text}) + "\n") * 3, encoding="utf-8")
    for encoding in ("utf-16", "cp1252", "utf-8"):
        (folder / f"{encoding}.txt").write_text(text, encoding=encoding)


def write_formats(folder: Path) -> None:
    """Writes the files of `FORMATS`, each with two short examples."""
    (folder / "brat").mkdir(parents=True)
    text, tagged = "Anna in Rome\nsang", [("Anna", "B-PER"), ("in", "O"), ("Rome", "B-LOC"), ("sang", "O")]
    spans = [(0, 4, "PER"), (8, 12, "LOC")]
    records: list[dict[str, Any]] = [
        {"text": "a good gate", "label": "positive"},
        {"text": "a bad gate", "label": "negative"},
    ]
    annotations = [
        {"infons": {"type": kind}, "text": text[start:end], "locations": [{"offset": start, "length": end - start}]}
        for start, end, kind in spans
    ]
    passages = [{"offset": 0, "text": text, "annotations": annotations}]
    marks = "".join(
        f'<annotation><infon key="type">{kind}</infon><location offset="{start}" length="{end - start}"/></annotation>'
        for start, end, kind in spans
    )
    tokens = {"tokens": [word for word, _ in tagged], "ner_tags": [tag for _, tag in tagged]}
    tasks = [
        {
            "data": {"text": record["text"]},
            "annotations": [{"result": [{"type": "choices", "value": {"choices": [record["label"]]}}]}],
        }
        for record in records
    ]
    rows = [
        {"id": str(number), "context": "anna in rome", "question": question, "answers": {"text": [answer]}}
        for number, (question, answer) in enumerate((("who ?", "anna"), ("where ?", "rome")))
    ]
    title, abstract = text.split("\n")
    mentions = [f"1\t{start}\t{end}\t{text[start:end]}\t{kind}\tX" for start, end, kind in spans]
    contents = {
        "a.pubtator": "\n".join([f"1|t|{title}", f"1|a|{abstract}", *mentions, "1\tCID\tA\tB", ""]),
        "bioc.json": json.dumps({"documents": [{"id": "1", "passages": passages}]}),
        "bioc.xml": f'<?xml version="1.0"?><collection><document><passage><offset>0</offset><text>{text}</text>{marks}'
        "</passage></document></collection>",
        "tokens.jsonl": json.dumps(tokens) + "\n",
        "words.csv": "\n".join(["Sentence #,Word,Tag", *(f"1,{word},{tag}" for word, tag in tagged), ""]),
        "sentences.conllup": "\n".join(
            [
                "# global.columns = ID FORM X:NER",
                "1-2\tAnnain\t_",
                *(f"{number}\t{word}\t{tag}" for number, (word, tag) in enumerate(tagged, start=1)),
                "",
            ]
        ),
        "brat/1.txt": text,
        "brat/1.ann": "".join(f"T{start}\t{kind} {start} {end}\t{text[start:end]}\n" for start, end, kind in spans),
        "train.ft": "".join(f"__label__{record['label']} {record['text']}\n" for record in records),
        "studio.json": json.dumps(tasks),
        "frame.json": json.dumps(
            {name: {str(number): record[name] for number, record in enumerate(records)} for name in records[0]}
        ),
        "cats.jsonl": "".join(
            json.dumps([record["text"], {"cats": {name: float(name == record["label"]) for name in CATS}}]) + "\n"
            for record in records
        ),
        "columns.csv": "text,person,place\nanna,1,0\nrome,0,1\n",
        "rows.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
    }
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdeghimnortw?", *(f"##{c}" for c in "adehnorst"), "the")
    ids = {piece: id for id, piece in enumerate(pieces)}
    pipeline = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": piece, "special": True} for piece, id in list(ids.items())[:5]],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }
    # The general class runs the file as it is.
    contents["pipeline/tokenizer_config.json"] = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    contents["pipeline/tokenizer.json"] = json.dumps(pipeline)
    (folder / "pipeline").mkdir()
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    pq.write_table(pa.Table.from_pylist([tokens]), folder / "tokens.parquet")
    pq.write_table(pa.Table.from_pylist(records), folder / "table.parquet")
    book = openpyxl.Workbook()
    for cells in (list(records[0]), *(list(record.values()) for record in records)):
        book.active.append(cells)
    book.save(folder / "table.xlsx")


class Workshop:
    """The folder of good files, which are made when a case needs them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_data(folder)
        write_border(folder / "border")
        write_formats(folder / "formats")
        self._made: set[str] = set()

    def make(self, names: Sequence[str]) -> None:
        """Runs the commands that make these files."""
        for name in names:
            if name not in self._made:
                needs, command = MADE[name]
                self.make(needs)
                with contextlib.chdir(self.folder):
                    _stop_at[:] = ["step-00000002"] if name == "stopped" else []
                    outcome, said = run(command, "")
                assert outcome in ("success", "code 130"), f"{command}: {outcome}\n{said}"
                self._made.add(name)


def run(command: str, stdin: str) -> tuple[str, str]:
    """How a command ended in this process, and what it wrote to stderr or its traceback."""
    from bertsmith.app.cli.app import main

    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    before = sys.stdin, sys.argv
    sys.stdin, sys.argv = (
        io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"),
        ["bertsmith", *command.split()],
    )
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            main()
    except SystemExit as end:
        if end.code in (0, None):
            return "success", err.getvalue()
        lines = [line for line in err.getvalue().splitlines() if line.startswith("bertsmith: ")]
        is_line = end.code in (1, 2) and len(lines) == 1 and err.getvalue().rstrip("\n").endswith(lines[0])
        return ("refused" if is_line else f"code {end.code}"), err.getvalue()
    except BaseException as error:  # noqa: BLE001  # whatever escapes is what this tool looks for
        if isinstance(error, KeyboardInterrupt):
            return "code 130", ""
        return type(error).__name__, traceback.format_exc()
    finally:
        sys.stdin, sys.argv = before
    return "success", err.getvalue()


def with_setting(content: bytes, known: Mapping[str, tuple[Any, ...]], draw: np.random.Generator) -> bytes:
    """The content of a JSON file with one of these settings changed, of one of its objects if it is a list."""
    value = json.loads(content)
    target = value[int(draw.integers(len(value)))] if isinstance(value, list) else value
    name = sorted(known)[int(draw.integers(len(known)))]
    target[name] = known[name][int(draw.integers(len(known[name])))]
    return json.dumps(value).encode()


def damage(content: bytes, other: bytes, draw: np.random.Generator) -> bytes:
    """Other bytes than the content of a file, made from it."""
    pick = draw.random()
    if pick < 0.3:
        try:
            value = json.loads(content)
        except ValueError:
            pass
        else:
            for _ in range(int(draw.integers(1, 3))):
                value = changed(value, draw)
            return json.dumps(value).encode()
    if pick < 0.4:
        lines = content.split(b"\n")
        first, second = draw.integers(0, len(lines), 2).tolist()
        lines[first], lines[second] = lines[second], lines[first]
        return b"\n".join(lines)
    if pick < 0.5 and content:
        begin = int(draw.integers(len(content)))
        size = int(draw.integers(1, 65))
        return content[:begin] + bytes(len(content[begin : begin + size])) + content[begin + size :]
    if pick < 0.55:
        return other
    if pick < 0.65 and content:  # where formats have their header
        position = int(draw.integers(min(len(content), 64)))
        return content[:position] + draw.bytes(1) + content[position + 1 :]
    if pick < 0.75 and content:
        position = len(content) - 1 - int(draw.integers(min(len(content), 64)))
        return content[:position] + draw.bytes(1) + content[position + 1 :]
    return damaged(content, draw)


class Outcome(NamedTuple):
    """The result of a case."""

    kind: str
    file: str
    ended: str
    said: str
    content: bytes

    @property
    def is_finding(self) -> bool:
        """Whether the command neither succeeded nor refused the file in one line."""
        return self.ended not in ("success", "refused")


def tried(workshop: Workshop, seed: int, number: int, names: Sequence[str]) -> Outcome:
    """The result of the case with this number."""
    draw = generator(seed, "fuzz files", number)
    name = names[int(draw.integers(len(names)))]
    kind = KINDS[name]
    workshop.make(kind.needs)
    root = workshop.folder
    files = sorted({path for pattern in kind.files for path in root.glob(pattern) if path.is_file()})
    file = files[int(draw.integers(len(files)))].relative_to(root)
    others = sorted(path for path in (root / "data").iterdir() if path.is_file())
    content, other = (root / file).read_bytes(), others[int(draw.integers(len(others)))].read_bytes()
    if file.name in SETTINGS and draw.random() < _KNOWN:
        content = with_setting(content, SETTINGS[file.name], draw)
    else:
        content = damage(content, other, draw)
    with tempfile.TemporaryDirectory(prefix="bertsmith-case-") as folder:
        for needed in kind.copied:
            source, target = root / needed, Path(folder, needed)
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
        target = Path(folder, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        before = signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(PATIENCE)
        try:
            with contextlib.chdir(folder):
                ended, said = run(kind.opened_by, kind.stdin)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
    return Outcome(name, str(file), ended, said, content)


class TooLongError(Exception):
    """A command runs for longer than `PATIENCE`."""


def _too_long(number: int, frame: Any) -> None:
    raise TooLongError(f"more than {PATIENCE} s")


_stop_at: list[str] = []


def _interrupt(event: str, arguments: tuple[Any, ...]) -> None:
    """Interrupts training when the checkpoint in `_stop_at` is moved into place."""
    if event == "os.rename" and _stop_at and Path(os.fsdecode(arguments[1])).name == _stop_at[0]:
        _stop_at.clear()
        signal.raise_signal(signal.SIGINT)


def main() -> None:
    """Runs the cases, prints the counts, and exits with 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="how long [5]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, help="this many cases instead of a time")
    parser.add_argument("--case", type=int, metavar="N", help="only this case")
    parser.add_argument("--kinds", nargs="+", default=sorted(KINDS), choices=sorted(KINDS), metavar="KIND")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"), metavar="DIR", help="for damaged files")
    options = parser.parse_args()
    out = options.out.resolve()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    sys.addaudithook(_interrupt)
    counts: collections.Counter[str] = collections.Counter()
    findings = 0
    with tempfile.TemporaryDirectory(prefix="bertsmith-fuzz-") as folder:
        workshop = Workshop(Path(folder))
        ends = time.monotonic() + 60 * options.minutes
        number = 0 if options.case is None else options.case
        while True:
            outcome = tried(workshop, options.seed, number, options.kinds)
            counts[f"{outcome.kind}: {outcome.ended}"] += 1
            if outcome.is_finding:
                findings += 1
                kept = out / f"file-{options.seed}-{number}-{Path(outcome.file).name}"
                out.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(outcome.content)
                kept.with_name(f"{kept.name}.said").write_text(outcome.said, encoding="utf-8")
                command = KINDS[outcome.kind].opened_by
                end = "\n    ".join(outcome.said.rstrip().splitlines()[-3:])
                print(
                    f"seed {options.seed} case {number}: {outcome.file} ({command}): {outcome.ended}\n    {end}",
                    flush=True,
                )
            number += 1
            if options.case is not None or (number >= options.cases if options.cases else time.monotonic() > ends):
                break
    finish(counts, findings)


if __name__ == "__main__":
    main()
