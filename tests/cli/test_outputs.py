"""What a command may write over: one table with every output option of every command."""

import dataclasses
import inspect
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from bertsmith import build_index
from bertsmith.app.cli.commands import COMMANDS, Command
from bertsmith.app.cli.request_options import REQUESTS
from bertsmith.base.core.requests import own_fields
from bertsmith.base.core.settings import field_help
from bertsmith.recipes.codes.folder import build_codes
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from cli.test_predicting import write_model

# Parameters of commands that are paths of inputs; every other path is an output and is in OUTPUTS or FOLDERS.
INPUTS = {
    "texts", "vocab", "evaluation", "evaluation_files", "corpus", "folder", "model_vocabulary",
    "runs", "train", "dev", "data", "test", "passages", "queries",
    "judgements", "changes", "text", "fit_on", "source", "api_key_file", "folders", "model", "init", "file",
    "continue_on", "vectors", "pairs", "stories", "facts", "models", "general", "unlabelled", "logits",
    "segments", "events", "words", "sequences", "features", "tree", "codes", "examples", "glosses", "pair_model",
    "replies", "calibrate", "on", "ids", "indexes", "index_key_file", "fix", "negatives_from",
}  # fmt: skip
# The index itself, which they read or extend.
CHANGED = {("index remove", "index"), ("index compact", "index"), ("index export", "index")}


@dataclasses.dataclass(frozen=True)
class Output:
    """An output option: how the command is typed up to it, which inputs it has, and what it writes.

    Attributes:
        typed: the arguments, with names of files in the folder of the test.
        inputs: files among them that must survive, even with the content of what is written.
        ending: the ending of the output.
        same: the bytes of a file of the kind that it writes.
        file_name: the file that is written, if the option names a folder.
        kept: files of a model or run among the arguments, which are of no kind that is written.
    """

    typed: str
    inputs: tuple[str, ...] = ()
    ending: str = ""
    same: bytes = b""
    file_name: str = ""
    kept: tuple[str, ...] = ()


PAGE, NPY = b"<!doctype html>\n<html></html>\n", b"\x93NUMPY\x01\x00"
INDEX, CHANGES, WORDS = (
    b'\x40\0\0\0\0\0\0\0{"__metadata__":{"kind":"%s"}}' % name
    for name in (b"passage vectors", b"vector changes", b"bertsmith feature words")
)
OUTPUTS: Mapping[tuple[str, str], Output] = {
    ("vocab", "out"): Output("vocab texts --size 40 --out", ("texts/f0.txt",), ".txt", b"[PAD]\n[UNK]\na\n"),
    ("vocab", "report"): Output(
        "vocab texts --size 40 --out new.txt --report", ("texts/f0.txt",), ".json", b'{\n  "texts": []}\n'
    ),
    ("report", "out"): Output(
        "report run --out", (), ".html", PAGE, kept=("run/model/model.safetensors", "run/settings.json")
    ),
    ("predict", "submission"): Output(
        "predict --model mrpc --test submitted/MRPC.tsv --submission", ("submitted/MRPC.tsv",), "",
        b"index\tprediction\t#1 String\t#2 String\n0\t1\tthe man\tthe store\n", "MRPC.tsv",
    ),
    ("predict", "out"): Output("predict --model mrpc --out", (), ".jsonl", b'{"id": "1", "label": "0"}\n'),
    ("predict", "out as .csv"): Output(
        "predict --model single --data lines.csv --out", ("lines.csv",), ".csv", b"text,prediction\nthe man,0\n"
    ),
    ("classify", "out"): Output(
        "classify lines.csv --labels man,store --model model --out", ("lines.csv",), ".csv",
        b"text,prediction\nthe man,0\n", kept=("model/model.safetensors",),
    ),
    ("codes cluster", "out"): Output(
        "codes cluster words.safetensors --depth 1 --out", ("words.safetensors",), ".safetensors", WORDS,
        kept=("model/model.safetensors",),
    ),
    ("codes assign", "out"): Output(
        "codes assign lines.csv --words words.safetensors --out", ("lines.csv",), ".csv",
        b"subject,time,code\na,0,1\n",
    ),
    ("codes features", "out"): Output("codes features lines.npy --model model --out", ("lines.npy",), ".npy", NPY),
    ("embed", "out"): Output("embed lines.npy --model model --out", ("lines.npy",), ".npy", NPY),
    ("features", "out"): Output("features lines.npy --model model --out", ("lines.npy",), ".npy", NPY),
    ("features", "out as .jsonl"): Output(
        "features lines.jsonl --model model --out", ("lines.jsonl",), ".jsonl", b'{"linex_index": 0, "features": []}\n'
    ),
    ("index export", "out"): Output("index export my-index --out", (), ".parquet", b"PAR1"),
    ("search", "index"): Output(
        "search lines.txt --model model --query man --index", ("lines.txt",), "", INDEX,
        kept=("model/model.safetensors",),
    ),
    ("senses", "out"): Output("senses man texts --model model --out", ("texts/page.html",), ".html", PAGE),
    ("disambiguate", "out"): Output(
        "disambiguate senses.jsonl --model model --examples senses.jsonl --out", ("senses.jsonl",), ".jsonl",
        b'{"id": "1", "lemma": "man"}\n',
    ),
    ("gloss-pairs", "out"): Output(
        "gloss-pairs senses.csv --glosses glosses.csv --out", ("senses.csv",), ".csv",
        b"text,pair,label\nthe man,a person,yes\n",
    ),
    ("vectors", "out"): Output("vectors some.npy --center --out", ("some.npy",), ".npy", NPY),
    ("vectors", "save_changes"): Output(
        "vectors some.npy --center --save-changes", ("some.npy",), ".safetensors", CHANGES,
        kept=("model/model.safetensors",),
    ),
    ("vectors", "picture"): Output("vectors some.html --picture", ("some.html",), ".html", PAGE),
    ("vectors convert", "out"): Output(
        "vectors convert some.vec --to text --out", ("some.vec",), ".vec", b"1 2\na 0 1\n"
    ),
}  # fmt: skip
# Outputs that are folders; their command is typed with an existing folder of another kind, and with an input.
FOLDERS = {
    ("demo", "out"): ("demo --text texts --out", ("texts",)),
    ("corpus", "out"): ("corpus texts --vocab vocab.txt --replace --out", ("texts", ".")),
    ("pretrain", "out"): ("pretrain corpus --size tiny --steps 1 --out", ("corpus",)),
    ("train-translation", "out"): ("train-translation pairs.tsv --pieces 8 --steps 1 --out", ("pairs.tsv",)),
    ("memory train", "out"): ("memory train stories.txt --steps 1 --out", ("stories.txt",)),
    ("codes build", "out"): ("codes build events.csv --replace --out", ("events.csv", ".")),
    ("codes train", "out"): ("codes train codes --steps 1 --out", ("codes",)),
    ("codes embed", "out"): ("codes embed events.csv --model visits --replace --out", ("events.csv", "visits", ".")),
    ("codes train-video", "out"): (
        "codes train-video segments.tsv --init model --steps 1 --out",
        ("segments.tsv", "model"),
    ),
    ("finetune", "out"): ("finetune --model model --task spam --out", ("model",)),
    ("vectors train", "out"): ("vectors train texts --minimum-count 1 --replace --out", ("texts", ".")),
    ("compare", "out"): ("compare --task spam --systems one-hot --corpus texts --out", ("texts",)),
    ("audit", "out"): ("audit lines.csv --out", ("lines.csv",)),
    ("drift", "out"): ("drift lines.txt lines.csv --out", ("lines.txt", "lines.csv")),
    ("upgrade", "out"): ("upgrade model model --on lines.txt --out", ("model", "lines.txt")),
    ("distill", "out"): ("distill --teacher model --train lines.txt --out", ("model",)),
    ("distill corpus", "out"): ("distill corpus corpus --teacher model --steps 1 --out", ("corpus", "model")),
    ("adapt", "out"): ("adapt model texts --minutes 1 --out", ("model", "texts")),
    ("index", "out"): ("index texts --model model --out", ("texts", "model")),
    ("index join", "out"): ("index join my-index --out", ("my-index",)),
    ("vectors static", "out"): ("vectors static --model model --replace --out", ("model", ".")),
    ("convert", "destination"): ("convert model --to google --replace", ("model", ".")),
}


@pytest.fixture(autouse=True)
def _inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Works in a folder with all inputs that the table names."""
    monkeypatch.chdir(tmp_path)
    Path("texts").mkdir()
    Path("texts/f0.txt").write_text("the man went to the store\n\nhe bought a man\n" * 4)
    Path("texts/page.html").write_bytes(PAGE)
    Path("some.vec").write_text("1 2\na 0 1\n")
    for name in ("lines.txt", "lines.npy", "lines.jsonl"):
        Path(name).write_text("the man\nthe store\n")
    Path("lines.csv").write_text("text\nthe man\nthe store\n")
    Path("pairs.tsv").write_text("a b\tb a\nc\tc\n")
    Path("stories.txt").write_text("1 He left.\n2 Who left?\tHe\t1\n" * 2)
    Path("segments.tsv").write_text("text\tcodes\nthe man\ta b\nthe store\tb\n")
    Path("events.csv").write_text("subject,time,code\na,1,x\na,2,y\nb,1,x\n")
    Path("glosses.csv").write_text("lemma,sense,gloss\nman,1,a person\n")
    Path("words.safetensors").write_bytes(WORDS)
    np.save("some.npy", np.arange(12, dtype=np.float32).reshape(4, 3))
    Path("run/model").mkdir(parents=True)
    Path("run/model/model.safetensors").write_bytes(b"weights")
    Path("run/settings.json").write_text('{"settings": {}}')


@pytest.fixture
def _needed(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The models and corpora that the typed command names."""
    wanted = tuple(request.node.callspec.params[name] for name in ("command", "option"))
    typed = OUTPUTS[wanted].typed if wanted in OUTPUTS else FOLDERS[wanted][0]
    for name, word in (("vocabulary", "vocab.txt"), ("model", "model")):
        if word in typed or any(word in path for path in getattr(OUTPUTS.get(wanted), "kept", ())):
            request.getfixturevalue(name)
    if "predict" in typed:
        write_model(tmp_path / "mrpc", "pair")
        write_model(tmp_path / "single", "single")
        Path("submitted").mkdir()
        lines = ["index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t1\t2\tthe man\tthe store", ""]
        Path("submitted/MRPC.tsv").write_text("\n".join(lines), encoding="utf-8")
    if "my-index" in typed:
        build_index("some.npy", "my-index")
    if "codes train codes" in typed:
        build_codes([Path("events.csv")], Path("codes"))
    if "pretrain" in typed or "distill corpus" in typed:
        vocabulary = request.getfixturevalue("vocabulary")
        build_corpus([Path("texts")], WordPieceTokenizer(Vocabulary.load(vocabulary)), Path("corpus"), workers=1)


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of every file in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _hints(command: Command) -> dict[str, object]:
    """The types of the parameters of a command, by name."""
    types = {name: parameter.annotation for name, parameter in inspect.signature(command.function).parameters.items()}
    if command.name in REQUESTS:
        return types | {
            field.name: field_help(field).kind or field.type for field in own_fields(REQUESTS[command.name])
        }
    return types


def test_the_table_has_every_output_of_every_command() -> None:
    result = {
        (command.name, name)
        for command in COMMANDS
        for name, hint in _hints(command).items()
        if "Path" in str(hint) and name not in INPUTS
    } - CHANGED
    assert result == {(command, option.split()[0]) for command, option in OUTPUTS} | FOLDERS.keys()


def _refused(run, tmp_path: Path, *typed: str) -> str:
    before = content(tmp_path)
    result = run(*typed)
    lines = [line for line in result.err.splitlines() if not line.startswith("warning: ")]
    assert (result.code, len(lines)) == (1, 1), result.err
    assert content(tmp_path) == before
    return lines[0]


def _replacing(output: Output) -> list[str]:
    return [] if output.typed.startswith("search") else ["--replace"]


@pytest.mark.usefixtures("_needed")
@pytest.mark.parametrize(("command", "option"), [command for command, output in OUTPUTS.items() if output.inputs])
@pytest.mark.parametrize("how", ["itself", "another way", "hard link"])
def test_an_output_is_never_an_input(run, tmp_path, command, option, how) -> None:
    """The input has the content of the output, so that nothing else is wrong with it."""
    output = OUTPUTS[command, option]
    for name in output.inputs:
        Path(name).write_bytes(output.same)
        path = Path(name)
        if how == "another way":
            path = Path("texts", "..", name)
        elif how == "hard link":
            path = Path("linked", output.file_name or f"linked{output.ending}")
            path.parent.mkdir()
            os.link(name, path)
        typed = [*output.typed.split(), str(path.parent if output.file_name else path), *_replacing(output)]
        assert "apart from the input" in _refused(run, tmp_path, *typed)


@pytest.mark.usefixtures("_needed")
@pytest.mark.parametrize(("command", "option"), [command for command, output in OUTPUTS.items() if output.kept])
@pytest.mark.parametrize("linked", [False, True])
def test_an_output_is_never_a_file_of_a_model_or_run(run, tmp_path, command, option, linked) -> None:
    output = OUTPUTS[command, option]
    for number, kept_file in enumerate(output.kept):
        path = Path(f"linked{number}{output.ending}") if linked else Path(kept_file)
        if linked:
            os.link(kept_file, path)
        told = _refused(run, tmp_path, *output.typed.split(), str(path), *_replacing(output))
        assert "of another kind" in told or "with a name that ends in" in told


@pytest.mark.usefixtures("_needed")
@pytest.mark.parametrize(("command", "option"), OUTPUTS)
def test_an_output_never_replaces_a_file_of_another_kind(run, tmp_path, command, option) -> None:
    output = OUTPUTS[command, option]
    path = Path("mine", output.file_name or f"notes{output.ending}")
    path.parent.mkdir()
    path.write_text("my notes\n")
    for replace in ([], _replacing(output)):
        told = _refused(run, tmp_path, *output.typed.split(), str(path.parent if output.file_name else path), *replace)
        assert "of another kind" in told


@pytest.mark.usefixtures("_needed")
@pytest.mark.parametrize(("command", "option"), [command for command in OUTPUTS if command[0] != "search"])
def test_a_file_of_the_same_kind_is_replaced_only_on_request(run, tmp_path, command, option) -> None:
    output = OUTPUTS[command, option]
    path = Path("mine", output.file_name or f"earlier{output.ending}")
    path.parent.mkdir()
    path.write_bytes(output.same)
    told = _refused(run, tmp_path, *output.typed.split(), str(path.parent if output.file_name else path))
    assert "--replace" in told


@pytest.mark.usefixtures("_needed")
@pytest.mark.parametrize(("command", "option"), FOLDERS)
def test_an_output_folder_neither_is_nor_contains_an_input_or_something_else(run, tmp_path, command, option) -> None:
    typed, inputs = FOLDERS[command, option]
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("my notes\n")
    for folder in ("mine", *inputs):
        _refused(run, tmp_path, *typed.split(), folder)


@pytest.mark.parametrize(
    "typed",
    [
        "vocab texts --size 40 --out new.json --report new.json",
        "vectors some.npy --center --out x.npy --save-changes x.npy",
        "vectors some.npy --center --save-changes a/../x.html --picture x.html",
    ],
)
def test_two_outputs_of_a_command_are_two_files(run, tmp_path, typed) -> None:
    assert "twice" in _refused(run, tmp_path, *typed.split())


def test_a_page_has_the_ending_of_one(run, tmp_path) -> None:
    assert "ends in .html" in _refused(run, tmp_path, "report", "run", "--out", "new.txt")


def test_the_vocabulary_of_a_corpus_that_is_replaced_is_an_input(run, tmp_path, vocabulary) -> None:
    typed = ["corpus", "texts", "--workers", "1", "--out", "corpus"]
    run(*typed, "--vocab", vocabulary).succeeds()
    inside = shutil.copy(vocabulary, "corpus/mine.txt")
    assert "apart from the input" in _refused(run, tmp_path, *typed, "--vocab", str(inside), "--replace")


def test_on_request_a_vocabulary_and_its_report_are_replaced(run, vocabulary) -> None:
    typed = ["vocab", "texts", "--size", "40", "--out", str(vocabulary), "--report", "report.json", "--replace"]
    for _ in range(2):
        run(*typed).succeeds()
    assert len(Vocabulary.load(vocabulary)) == 40
