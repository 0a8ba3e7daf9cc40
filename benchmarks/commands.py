"""What a person runs against the function behind it: five commands, each as a whole process (README.md, "Commands").

    python benchmarks/commands.py --text DIR --vocab vocab.txt [--command vocab ...] [--lines 6000] [--rounds 3]

Both sides are new processes that start Python, import what they need, read the same files and write their result: the
command with all it does for a person (progress, reports, checks), and a program of a few lines that calls the function
(`FUNCTIONS` below). `vocab` and `tokenize` also have the peer's program. The times are processor seconds, user and
system, of the process and its children, and seconds on the clock; the sides take turns, and a ratio is that of two
processes of one round. Before the ratios are printed, the outputs are compared: the same vocabulary, the same bytes of
every file of the corpus, the same pieces, vectors within 1e-4 and the same labels.

`vocab`, `corpus` and `tokenize` read all of the text. `embed` and `predict` read some of its lines, with a model of two
layers that is trained here for a few steps: with a small model, what the command adds weighs most.

Last, a start of Python alone, with `import bertsmith`, and of `bertsmith --help`. Commands may be run one by one: the
result file keeps the others.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import RESULTS, machine, machine_label, ratio_summary, spread, write_result

SIZE = 30522
COMMANDS = ("vocab", "corpus", "tokenize", "embed", "predict")
WITH_PEER = ("vocab", "tokenize")
STARTS = {
    "python": ["-c", "pass"],
    "import bertsmith": ["-c", "import bertsmith"],
    "bertsmith --help": ["-m", "bertsmith", "--help"],
}


def learn(folder: Path, work: Path, out: Path) -> None:
    """Writes the vocabulary of the lines of all files, counted file by file."""
    from bertsmith.text.tokenizers.normalize import TextRules
    from bertsmith.text.vocabularies.learn import learn_vocabulary
    from bertsmith.text.vocabularies.word_counts import WordCounter

    counter = WordCounter(TextRules())
    for path in sorted(folder.glob("*.txt")):
        counter.add(line for line in map(str.strip, path.read_text(encoding="utf-8").split("\n")) if line)
        counter.end_source()
    learn_vocabulary(counter.counts, SIZE).save(out)


def build(folder: Path, work: Path, out: Path) -> None:
    """Writes the corpus of all files, and checks it."""
    import bertsmith

    tokenizer = bertsmith.WordPieceTokenizer(bertsmith.Vocabulary.load(work / "vocab.txt"))
    bertsmith.build_corpus([folder], tokenizer, out)
    bertsmith.check_corpus(out)


def encode(folder: Path, work: Path, out: Path) -> None:
    """Writes the ids of all lines as one array, and the number of ids of each line as another."""
    import numpy as np

    import bertsmith

    tokenizer = bertsmith.WordPieceTokenizer(bertsmith.Vocabulary.load(work / "vocab.txt"))
    lines = (work / "all.txt").read_bytes().decode().removesuffix("\n").split("\n")
    encoded = tokenizer.encode_batch(lines, special_tokens=True)
    np.savez(out, ids=encoded.ids, lengths=encoded.lengths)


def embed(folder: Path, work: Path, out: Path) -> None:
    """Writes the vectors of some lines."""
    import numpy as np

    import bertsmith

    lines = (work / "lines.txt").read_text(encoding="utf-8").splitlines()
    np.save(out, bertsmith.load(work / "run" / "model").embed(lines))


def classify(folder: Path, work: Path, out: Path) -> None:
    """Writes the labels of some lines."""
    import bertsmith

    lines = (work / "lines.txt").read_text(encoding="utf-8").splitlines()
    labels = [answer.label for answer in bertsmith.load(work / "tuned" / "model").classify(lines)]
    out.write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")


def learn_peer(folder: Path, work: Path, out: Path) -> None:
    """Writes the vocabulary learned by `tokenizers` from all files."""
    import vocabulary_learning

    pieces = vocabulary_learning.learn_peer(sorted(folder.glob("*.txt")), SIZE)
    out.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")


def encode_peer(folder: Path, work: Path, out: Path) -> None:
    """Writes the pieces of all lines as split by `tokenizers`, a thousand lines at a time."""
    import tokenizer_speed

    from bertsmith.text.tokenizers.vocabulary import Vocabulary

    peer = tokenizer_speed.peer_tokenizer(Vocabulary.load(work / "vocab.txt"), lowercase=True)
    lines = (work / "all.txt").read_bytes().decode().removesuffix("\n").split("\n")
    with open(out, "w", encoding="utf-8") as file:
        for begin in range(0, len(lines), 1000):
            for encoding in peer.encode_batch_fast(lines[begin : begin + 1000], add_special_tokens=False):
                file.write(f"{' '.join(encoding.tokens)}\n")


FUNCTIONS = {"vocab": learn, "corpus": build, "tokenize": encode, "embed": embed, "predict": classify}
PEERS = {"vocab": learn_peer, "tokenize": encode_peer}


def command_line(name: str, folder: Path, work: Path, out: Path) -> tuple[list[str], Path | None, Path | None]:
    """(the arguments of a command, the file for its stdin, the file for its stdout)."""
    lines = work / "lines.txt"
    return {
        "vocab": (["vocab", str(folder), "--size", str(SIZE), "--out", str(out)], None, None),
        "corpus": (["corpus", str(folder), "--vocab", str(work / "vocab.txt"), "--out", str(out)], None, None),
        "tokenize": (["tokenize", "--vocab", str(work / "vocab.txt")], work / "all.txt", out),
        "embed": (["embed", str(lines), "--model", str(work / "run" / "model"), "--out", str(out)], None, None),
        "predict": (["predict", "--model", str(work / "tuned" / "model")], lines, out),
    }[name]


def run(arguments: list[str], stdin: Path | None = None, stdout: Path | None = None) -> tuple[float, float]:
    """(processor seconds, seconds on the clock) of a new process of this Python, and of its children."""
    with open(stdin or os.devnull, "rb") as source, open(stdout or os.devnull, "wb") as target:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, *arguments]
        subprocess.run(command, stdin=source, stdout=target, stderr=subprocess.DEVNULL, check=True)
        after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, end - start


def same(name: str, work: Path, command: Path, function: Path) -> bool:
    """Whether the outputs of the command and of the function are equal."""
    import numpy as np

    if name == "vocab":
        return command.read_bytes() == function.read_bytes()
    if name == "corpus":
        files = sorted(path.relative_to(command) for path in command.rglob("*") if path.is_file())
        return bool(files) and all((command / file).read_bytes() == (function / file).read_bytes() for file in files)
    if name == "embed":
        ours, theirs = np.load(command), np.load(function)
        return ours.shape == theirs.shape and bool(np.allclose(ours, theirs, rtol=0, atol=1e-4))
    lines = command.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if name == "predict":
        return [line.split("\t")[0] for line in lines] == function.read_text(encoding="utf-8").split("\n")[:-1]
    pieces = (work / "vocab.txt").read_text(encoding="utf-8").split("\n")
    with np.load(function) as arrays:
        ids, lengths = iter(arrays["ids"].tolist()), arrays["lengths"].tolist()
    expected = (" ".join(pieces[next(ids)] for _ in range(length)) for length in lengths)
    return all(line == other for line, other in zip(lines, expected, strict=True))


def prepare(folder: Path, vocabulary: Path, num_lines: int, work: Path, *, has_models: bool) -> None:
    """Writes the inputs: all text in one file, and with models some lines of it and two models of a few steps."""
    import bertsmith

    files = sorted(folder.glob("*.txt"))
    (work / "vocab.txt").write_bytes(vocabulary.read_bytes())
    (work / "all.txt").write_bytes(b"".join(path.read_bytes() for path in files))
    if not has_models:
        return
    lines: list[str] = []
    for path in files:
        lines += [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()][:100]
    lines = [" ".join(line.split()) for line in lines[:num_lines]]
    (work / "lines.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    rows = [f"{line}\t{'question' if '?' in line else 'other'}\n" for line in lines if '"' not in line][:800]
    (work / "train.tsv").write_text("".join(["text\tlabel\n", *rows]), encoding="utf-8")
    tokenizer = bertsmith.WordPieceTokenizer(bertsmith.Vocabulary.load(work / "vocab.txt"))
    bertsmith.build_corpus([files[0], files[-1]], tokenizer, work / "corpus")
    bertsmith.pretrain(work / "corpus", work / "run", size="tiny", steps=2, rows_per_step=8, evaluation_rows=32)
    model, out = work / "run" / "model", work / "tuned"
    bertsmith.finetune(model, "classification", out, train=work / "train.tsv", seeds=1, epochs=1.0)


def measure(name: str, folder: Path, work: Path, rounds: int) -> dict[str, Any]:
    """The times of one command and of its function, and of the peer where there is one; outputs are compared."""
    suffix = {"embed": ".npy", "tokenize": ".npz"}.get(name, "")
    times: dict[str, list[tuple[float, float]]] = {"command": [], "function": []}
    times |= {"peer": []} if name in WITH_PEER else {}
    for number in range(rounds):
        outs = {side: work / f"{name}-{side}-{number}{suffix if side == 'function' else ''}" for side in times}
        outs["command"] = outs["command"].with_suffix(".npy") if name == "embed" else outs["command"]
        runs: dict[str, tuple[list[str], Path | None, Path | None]] = {
            side: ([__file__, "--side", side, name, *map(str, (folder, work, out))], None, None)
            for side, out in outs.items()
        }
        arguments, stdin, stdout = command_line(name, folder, work, outs["command"])
        runs["command"] = ["-m", "bertsmith", *arguments], stdin, stdout
        names = list(runs)
        for side in names[number % len(names) :] + names[: number % len(names)]:
            times[side].append(run(*runs[side]))
        assert same(name, work, outs["command"], outs["function"]), f"the outputs of {name} differ"
        print(" ", name, "round", number + 1, {side: round(both[-1][0], 2) for side, both in times.items()}, flush=True)
    processor = {side: [seconds for seconds, _ in both] for side, both in times.items()}
    clock = {side: [seconds for _, seconds in both] for side, both in times.items()}
    result: dict[str, Any] = {
        "day": time.strftime("%Y-%m-%d"),
        "processor_seconds": {side: spread(values) for side, values in processor.items()},
        "seconds": {side: spread(values) for side, values in clock.items()},
        "command_against_function": ratio_summary(processor["function"], processor["command"]),
        "command_against_function_on_the_clock": ratio_summary(clock["function"], clock["command"]),
    }
    if "peer" in times:
        result["times_as_fast_as_peer_on_the_clock"] = ratio_summary(clock["command"], clock["peer"])
    print(name, {key: value["median"] for key, value in result.items() if "median" in value})
    return result


def starts(rounds: int) -> dict[str, Any]:
    """The seconds of each start, of which the first of all is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in STARTS}
    for _ in range(rounds + 1):
        for name, arguments in STARTS.items():
            times[name].append(run(arguments))
    kinds = ("processor_seconds", "seconds")
    return {
        name: {kind: spread(values[1:]) for kind, values in zip(kinds, zip(*both, strict=True), strict=True)}
        for name, both in times.items()
    }


def main() -> None:
    """Runs the benchmark and writes its result file; with --side, one of the programs that it times."""
    if sys.argv[1:2] == ["--side"]:
        side, name, folder, work, out = sys.argv[2:]
        (PEERS if side == "peer" else FUNCTIONS)[name](Path(folder), Path(work), Path(out))
        return
    data = os.environ.get("BERTSMITH_DATA")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=data and Path(data, "pretrain_gutenberg100"))
    parser.add_argument("--vocab", type=Path, default=data and Path(data, "vocab", "bert-base-uncased-vocab.txt"))
    parser.add_argument("--command", action="append", choices=COMMANDS, help="repeatable; default: all")
    parser.add_argument("--lines", type=int, default=6000, help="lines for embed and predict")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.text is None or arguments.vocab is None or not arguments.text.is_dir():
        sys.exit("skipped: name --text and --vocab, or set BERTSMITH_DATA to a folder with real data")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        # A folder with these files alone, so that both sides read the same ones.
        folder = work / "text"
        folder.mkdir()
        for path in sorted(arguments.text.glob("*.txt")):
            (folder / path.name).write_bytes(path.read_bytes())
        chosen = arguments.command or COMMANDS
        prepare(folder, arguments.vocab, arguments.lines, work, has_models=bool({"embed", "predict"} & {*chosen}))
        megabytes = (work / "all.txt").stat().st_size / 1e6
        print(f"{megabytes:.1f} MB of text, {arguments.lines} lines for embed and predict")
        results = {command: measure(command, folder, work, arguments.rounds) for command in chosen}
    described = machine()
    name = f"commands_{machine_label(described)}"
    path = RESULTS / f"{name}.json"
    about = {"machine": described, "text": arguments.text.name, "text_megabytes": round(megabytes, 2)}
    before = json.loads(path.read_text(encoding="utf-8"))["commands"] if path.exists() else {}
    about |= {"lines": arguments.lines, "starts": starts(arguments.rounds), "commands": {**before, **results}}
    write_result(name, about)


if __name__ == "__main__":
    main()
