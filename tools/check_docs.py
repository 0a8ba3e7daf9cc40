"""Run every command line and Python example in README.md, CONTRIBUTING.md and docs/; fail if one of them fails.

A command line is a line of a fenced `console` block that starts with "$ " (a trailing backslash continues it on the
next line). A Python example is a whole `python` block, which is a program of its own. The commands of a page run in
order in one folder, which initially contains `my-text/`, a few small text files, and small files of labelled examples:
`my-mails.csv`, `my-inbox.csv` (half of its rows have a label), `my-pairs.tsv`, `my-tags.conll`, `my-spans.jsonl`,
`my-questions.json`, `my-letters.csv` with `my-glosses.csv`, and scores as printed by `evaluate --json`, `my-cola.json`
and `my-mrpc.json`. HTML comments change this; the first two go right before a block:

    <!-- not run: needs the network -->           the block is skipped, and the reason is printed
    <!-- run with: --minutes 60 => --steps 8 -->  the left side is replaced by the right side before running
    <!-- continues: ../README.md -->              the page starts in a copy of the other page's final folder

A line `bertsmith serve ... --port N` runs on a free port until the end of its block; the lines after it may query it
with curl, and an HTTP error is a failure. Then the server is stopped, and must exit with code 0.

Usage: python tools/check_docs.py [PAGE ...]
       python tools/check_docs.py --files FOLDER    (writes the small files, for trying the commands by hand)
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SECONDS_A_COMMAND = 900
BLOCK = re.compile(r"((?:^<!--(?:(?!-->).)*-->\n+)*)^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVES = re.compile(r"bertsmith serve .*--port (\d+)")
MARK = re.compile(r"<!-- (not run|run with): (.*?) -->")
CONTINUES = re.compile(r"^<!-- continues: (\S+) -->$", re.MULTILINE)

SUBJECTS = ("The gardener", "A sailor", "Her neighbour", "The old judge", "My brother", "A stranger", "The miller")
VERBS = ("mended", "carried", "painted", "forgot", "wanted", "described", "watched", "counted")
OBJECTS = ("the broken gate", "a basket of apples", "the long letter", "seven candles", "an empty boat", "the map")
ENDS = (
    "before the rain came",
    "without a word",
    "in the cold morning",
    "near the bridge",
    "as if nothing had happened",
)


class CommandLine(NamedTuple):
    """A command line or Python example of a page.

    Attributes:
        why_not: why it is not run; empty if it is run.
        block: the first line of its block.
    """

    page: Path
    line: int
    text: str
    why_not: str
    is_python: bool = False
    block: int = 0


def command_lines(page: Path) -> Iterator[CommandLine]:
    """The command lines of a page, in order, with replacements applied."""
    content = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(content):
        why_not, changes = "", []
        for kind, value in MARK.findall(block[1]):
            if kind == "not run":
                why_not = value
            else:
                changes.append(value.split(" => "))
        first = content[: block.start(3)].count("\n") + 1
        is_python = block[2] == "python"
        unused = {old for old, _ in changes}
        for number, text in [(first, block[3])] if is_python else _joined(block[3].splitlines(), first):
            for old, new in changes:
                if old in text:
                    unused.discard(old)
                    text = text.replace(old, new)
            yield CommandLine(page, number, text, why_not, is_python, first)
        if unused:
            sys.exit(f"{page}:{first}: expected {sorted(unused)} in the block; found no such text; correct the mark")


def write_texts(folder: Path) -> None:
    """Writes a few files with some hundred short documents, always the same."""
    folder.mkdir()
    state = 1
    for name in ("garden", "harbour", "village"):
        documents = []
        for _ in range(120):
            sentences = []
            for _ in range(8):
                words = []
                for choices in (SUBJECTS, VERBS, OBJECTS, ENDS):
                    state = (state * 1103515245 + 12345) % 2**31
                    words.append(choices[(state >> 16) % len(choices)])
                sentences.append(f"{words[0]} {words[1]} {words[2]} {words[3]}.")
            documents.append("\n".join(sentences))
        (folder / f"{name}.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")


def write_examples(folder: Path) -> None:
    """Writes files of labelled examples, one for each format shown in the docs."""
    mails, pairs, tags, spans, questions = ["text,label"], ["text\ttext2\tlabel"], [], [], []
    for number in range(60):
        subject, verb = SUBJECTS[number % len(SUBJECTS)], VERBS[number % len(VERBS)]
        noun, end = OBJECTS[number % len(OBJECTS)], ENDS[number % len(ENDS)]
        sentence, spam = f"{subject} {verb} {noun} {end}.", number % 2 == 0
        mails.append(f"Win {noun} now,Spam" if spam else f"{sentence},Not Spam")
        other = SUBJECTS[(number + 3) % len(SUBJECTS)]
        pairs.append(f"{sentence}\t{subject if spam else other} {verb} {noun}.\t{'same' if spam else 'other'}")
        tagged = [(word, ("B-PER", "I-PER")[min(index, 1)]) for index, word in enumerate(subject.split())]
        tagged += [(word, "O") for word in f"{verb} {noun} {end}".split()]
        tags.append("\n".join(f"{word} {tag}" for word, tag in tagged))
        spans.append({"text": sentence, "spans": [{"start": 0, "end": len(subject), "label": "PER"}]})
        answer = {"text": noun, "answer_start": sentence.index(noun)}
        question = {"id": str(number), "question": f"What was {verb}?", "answers": [answer]}
        questions.append({"context": sentence, "qas": [question]})
    (folder / "my-mails.csv").write_text("\n".join(mails) + "\n", encoding="utf-8")
    inbox = [row if number % 4 < 2 else f"{row.partition(',')[0]}," for number, row in enumerate(mails[1:])]
    (folder / "my-inbox.csv").write_text("\n".join([mails[0], *inbox]) + "\n", encoding="utf-8")
    (folder / "my-pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    (folder / "my-tags.conll").write_text("\n\n".join(tags) + "\n", encoding="utf-8")
    (folder / "my-spans.jsonl").write_text("".join(json.dumps(record) + "\n" for record in spans), encoding="utf-8")
    letters = [
        f"letter,{sense},{subject} {verb} the long [[letter]] {end}."
        for subject, verb in itertools.product(SUBJECTS, VERBS[:2])
        for sense, end in (("message", ENDS[0]), ("character", "of the word"))
    ]
    (folder / "my-letters.csv").write_text("\n".join(["lemma,sense,text", *letters]) + "\n", encoding="utf-8")
    glosses = ["lemma,sense,gloss", "letter,message,a written message", "letter,character,a sign of the alphabet"]
    (folder / "my-glosses.csv").write_text("\n".join(glosses) + "\n", encoding="utf-8")
    content = {"version": "1.1", "data": [{"title": "village", "paragraphs": questions}]}
    (folder / "my-questions.json").write_text(json.dumps(content), encoding="utf-8")
    for task, scores in (("cola", {"matthews": 0.3}), ("mrpc", {"f1": 0.8, "accuracy": 0.7})):
        scored = {"task": task, "examples": 100, "scores": scores}
        (folder / f"my-{task}.json").write_text(json.dumps(scored), encoding="utf-8")


def write_files(folder: Path) -> None:
    """Writes the files that the pages start with to a new folder."""
    if folder.exists():
        sys.exit(f"expected a new folder; found '{folder}'; name another")
    folder.mkdir(parents=True)
    write_texts(folder / "my-text")
    write_examples(folder)


def run_pages(pages: Sequence[Path]) -> int:
    """Runs pages, each in its own folder and after the page it continues; returns the number of failures."""
    failed = 0
    folders: dict[Path, Path] = {}
    with tempfile.TemporaryDirectory(prefix="bertsmith-docs-") as root:
        for page in itertools.chain.from_iterable(map(_with_pages_before, pages)):
            lines = list(command_lines(page))
            if page in folders or not lines:
                continue
            folders[page] = folder = Path(root) / str(len(folders))
            if (before := _continued(page)) is not None:
                shutil.copytree(folders[before], folder)
            else:
                write_files(folder)
            failed += run_page(lines, folder)
    return failed


def _continued(page: Path) -> Path | None:
    """The page that `page` continues, if any."""
    mark = CONTINUES.search(page.read_text(encoding="utf-8"))
    return (page.parent / mark[1]).resolve() if mark else None


def _with_pages_before(page: Path) -> list[Path]:
    """The pages that `page` continues, then `page` itself."""
    before = _continued(page)
    return [*(_with_pages_before(before) if before is not None else []), page]


def run_page(lines: Sequence[CommandLine], folder: Path) -> int:
    """Runs the commands and examples of one page in a folder; returns the number of failures."""
    (folder / ".curlrc").write_text("fail-with-body\n", encoding="utf-8")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "CURL_HOME": str(folder),
    }
    blocks = itertools.groupby(lines, key=lambda line: line.block)
    return sum(_run_block(list(block), str(folder), environment) for _, block in blocks)


def _run_block(lines: list[CommandLine], folder: str, environment: dict[str, str]) -> int:
    """Runs the lines of one block, with a server until its end; returns the number of failures."""
    failed = 0
    with contextlib.ExitStack() as at_the_end:
        server, port = None, ("", "")
        for command in lines:
            if command.why_not:
                print(f"skip {_shown(command)} ({command.why_not})")
                continue
            start = time.monotonic()
            if server_command := SERVES.match(command.text):
                port = (server_command[1], str(_free_port()))
            command = command._replace(text=command.text.replace(*port))
            if server_command:
                started = _Server(command.text, int(port[1]), folder, environment)
                at_the_end.callback(started.kill)
                problem = started.wait()
                server = started if problem is None else None
            else:
                problem = _run(command, folder, environment)
            mark = "ok  " if problem is None else "FAIL"
            print(f"{mark} {_shown(command)} ({time.monotonic() - start:.0f} s)", flush=True)
            failed += _tell(problem)
        if server is not None:
            failed += _tell(server.end())
    return failed


def _shown(command: CommandLine) -> str:
    """A label for the log: page, line number and first line of a command or an example."""
    text = f"python: {command.text.splitlines()[0]} ..." if command.is_python else command.text
    return f"{command.page.relative_to(ROOT)}:{command.line}: {text}"


def _tell(problem: str | None) -> int:
    """Prints a problem; returns 1 if there is one, else 0."""
    if problem is not None:
        print(problem)
    return int(problem is not None)


def _run(command: CommandLine, folder: str, environment: dict[str, str]) -> str | None:
    """Runs a command line or an example; returns its output if it failed, else None."""
    program = [sys.executable, "-W", "error"] if command.is_python else ["bash", "-o", "pipefail"]
    result = subprocess.run(
        [*program, "-c", command.text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_A_COMMAND,
        check=False,
    )
    return result.stdout + result.stderr if result.returncode else None


class _Server:
    """A server started by a command line, on `port`."""

    def __init__(self, text: str, port: int, folder: str, environment: dict[str, str]) -> None:
        self._port, self._said = port, Path(folder) / ".server"
        with self._said.open("w", encoding="utf-8") as file:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {text}"], cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT
            )

    def wait(self) -> str | None:
        """Waits until the server is ready; returns its output if it did not start."""
        ends = time.monotonic() + SECONDS_A_COMMAND
        while self._process.poll() is None and time.monotonic() < ends:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/ready"):
                return None
            time.sleep(0.1)
        return self._said.read_text(encoding="utf-8")

    def end(self) -> str | None:
        """Stops the server; returns its output if it did not exit with code 0."""
        self._process.terminate()
        code = self._process.wait(SECONDS_A_COMMAND)
        return f"the server exited with code {code}\n{self._said.read_text(encoding='utf-8')}" if code else None

    def kill(self) -> None:
        """Kills the server if it is still running."""
        self._process.kill()
        self._process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _joined(lines: list[str], first: int) -> Iterator[tuple[int, str]]:
    number = 0
    while number < len(lines):
        start, line = number, lines[number]
        while line.endswith("\\") and number + 1 < len(lines):
            number += 1
            line = line[:-1].rstrip() + " " + lines[number].strip()
        if line.startswith("$ "):
            yield first + start, line[2:]
        number += 1


def main() -> None:
    """Runs the given pages, or all pages."""
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(__doc__)
        return
    if sys.argv[1:2] == ["--files"] and len(sys.argv) == 3:
        write_files(Path(sys.argv[2]))
        print(f"files to try the commands of the pages with: {sys.argv[2]}")
        return
    named = [Path(name).resolve() for name in sys.argv[1:]]
    pages = named or [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    failed = run_pages(pages)
    sys.exit(f"command lines that failed: {failed}" if failed else 0)


if __name__ == "__main__":
    main()
