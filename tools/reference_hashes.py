"""Record digests of everything that the commands write and print, and compare them with an earlier record.

To check that a refactoring does not change results, run it twice on one machine:

    python tools/reference_hashes.py --out before.json       # before the change
    python tools/reference_hashes.py --against before.json   # after it; exits with code 1 and lists the differences

The commands of `reference_steps.py` run sequentially in this process, on one thread, in a temporary folder, on small
generated texts. They learn a vocabulary, build a corpus, pre-train with every objective, fine-tune on every kind of
task, and then predict, evaluate, embed, search and convert. One run of each kind of training is interrupted and
resumed.

A record has five parts; their keys are paths in the folder or names of commands:

    answers     stdout and the exit code of each command
    files       every file except those in the next three parts
    weights     every tensor of every .safetensors file: type, shape and bytes; the file itself is under "files"
    metadata    bertsmith.json of every model folder
    cards       README.md of every model folder

Digests depend on the CPU and the version of torch, so records stay on the machine, not in the repository. Values that
differ between two equal runs are left out: the keys in `TIMES` and `VERSIONS`, and text that matches `WORDS` or
`PAGE_WORDS`.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reference_steps import Step, steps, write_data

# Keys of JSON objects, at any depth, with times and values computed from them.
TIMES = ("seconds", "processor_seconds", "loop.seconds", "tokens_per_second", "time_left", "started")
# Keys of JSON objects, at any depth, that differ between releases or machines without changing any result.
VERSIONS = ("versions", "machine", "bertsmith")

# Patterns in answers and text files, with their replacements.
WORDS = (
    (r"[\d,.]+ tokens/s", "N tokens/s"),
    (r"(tokens_per_second|seconds|time_left): [\d,.e+-]+", r"\1: N"),
    (r"\b[\d,]+ seconds?\b", "N seconds"),
    (r"\bin [\d.]+ s\b", "in N s"),
)
# More patterns, for the pages of `report` only.
PAGE_WORDS = (
    (r"(?s)(<figcaption>Tokens per second</figcaption>).*?</figure>", r"\1</figure>"),
    (r"(?s)<tr><td>(seconds|tokens[ _]per[ _]second|time[ _]left)</td>.*?</tr>", ""),
    (r"(?s)<section><h2>(Machine|Versions)</h2>.*?</section>", ""),
    (r"([·,]) [\d,.]+ s\b", r"\1 N s"),
)
# The header of an ONNX file contains the version of bertsmith, between the name of the producer and the graph.
ONNX_VERSION = (rb"(?s)bertsmith\x1a.[\w.+]+:", b"bertsmith:")

TEXTS = (".json", ".jsonl", ".html", ".md", ".txt")
SHA256 = re.compile(r"sha256:[0-9a-f]{64}")


def main() -> None:
    """Runs the commands, and writes or compares the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the record to this file, as JSON")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with an earlier record")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="run in this new folder and keep it")
    options = parser.parse_args()
    if not (options.out or options.against):
        parser.error("give --out, --against or both")
    out = options.out and options.out.resolve()
    before = options.against and json.loads(options.against.read_text(encoding="utf-8"))
    # Read by torch and tokenizers on import, which happens in the first command.
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with contextlib.ExitStack() as at_the_end:
        if options.keep:
            options.keep.mkdir(parents=True)
            folder = options.keep.resolve()
        else:
            folder = Path(
                at_the_end.enter_context(tempfile.TemporaryDirectory(prefix="bertsmith-reference-"))
            ).resolve()
        at_the_end.enter_context(contextlib.chdir(folder))
        record = make_record(folder)
    if out:
        out.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"recorded {', '.join(f'{len(values)} {part}' for part, values in record.items())}: {options.out}")
    if before:
        changes = list(differences(before, record))
        print("\n".join(changes) or "nothing differs")
        sys.exit(f"{len(changes)} differences" if changes else 0)


def make_record(folder: Path) -> dict[str, dict[str, Any]]:
    """The record of all commands, run in an empty folder, which must be the current one."""
    write_data(folder)
    answers = {}
    inputs = set(folder.rglob("*"))
    for step in steps():
        start = time.monotonic()
        name, answer = run(step, folder)
        assert name not in answers, name
        answers[name] = answer
        print(f"{time.monotonic() - start:5.1f} s  {name}", file=sys.stderr, flush=True)
    record: dict[str, dict[str, Any]] = {"answers": answers, "files": {}, "weights": {}, "metadata": {}, "cards": {}}
    written = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path not in inputs
    }
    contents = {path: normalized(path, content, folder) for path, content in written.items()}
    # A digest of a normalized file inside another file varies between runs, so replace it.
    varying = {
        f"sha256:{digest(content)}": f"sha256:of-{path}"
        for path, content in written.items()
        if contents[path] != content
    }
    for path, content in contents.items():
        name, suffix = Path(path).name, Path(path).suffix
        part = {"bertsmith.json": "metadata", "README.md": "cards"}.get(name, "files")
        if suffix in TEXTS:
            content = SHA256.sub(lambda match: varying.get(match[0], match[0]), content.decode()).encode()
        record[part][path] = values_of(content) if suffix == ".json" else digest(content)
        if suffix == ".safetensors":
            record["weights"][path] = tensors(written[path])
    return record


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """A line for each entry that is new, missing or different."""
    for part in before:
        old, new = before[part], now.get(part, {})
        for name in sorted(old.keys() | new.keys()):
            if name not in new or name not in old:
                yield f"{part}: {name}: {'missing' if name not in new else 'new'}"
            elif old[name] != new[name]:
                first, other = ({"": value} if isinstance(value, str) else value for value in (old[name], new[name]))
                names = [key for key in sorted(first.keys() | other.keys()) if key and first.get(key) != other.get(key)]
                yield f"{part}: {name}: differs" + (f" in {', '.join(names)}" if names else "")


def digest(content: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def values_of(content: bytes) -> dict[str, str]:
    """The digest of a JSON file under "", and of each value of its object, so that differences can be named."""
    value = json.loads(content)
    parts = value if isinstance(value, dict) else {}
    return {"": digest(content), **{key: digest(json.dumps(inner).encode()) for key, inner in parts.items()}}


def tensors(content: bytes) -> dict[str, str]:
    """For each tensor of a .safetensors file, its type, shape and digest of its bytes."""
    header, data = safetensors_parts(content)
    header.pop("__metadata__", None)
    digests = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        digests[name] = f"{entry['dtype']} {entry['shape']} {digest(data[start:end])}"
    return digests


def safetensors_parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a .safetensors file and the bytes of its tensors."""
    start = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:start]), content[start:]


def normalized(path: str, content: bytes, folder: Path) -> bytes:
    """The content of a file without what differs between two equal runs; unchanged if nothing does."""
    suffix = Path(path).suffix
    if suffix == ".json":
        value = json.loads(content)
        return content if without_times(value) == value else as_json(without_times(value))
    if suffix == ".jsonl":
        lines = [json.loads(line) for line in content.splitlines()]
        kept = [without_times(line) for line in lines]
        return content if kept == lines else b"\n".join(as_json(line) for line in kept)
    if suffix == ".safetensors":
        # The safetensors library writes metadata entries in arbitrary order.
        header, data = safetensors_parts(content)
        length = len(header.get("__metadata__", {}))
        return content if length < 2 else json.dumps(header, sort_keys=True).encode() + data
    if suffix == ".onnx":
        return re.sub(*ONNX_VERSION, content)
    if suffix in TEXTS:
        return replaced(content.decode(), folder, (*WORDS, *PAGE_WORDS) if suffix == ".html" else WORDS).encode()
    return content


def as_json(value: Any) -> bytes:
    """A value as JSON, with its keys in their order."""
    return json.dumps(value, ensure_ascii=False).encode()


def without_times(value: Any) -> Any:
    """A JSON value without the keys of `TIMES` and `VERSIONS`."""
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items() if key not in (*TIMES, *VERSIONS)}
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


def replaced(text: str, folder: Path, patterns: Sequence[tuple[str, str]] = WORDS) -> str:
    """A text without the temporary folder and the matches of the patterns."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, other in patterns:
        text = re.sub(pattern, other, text)
    return text


_stop_at: list[str] = []  # names of folders; when one is moved into place, this process is interrupted


def run(step: Step, folder: Path) -> tuple[str, dict[str, Any]]:
    """The name of a command and its answer; it runs in this process like `python -m bertsmith`."""
    arguments = [*step.arguments.split(), *step.texts]
    named = [arguments[index + 1] for index, word in enumerate(arguments) if word == "--out"]
    name = step.name or " ".join([arguments[0], *named])
    streams = {stream: io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for stream in ("stdout", "stderr")}
    before = {stream: getattr(sys, stream) for stream in ("stdin", "stdout", "stderr", "argv")}
    sys.stdin = io.TextIOWrapper(io.BytesIO(step.stdin.encode()), encoding="utf-8")
    sys.stdout, sys.stderr = streams["stdout"], streams["stderr"]
    sys.argv = ["bertsmith", *arguments]
    _stop_at[:] = [step.stop_at] if step.stop_at else []
    code: Any = 0
    try:
        runpy.run_module("bertsmith", run_name="__main__")
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        for stream, value in before.items():
            setattr(sys, stream, value)
    texts = []
    for stream in streams.values():
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    if code != (130 if step.stop_at else 0):
        sys.exit(f"bertsmith {' '.join(arguments)}\nended with {code}:\n{texts[1]}")
    return name, {"code": code, "stdout": digest(replaced(texts[0], folder).encode())}


def _interrupt(event: str, arguments: tuple[Any, ...]) -> None:
    """Sends SIGINT to this process when a folder named in `_stop_at` is moved into place."""
    if event == "os.rename" and _stop_at and Path(os.fsdecode(arguments[1])).name == _stop_at[0]:
        _stop_at.clear()
        signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.addaudithook(_interrupt)
    main()
