"""An ONNX folder answers without torch: the same answers as the library, by the same commands and the same server.

The processes that answer run in this environment, with all other packages hidden, or in one that was installed without
torch: `make test-light` names its Python in BERTSMITH_LIGHT_PYTHON.
"""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertsmith import Model, load
from bertsmith.app.library.lines import predict_lines
from bertsmith.app.server.queue import ComputeCancelledError, cancelled_unless
from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError, VocabularyError
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.inference.export.conversion import export
from bertsmith.inference.predictors.loading import load_predictor, load_pretraining_heads
from bertsmith.inference.predictors.pretraining_heads import most_probable
from bertsmith.inference.predictors.request import PredictRequest
from bertsmith.inference.vectors.loading import load_embedder, load_token_features
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.baselines.word_model import write_words_folder
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding import onnx_engine
from bertsmith.tasks.encoding.onnx_session import places_of_read
from bertsmith.tasks.encoding.units import RowPart, separate_rows
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.text.tokenizers.pack import PackedRows
from export.export_models import alike, write_task
from tasks.architecture_samples import OTHERS, config_of
from tasks.architecture_samples import write_base_model as base_of
from tasks.task_samples import SPECS, TOKENIZER, examples_of, write_base_model

pytest.importorskip("onnx", reason="needs the extra export")
pytest.importorskip("onnxruntime", reason="needs the extra export")

ROOT = Path(__file__).parent.parent
LIGHT = ROOT / "requirements" / "light.txt"
INSTALLED = os.environ.get("BERTSMITH_LIGHT_PYTHON")
PYTHON = INSTALLED or sys.executable


def absent() -> list[str]:
    """The installed modules that neither `requirements/light.txt` nor the extra serve installs, directly or not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    open_ones = [*LIGHT.read_text(encoding="utf-8").splitlines(), *project["optional-dependencies"]["serve"]]
    allowed = {"bertsmith"}
    while open_ones:
        name = re.match(r"[\w.-]*", open_ones.pop())[0].lower().replace("_", "-")
        if name and name not in allowed:
            allowed.add(name)
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # for another system
                wanted = importlib.metadata.requires(name) or []
                open_ones += [line for line in wanted if "extra ==" not in line]
    of_modules = importlib.metadata.packages_distributions()
    return sorted(
        module
        for module, packages in of_modules.items()
        if module.isidentifier() and not allowed & {package.lower().replace("_", "-") for package in packages}
    )


ABSENT = absent()
HIDE = f"""
import sys
hidden = {[] if INSTALLED else ABSENT}
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
COMMAND = f"{HIDE}\nfrom bertsmith.app.cli.entry import main\nmain()"
KINDS = (
    "single", "pair", "several labels", "windows", "on the mean", "on the pair", "on texts apart", "number", "choice",
    "choice on the pair", "choice on texts apart", "tags", "answer or none", "sentences", "sentences of a text",
    "pronoun", "replies by vectors", "scored vectors",
)  # fmt: skip
TEXTS = ["the film was good", "a plot", "", "the film was good and the plot was bad and the man was good", "the film"]
PRONOUN = {"text": "anna good a bert bad who", "pronoun": [21, 24], "candidates": [[0, 4], [12, 16]]}
NEAR = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model folders by kind of task, and "base"; each has its export next to it, with "-onnx" in its name."""
    folder = tmp_path_factory.mktemp("light")
    for kind in KINDS:
        write_task(folder / kind, kind)
        export(folder / kind, folder / f"{kind}-onnx", to="onnx", int8=kind == "single", limit=1e9)
    write_base_model(folder / "base")
    export(folder / "base", folder / "base-onnx", to="onnx")
    return folder


def bertsmith(folder: Path, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """A command of a process in which torch cannot be imported."""
    command = [PYTHON, "-c", COMMAND, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, input=stdin)


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_predicts_what_the_library_predicts(places: Path, kind: str) -> None:
    examples = examples_of(kind, 12, seed=5)
    theirs = load_predictor(places / f"{kind}-onnx", device="cpu").predict(examples)
    ours = load_predictor(places / kind, device="cpu").predict(examples)
    alike([answer.to_dict() for answer in theirs], [answer.to_dict() for answer in ours])
    alone = [load_predictor(places / f"{kind}-onnx", device="cpu").predict([example])[0] for example in examples[:2]]
    alike([answer.to_dict() for answer in alone], [answer.to_dict() for answer in theirs[:2]])


def test_a_head_that_reads_pairs_gets_segments_in_an_export_without_them(tmp_path: Path) -> None:
    """The graph of an encoder without segments has segment ids as an input only for such a head."""
    task = task_for(SPECS["on the pair"])
    model = EncoderForTask(new_encoder(config_of("distilbert")), task.head, seed=4)
    metadata = ModelMetadata.from_dict({"task": "classification", "labels": ["no", "yes"], "spec": task.spec.to_dict()})
    save_pretrained(tmp_path / "model", model, TOKENIZER, metadata, trained=("classifier",))
    export(tmp_path / "model", tmp_path / "exported", to="onnx")
    examples = examples_of("on the pair", 12, seed=5)
    theirs, ours = (load_predictor(tmp_path / name, device="cpu").predict(examples) for name in ("exported", "model"))
    alike([answer.to_dict() for answer in theirs], [answer.to_dict() for answer in ours])
    turned = [dataclasses.replace(example, first=example.second, second=example.first) for example in examples]
    other = load_predictor(tmp_path / "exported", device="cpu").predict(turned)
    assert [answer.to_dict() for answer in other] != [answer.to_dict() for answer in theirs], (
        "the order of the texts counts"
    )


@pytest.mark.skipif(
    INSTALLED is not None, reason="needs the package tokenizers, which requirements/light.txt leaves out"
)
def test_exports_of_every_architecture_answer_without_torch(tmp_path: Path) -> None:
    """The package tokenizers is there: byte-level BPE and MPNet's WordPieces need it with torch, too."""
    for name in OTHERS:
        base_of(tmp_path / name, name)
        export(tmp_path / name, tmp_path / f"{name}-onnx", to="onnx", int8=True)
    program = f"""{HIDE}
hidden = [name for name in hidden if name != "tokenizers"]
import json
import bertsmith
answers = {{}}
for name in {OTHERS!r}:
    exact, rough = (bertsmith.load(f"{{name}}-onnx", precision=precision) for precision in ("fp32", "int8"))
    texts, masks = {TEXTS!r}, ["the [MASK] was [MASK]"]
    answers[name] = [exact.embed(texts).tolist(), rough.embed(texts).tolist(), exact.fill(masks)[0].to_dict()]
print(json.dumps(answers))
assert "torch" not in sys.modules
"""
    result = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    for name, (vectors, rough, filled) in json.loads(result.stdout).items():
        model = load(tmp_path / name, device="cpu")
        ours = model.embed(TEXTS)
        np.testing.assert_allclose(vectors, ours, **NEAR)
        assert 0 < np.abs(rough - ours).mean() < 0.2 * ours.std(), name
        alike(filled, json.loads(json.dumps(model.fill(["the [MASK] was [MASK]"])[0].to_dict())))


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("single", "the film was good"),
        ("pair", "the film\tthe plot"),
        ("on the pair", "the film\tthe plot"),
        ("choice", "the film\twas good\twas bad"),
        ("tags", "the man was good"),
        ("answer or none", "who was it\tthe man was good"),
        ("sentences of a text", "the film was bad. anna was good in oslo. it was a plot of one. the film was awful."),
        ("pronoun", json.dumps(PRONOUN)),
        ("replies by vectors", "anna was\tbert it\tanna it"),
        ("scored vectors", "the film\tthe plot"),
    ],
)
def test_predict_answers_without_torch(places: Path, kind: str, line: str) -> None:
    result = bertsmith(places, "predict", "--model", f"{kind}-onnx", "--json", stdin=f"{line}\n")
    assert result.returncode == 0, result.stderr
    ((example, ours),) = predict_lines(PredictRequest(places / kind, device="cpu"), [line])
    alike(json.loads(result.stdout), {"id": example.id, **json.loads(json.dumps(ours.to_dict()))})


def test_masks_are_filled_without_torch(places: Path) -> None:
    arguments = ("--json", "--top", "32", "the [MASK] was [MASK]")
    result = bertsmith(places, "fill", "--model", "base-onnx", *arguments)
    assert result.returncode == 0, result.stderr
    ours = load(places / "base", device="cpu").fill(["the [MASK] was [MASK]"], top=32)[0].to_dict()
    theirs = json.loads(result.stdout)
    for mask, other in zip(theirs["masks"], ours["masks"], strict=True):
        chances = {guess["piece"]: guess["probability"] for guess in other}
        assert {guess["piece"]: guess["probability"] for guess in mask} == pytest.approx(chances, abs=BATCH_TOLERANCE)
        assert [guess["probability"] for guess in mask] == sorted(
            (guess["probability"] for guess in mask), reverse=True
        )


def test_texts_get_their_vectors_without_torch(places: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    out = tmp_path / "vectors.npy"
    result = bertsmith(places, "embed", str(tmp_path / "texts.txt"), "--model", "base-onnx", "--out", str(out))
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(np.load(out), load_embedder(places / "base", device="cpu").embed(TEXTS), **NEAR)


@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "pooler"])
def test_the_vectors_of_an_export_are_those_of_the_library(places: Path, pooling: str) -> None:
    texts = TEXTS * 40  # several batches of mixed lengths
    ours = load_embedder(places / "base", device="cpu", pooling=pooling).embed(texts)
    theirs = load_embedder(places / "base-onnx", device="cpu", pooling=pooling).embed(texts)
    np.testing.assert_allclose(theirs, ours, **NEAR)
    assert (theirs[0] == theirs[5]).all(), "equal texts get equal vectors"


def test_the_words_of_an_export_have_the_vectors_of_the_last_layer(places: Path) -> None:
    texts = ["the film was good", "a plot"]
    ours, theirs = (
        next(load_token_features(places / name, device="cpu").read(texts)) for name in ("base", "base-onnx")
    )
    assert (theirs.token, theirs.begin.tolist()) == (ours.token, ours.begin.tolist())
    np.testing.assert_allclose(theirs.vectors, ours.vectors, **NEAR)


def test_a_server_answers_without_torch(places: Path) -> None:
    program = f"""{HIDE}
import asyncio, json
sys.path.insert(0, {str(Path(__file__).parent)!r})
from bertsmith.app.server.app import create_app
from bertsmith.app.server.process import load_models
from server.asgi import running

async def ask():
    named = {{"labels": "single", "tags": "tags", "questions": "answer or none", "base": "base"}}
    named |= {{"extracts": "sentences of a text", "names": "pronoun", "replies": "replies by vectors"}}
    models = load_models([f"{{name}}={{kind}}-onnx" for name, kind in named.items()])
    replies = []
    async with running(create_app(models)) as client:
        for path, body in {REQUESTS!r}:
            reply = await client.post(path, body)
            replies.append([reply.status, reply.json])
        replies.append([200, (await client.get("/models")).json])
    print(json.dumps(replies))

asyncio.run(ask())
assert "torch" not in sys.modules
"""
    result = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=False, cwd=places)
    assert result.returncode == 0, result.stderr[-2000:]
    replies = json.loads(result.stdout)
    assert [status for status, _ in replies] == [200] * 8 + [400, 400, 200], replies
    assert replies[-1][1]["models"][0]["abilities"] == ["classify", "pieces"], "a graph shows no attention"
    model = load(places / "single", device="cpu")
    assert replies[0][1]["predictions"][0]["label"] == model.classify(["the film was good"])[0].label
    (extract,) = load(places / "sentences of a text", device="cpu").extract(REQUESTS[5][1]["texts"])
    assert [sentence["index"] for sentence in replies[5][1]["predictions"][0]["sentences"]] == [
        extract.sentences[0].index
    ]
    assert replies[5][1]["predictions"][0]["scores"] == pytest.approx(extract.scores, abs=1e-5)
    assert replies[4][1]["data"][0]["embedding"] == pytest.approx(
        load(places / "base", device="cpu").embed(["the film was good"])[0].tolist(), abs=1e-5
    )


def test_the_command_serves_exports_without_torch(places: Path) -> None:
    program = f"""{HIDE}
from bertsmith.app.server import process
process.serve = lambda request: print(*process.load_models(request.model, **request.arguments(process.load_models)))
from bertsmith.app.cli.entry import main
main()
"""
    arguments = ("serve", "--model", "labels=single-onnx", "--model", "base-onnx", "--port", "0")
    command = [PYTHON, "-c", program, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=places)
    assert (result.returncode, result.stdout) == (0, "labels base-onnx\n"), result.stderr[-2000:]


@pytest.mark.parametrize("kind", ["single", "pair"])
def test_a_bag_of_words_answers_from_numpy_alone(tmp_path: Path, kind: str) -> None:
    examples = [example for example in examples_of(kind, 12, seed=5) if isinstance(example, TextExample)]
    spec = SPECS[kind]
    labels = np.array([spec.labels.index(str(example.label)) for example in examples])
    metadata = ModelMetadata(task=spec.kind, labels=spec.labels, spec=spec.to_dict())
    write_words_folder(tmp_path / "bag", NGramModel.fitted(spec, examples, labels), metadata)
    lines = ["\t".join(filter(None, (example.first, example.second))) for example in examples]
    result = bertsmith(tmp_path, "predict", "--model", "bag", "--json", stdin="\n".join(lines) + "\n")
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line)["probabilities"] for line in result.stdout.splitlines()]
    alike(answers, [answer.to_dict()["probabilities"] for answer in load_predictor(tmp_path / "bag").predict(examples)])


REQUESTS = [
    ("/predict", {"model": "labels", "texts": ["the film was good"]}),
    ("/tag", {"texts": ["the man was good"]}),
    ("/answer", {"questions": [{"question": "who was it", "context": "the man was good"}]}),
    ("/fill", {"texts": ["the [MASK] was good"]}),
    ("/v1/embeddings", {"model": "base", "input": ["the film was good"]}),
    ("/predict", {"model": "extracts", "texts": ["the film was bad. anna was good in oslo. it was a plot of one."]}),
    ("/resolve", {"pronouns": [PRONOUN]}),
    ("/predict", {"model": "replies", "questions": [{"context": "anna was", "endings": ["bert it", "anna it"]}]}),
    ("/v1/embeddings", {"model": "labels", "input": ["the film was good"]}),
    ("/attention", {"model": "base", "text": "the film"}),
]


def test_the_requirements_without_torch_are_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = LIGHT.read_text(encoding="utf-8").splitlines()
    listed = [line for line in lines if not line.startswith("#")]
    assert listed == project["optional-dependencies"]["light"]
    assert set(listed) - set(project["dependencies"]) == {"onnxruntime>=1.20"}


def test_packages_that_are_not_listed_are_hidden() -> None:
    assert {"torch", "onnx", "pytest", "tokenizers"} <= set(ABSENT)
    assert not {"numpy", "onnxruntime", "pyarrow", "typer", "bertsmith"} & set(ABSENT)


@pytest.mark.skipif(INSTALLED is None, reason="needs an environment without torch, which make test-light installs")
def test_the_environment_that_was_installed_has_no_torch() -> None:
    program = """
import importlib.util
import bertsmith
names = ("torch", "transformers", "tokenizers", "sklearn", "scipy", "onnx")
print(bertsmith.__file__, *(name for name in names if importlib.util.find_spec(name)))
"""
    result = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    file, *torch_modules = result.stdout.split()
    assert not torch_modules
    assert not Path(file).is_relative_to(ROOT / "src"), "the package is installed there, not read from this checkout"


def test_the_package_and_the_help_need_no_torch(places: Path) -> None:
    program = f"{HIDE}\nimport bertsmith\nassert bertsmith.Model and bertsmith.load and 'torch' not in sys.modules"
    assert subprocess.run([PYTHON, "-c", program], check=False).returncode == 0
    assert "Usage: bertsmith" in bertsmith(places, "--help").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "--model", "single", "--precision", "bf16"),
        ("fill", "--model", "base", "the [MASK]", "--products", "plain"),
        ("embed", "-", "--model", "base", "--out", "never.npy"),
        ("inspect", "single"),
        ("finetune", "--model", "base", "--task", "spam", "--out", "never"),
        ("convert", "single", "never", "--to", "google"),
        ("serve", "--model", "single", "--precision", "bf16", "--port", "0"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_needs_torch_says_so_in_one_line(places: Path, arguments: tuple[str, ...]) -> None:
    result = bertsmith(places, *arguments, stdin="the film\n")
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    words = ("bertsmith: expected", "bertsmith: this command needs the package torch, which is not installed; ")
    assert last.startswith(words), result.stderr
    assert "install" in last
    assert "Traceback" not in result.stderr
    assert not list(places.glob("never*"))


def _without(key: str, folder: Path) -> None:
    values = json.loads((folder / "bertsmith.json").read_text(encoding="utf-8"))
    del values[key]
    (folder / "bertsmith.json").write_text(json.dumps(values), encoding="utf-8")


def _copy(source: Path, folder: Path) -> Path:
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_folder_without_its_metadata_or_with_an_old_one_is_refused_in_one_line(places: Path, tmp_path: Path) -> None:
    folder = _copy(places / "single-onnx", tmp_path / "old")
    _without("onnx", folder)
    with pytest.raises(CheckpointError, match=r"the shape of the model.*found none; export the model again"):
        load(folder)
    (folder / "bertsmith.json").unlink()
    with pytest.raises(CheckpointError, match=r"expected bertsmith\.json next to.*export the model again"):
        load(folder)
    with pytest.raises(InputError, match="name the folder"):
        load(places / "single-onnx" / "model.onnx")
    folder = _copy(places / "single-onnx", tmp_path / "bare")
    for name in ("vocab.txt", "tokenizer.json"):
        (folder / name).unlink()
    with pytest.raises(CheckpointError, match="expected the vocabulary next to the ONNX graph"):
        load(folder)
    folder = _copy(places / "single-onnx", tmp_path / "swapped")
    (folder / "tokenizer.json").unlink()
    *pieces, before, last = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    (folder / "vocab.txt").write_text("\n".join([*pieces, last, before]) + "\n", encoding="utf-8")
    with pytest.raises(VocabularyError, match="different pieces, or the same in another order"):
        load(folder)
    folder = _copy(places / "single-onnx", tmp_path / "damaged")
    (folder / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(CheckpointError, match=r"expected model\.onnx to run in onnxruntime"):
        load(folder)
    with pytest.raises(CheckpointError, match=r"different or missing ones: model\.onnx"):
        load(folder, verify=True)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("single", {"precision": "bf16"}),
        ("tags", {"precision": "int8"}),
        ("single", {"device": "cuda"}),
        ("single", {"products": "packed"}),
    ],
    ids=["another precision", "no int8 graph", "another device", "other products"],
)
def test_what_an_export_does_not_have_is_refused(places: Path, name: str, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="ONNX folder"):
        load(places / f"{name}-onnx", **options)


@pytest.mark.parametrize("loader", [load, load_embedder, load_token_features, load_pretraining_heads])
def test_an_export_refuses_products_however_it_is_loaded(places: Path, loader: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match=r"expected products auto, for an ONNX folder; found 'packed'"):
        loader(places / "base-onnx", products="packed")


def test_the_int8_graph_is_the_one_that_int8_runs(places: Path) -> None:
    exact, rough = (load(places / "single-onnx", precision=precision) for precision in ("fp32", "int8"))
    exact_share, other = (model.classify(["the film was good"])[0].probability for model in (exact, rough))
    assert exact_share != other
    assert exact_share == pytest.approx(other, abs=0.1)


def test_a_graph_says_what_it_cannot_do(places: Path) -> None:
    labels, base = load(places / "single-onnx"), load(places / "base-onnx")
    assert (labels.abilities, labels.width, labels.shows_attention) == (("classify",), 0, False)
    assert base.abilities == ("fill", "next_sentence", "embed", "rerank", "classify_by_labels")
    with pytest.raises(CheckpointError, match="gives only its outputs"):
        labels.embed(["the film"])
    with pytest.raises(CheckpointError, match="attention weights"):
        base.attention("the film")
    with pytest.raises(ConfigError, match="layers 'last' for an ONNX folder"):
        load_embedder(places / "base-onnx", layers="sum-all")
    with pytest.raises(CheckpointError, match="a fine-tuned model"):
        load_predictor(places / "base-onnx")
    assert [len(row) for row in base.fill(["the [MASK]", "[MASK] [MASK]"])] == [1, 2]
    pairs = [("the film", "was good"), ("the plot", "was bad")]
    for score, other in zip(base.next_sentence(pairs), load(places / "base").next_sentence(pairs), strict=True):
        assert dataclasses.replace(score, probability=0) == dataclasses.replace(other, probability=0)
        assert score.probability == pytest.approx(other.probability, abs=BATCH_TOLERANCE)


def test_a_pass_that_no_one_waits_for_is_not_started(places: Path) -> None:
    model: Model = load(places / "base-onnx")
    with pytest.raises(ComputeCancelledError), cancelled_unless(model.hooked, lambda: False):
        model.embed(["the film"])
    assert model.embed(["the film"]).shape == (1, model.width)


def test_an_int8_graph_answers_a_text_among_others_as_alone(places: Path) -> None:
    model = load(places / "single-onnx", precision="int8")
    texts = ["the film was good", "bad", "the plot was very bad and the film was long", "good film"]
    together = [prediction.probabilities for prediction in model.classify(texts)]
    assert together == [model.classify([text])[0].probabilities for text in texts]


def test_batches_of_a_graph_grow_with_the_threads(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Model = load(places / "base-onnx")
    lengths = np.full(40, 16, dtype=np.int32)
    ids = np.random.default_rng(3).integers(5, 30, lengths.sum()).astype(np.int32)
    rows = PackedRows(ids, ids * 0, lengths, lengths * 0)
    passes = []
    model.encoder.model.register_forward_pre_hook(lambda *_: passes.append(1))
    vectors = []
    for threads, expected in ((1, 3), (2, 2), (64, 1)):
        monkeypatch.setattr(onnx_engine, "num_threads", lambda threads=threads: threads)
        passes.clear()
        vectors.append(model.encoder.row_vectors(rows, model.encoder.choice("last")))
        assert len(passes) == expected
    for other in vectors[1:]:
        np.testing.assert_allclose(vectors[0], other, rtol=0, atol=BATCH_TOLERANCE)


@pytest.mark.parametrize("kind", ["single", "tags", "base"])
def test_many_texts_are_computed_by_one_thread_each(places: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"the {'film ' * count}was good" for count in range(1, 25)] * 2
    rows = [text.split() for text in texts]

    def answers(model: Model) -> object:
        if kind == "base":
            return model.embed(texts)
        if kind == "single":
            return np.array([prediction.probabilities for prediction in model.classify(texts)])
        return [list(answer.tags) for answer in model.tag(rows)]

    monkeypatch.setattr(onnx_engine, "num_threads", lambda: 2)
    model: Model = load(places / f"{kind}-onnx")
    one_by_one = answers(model)
    assert not model.encoder.model.is_loaded_twice
    monkeypatch.setattr(onnx_engine, "_MANY_TOKENS", 50)
    monkeypatch.setattr(onnx_engine, "_TOKENS_PER_THREAD", 40)
    used = set()
    run = onnx_engine.Session.run
    monkeypatch.setattr(
        onnx_engine.Session, "run", lambda *arguments: used.add(threading.current_thread().name) or run(*arguments)
    )
    at_once = answers(model)
    assert used
    assert threading.current_thread().name not in used
    if kind == "tags":
        assert at_once == one_by_one
    else:
        np.testing.assert_allclose(at_once, one_by_one, rtol=0, atol=BATCH_TOLERANCE)


def test_many_texts_in_int8_are_answered_as_alone(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_engine, "num_threads", lambda: 2)
    monkeypatch.setattr(onnx_engine, "_MANY_TOKENS_INT8", 50)
    model = load(places / "single-onnx", precision="int8")
    texts = [f"the {'film ' * count}was good" for count in range(1, 25)]
    together = [prediction.probabilities for prediction in model.classify(texts)]
    assert model.encoder.model.is_loaded_twice
    assert together == [model.classify([text])[0].probabilities for text in texts]


@pytest.fixture
def parallel_model(places: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model that computes every text by one of two threads."""
    monkeypatch.setattr(onnx_engine, "num_threads", lambda: 2)
    monkeypatch.setattr(onnx_engine, "_MANY_TOKENS", 1)
    monkeypatch.setattr(onnx_engine, "_TOKENS_PER_THREAD", 1)
    return load(places / "base-onnx")


DIFFERENT = [f"the {'film ' * count}" for count in range(30)]


def test_many_texts_stop_when_no_one_waits(parallel_model: Model) -> None:
    passes = []

    def after_three() -> bool:
        passes.append(1)
        return len(passes) < 4

    with pytest.raises(ComputeCancelledError), cancelled_unless(parallel_model.hooked, after_three):
        parallel_model.embed(DIFFERENT)
    assert len(passes) == 4


def test_an_error_in_one_thread_is_raised_and_ends_the_others(
    parallel_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fail(*_: object) -> None:
        calls.append(1)
        raise CheckpointError(expected="a graph", found="a wrong one", fix="export it again")

    monkeypatch.setattr(onnx_engine.Session, "run", fail)
    with pytest.raises(CheckpointError, match="found a wrong one"):
        parallel_model.embed(DIFFERENT)
    assert 1 <= len(calls) <= 3  # two threads, and the one that is ready


def test_positions_that_are_read_are_counted_in_their_part() -> None:
    lengths = np.array([3, 4, 2], dtype=np.int32)
    ids = np.arange(9, dtype=np.int32)
    features = separate_rows(PackedRows(ids, ids * 0, lengths, lengths * 0), np.array([1, 4, 5, 8]))
    part = RowPart(features=features, rows=np.array([2, 1]))
    taken = np.concatenate([ids[7:9], ids[3:7]])
    assert taken[places_of_read(part)].tolist() == [8, 4, 5] == features.read[part.chosen].tolist()
    every = RowPart(features=dataclasses.replace(features, read=None), rows=np.array([2, 1]))
    assert places_of_read(every).tolist() == [0, 1, 2, 3, 4, 5]


def test_the_most_probable_outputs_are_those_of_a_softmax() -> None:
    logits = np.random.default_rng(1).normal(size=(5, 40)).astype(np.float32)
    logits[0, :3] = 9.0  # equal ones come in their order
    best, chances = most_probable(logits, 7)
    shares = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum(axis=1, keepdims=True)
    assert best.tolist() == np.argsort(-logits, axis=1, kind="stable")[:, :7].tolist()
    np.testing.assert_allclose(chances, np.take_along_axis(shares, best, axis=1), rtol=1e-5)


def test_the_metadata_of_an_export_keeps_the_shape_of_its_graph(places: Path) -> None:
    values = json.loads((places / "single-onnx" / "bertsmith.json").read_text(encoding="utf-8"))
    metadata = ModelMetadata.from_dict(values)
    assert metadata.other["onnx"]["int8_bits"] in (7, 8)
    assert metadata.spec["kind"] == "classification"
