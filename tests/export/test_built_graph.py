"""A model folder answers by a graph built from its weights without torch, and as torch does."""

import dataclasses
import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith import Model, load
from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.machine import runtime
from bertsmith.base.machine.thresholds import Thresholds
from bertsmith.inference.export import built_graph
from bertsmith.inference.export.built_graph import encoder_graph, heads_graph, task_graph
from bertsmith.inference.export.onnx_graph import graph_of
from bertsmith.inference.predictors.loading import load_predictor, load_pretraining_heads
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.checkpoints.huggingface import read_model_folder
from bertsmith.models.encoders.mpnet import ranges_of
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import ACTIVATIONS
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.early_engine import EarlyEngine
from bertsmith.tasks.encoding.onnx_engine import OnnxEncoder, OnnxModel
from export.export_models import alike, write_task
from model.examples import shake
from tasks.architecture_samples import config_of, tokenizer_of
from tasks.task_samples import CONFIG, TOKENIZER, WITH_GRAPH, examples_of

pytest.importorskip("onnxruntime", reason="needs the extra light")

NEAR = {"rtol": 0, "atol": 1e-5}
TEXTS = ["the film was good", "a plot", "", "the film was good and the plot was bad and the man was good", "the film"]
BUILT = ("bert", "distilbert", "roberta", "electra", "albert", "xlm-roberta", "mpnet", "deberta-v2")
PLAIN = {"device": "cpu", "precision": "fp32", "products": "auto"}


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are built as in a process that has not imported torch."""
    monkeypatch.setattr(built_graph, "has_torch", lambda: False)


def write(
    folder: Path, architecture: str = "bert", parts: tuple[str, ...] = ("pooler", "mlm"), **changes: object
) -> None:
    config = dataclasses.replace(config_of(architecture) if architecture != "bert" else CONFIG, **changes)
    model = untrained(config, seed=4)
    shake(model)
    tokenizer = TOKENIZER if architecture == "bert" else tokenizer_of(architecture)
    save_pretrained(folder, model, tokenizer, ModelMetadata.from_dict({}), trained=parts)
    return folder


def require_same_vectors(folder: Path, **options: object) -> None:
    quick, slow = (load_embedder(folder, device="cpu", characters=characters, **options) for characters in (100, None))
    assert isinstance(quick.encoder, OnnxEncoder)
    assert not isinstance(slow.encoder, OnnxEncoder)
    vectors = slow.embed(TEXTS)
    assert vectors.std() > 100 * NEAR["atol"], "constant vectors prove nothing"
    np.testing.assert_allclose(quick.embed(TEXTS), vectors, **NEAR)
    assert quick.settings == slow.settings, "a file that one of them has begun, the other one can continue"


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("architecture", BUILT)
def test_the_vectors_of_a_built_graph_are_those_of_torch(architecture: str, tmp_path: Path) -> None:
    write(tmp_path / "model", architecture)
    for pooling in ("mean", "cls", "max", "pooler"):
        require_same_vectors(tmp_path / "model", pooling=pooling)


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("seed", range(8))
def test_models_of_any_shape_have_the_same_vectors(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    heads, size = draw.choice([1, 2, 3, 4]), draw.choice([4, 8, 10])
    changes = {
        "hidden_size": heads * size,
        "num_attention_heads": heads,
        "intermediate_size": draw.randint(1, 60),
        "num_hidden_layers": draw.randint(1, 4),
        "hidden_act": draw.choice(ACTIVATIONS),
        "layer_norm_eps": draw.choice([1e-12, 1e-5]),
        "position_embedding_type": draw.choice(["absolute", "none"]),
    }
    parts = draw.choice([(), ("pooler",), ("pooler", "mlm", "nsp")])
    write(tmp_path / "model", parts=parts, **changes)
    require_same_vectors(tmp_path / "model", normalize=draw.random() < 0.5)


@pytest.mark.parametrize("architecture", [*BUILT, "openai-gpt"])
def test_arrays_give_the_graph_that_tensors_give(architecture: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "model", architecture, parts=("mlm",))
    of_arrays, of_tensors = (read_model_folder(folder, as_arrays=as_arrays) for as_arrays in (True, False))
    assert all(isinstance(array, np.ndarray) for array in of_arrays.tensors.values())
    assert of_arrays.report == of_tensors.report
    first, second = (graph_of(model.config, model.tensors, None) for model in (of_arrays, of_tensors))
    assert first.message() == second.message()
    assert first.arrays.keys() == second.arrays.keys()
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, second.arrays[name])


@pytest.mark.parametrize("kind", ["single", "tags", "answer"])
@pytest.mark.usefixtures("without_torch")
def test_the_encoder_below_the_head_of_a_task_gives_its_vectors(kind: str, tmp_path: Path) -> None:
    write_task(tmp_path / "model", kind)
    require_same_vectors(tmp_path / "model")


@pytest.mark.usefixtures("without_torch")
def test_a_run_gives_the_vectors_that_its_model_says(tmp_path: Path) -> None:
    write_task(tmp_path / "run" / "model", "vectors of partners")
    normalize = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
    modules = json.loads((tmp_path / "run" / "model" / "modules.json").read_text(encoding="utf-8"))
    (tmp_path / "run" / "model" / "modules.json").write_text(json.dumps([*modules, normalize]), encoding="utf-8")
    require_same_vectors(tmp_path / "run")
    vectors = load_embedder(tmp_path / "run", device="cpu", characters=100).embed(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.bfloat16])
def test_weights_of_other_types_give_the_vectors_of_torch_or_are_left_to_it(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    file = folder / "model.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(file).items()}, file, {"format": "pt"})
    (folder / "bertsmith.json").unlink()  # it holds the digest of the file
    if dtype is torch.bfloat16:
        assert encoder_graph(folder, characters=1, **PLAIN) is None
    else:
        require_same_vectors(folder)


@pytest.mark.usefixtures("without_torch")
def test_what_torch_alone_computes_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "bert")
    assert encoder_graph(tmp_path / "bert", characters=1000, **PLAIN) is not None
    assert encoder_graph(tmp_path / "bert", characters=10**12, **PLAIN) is None, "too much"
    for option in ({"precision": "bf16"}, {"products": "plain"}, {"device": "cuda"}):
        assert encoder_graph(tmp_path / "bert", characters=1, **PLAIN | option) is None
    write(tmp_path / "sines", position_embedding_type="sinusoidal")
    write(tmp_path / "modern", "modernbert")
    write(tmp_path / "gpt", "openai-gpt", parts=())
    for name in ("sines", "modern", "gpt", "nowhere"):
        assert encoder_graph(tmp_path / name, characters=1, **PLAIN) is None
    monkeypatch.setattr(built_graph, "has_torch", lambda: True)
    assert encoder_graph(tmp_path / "bert", characters=1, **PLAIN) is None, "nothing is saved"
    monkeypatch.undo()
    monkeypatch.setattr(built_graph, "has_torch", lambda: False)
    (tmp_path / "bert" / "model.safetensors").write_bytes(b"damaged")
    assert encoder_graph(tmp_path / "bert", characters=1, **PLAIN) is None


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("kind", WITH_GRAPH)
def test_a_built_graph_predicts_what_torch_predicts(kind: str, tmp_path: Path) -> None:
    write_task(tmp_path / "model", kind)
    examples = examples_of(kind, 8, seed=5)
    quick, slow = (load_predictor(tmp_path / "model", device="cpu", early=early) for early in (True, False))
    assert isinstance(quick.model, OnnxModel)
    assert not isinstance(slow.engine, EarlyEngine)
    alike(*([answer.to_dict() for answer in predictor.predict(examples)] for predictor in (quick, slow)))


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("architecture", BUILT)
def test_masks_and_next_sentences_are_those_of_torch(architecture: str, tmp_path: Path) -> None:
    parts = ("pooler", "mlm", "nsp") if architecture == "bert" else ("mlm",)
    write(tmp_path / "model", architecture, parts)
    quick, slow = (
        load_pretraining_heads(tmp_path / "model", device="cpu", needs=("mlm",), early=early) for early in (True, False)
    )
    assert isinstance(quick.model, OnnxModel)
    early, late = (
        {
            filling.piece: filling.probability
            for mask in predictor.fill("the [MASK] was [MASK]", top=20)
            for filling in mask
        }
        for predictor in (quick, slow)
    )
    assert early == pytest.approx(late, abs=1e-5)
    if architecture == "bert":
        pairs = [[answer.to_dict() for answer in model.next_sentence("the film", TEXTS[:2])] for model in (quick, slow)]
        alike(*pairs)


@pytest.mark.usefixtures("without_torch")
def test_torch_takes_over_once_there_is_much_to_predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_task(tmp_path / "model", "single")
    monkeypatch.setattr(built_graph, "_few_tokens", lambda folder: 40)
    monkeypatch.setattr(built_graph, "thresholds_here", lambda: Thresholds(graph_tokens=0))
    predictor = load_predictor(tmp_path / "model", device="cpu", early=True)
    examples = examples_of("single", 24, seed=5)
    first = predictor.predict(examples[:2])
    assert isinstance(predictor.model, OnnxModel)
    both = predictor.predict(examples)
    assert isinstance(predictor.model, EncoderForTask)
    alike([answer.to_dict() for answer in first], [answer.to_dict() for answer in both[:2]])
    later = load_predictor(tmp_path / "model", device="cpu").predict(examples)
    assert [answer.to_dict() for answer in both] == [answer.to_dict() for answer in later]


@pytest.mark.usefixtures("without_torch")
def test_few_tokens_at_a_time_stay_with_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_task(tmp_path / "model", "single")
    monkeypatch.setattr(built_graph, "_few_tokens", lambda folder: 40)
    predictor = load_predictor(tmp_path / "model", device="cpu", early=True)
    for example in examples_of("single", 24, seed=5):
        predictor.predict([example])
    assert isinstance(predictor.model, OnnxModel)


def both_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Model, Model]:
    """The model as a process that has torch loads it, and as one that has not imported it yet."""
    in_torch = load(folder, device="cpu")
    monkeypatch.setattr(built_graph, "has_torch", lambda: False)
    early = load(folder, device="cpu")
    assert (early.abilities, early.width, early.max_length, early.embed_length, early.attention_maps) == (
        in_torch.abilities, in_torch.width, in_torch.max_length, in_torch.embed_length, in_torch.attention_maps,
    )  # fmt: skip
    assert early.attention_maps > 0
    return early, in_torch


def is_early(model: Model) -> bool:
    """Whether a graph computes the model."""
    (work,) = model.hooked
    return work.is_early


@pytest.mark.parametrize("kind", ["", "single", "on the pair", "tags", "answer", "vectors of partners"])
def test_a_loaded_model_answers_by_a_graph_as_in_torch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind:
        write_task(tmp_path / "model", kind)
    else:
        write(tmp_path / "model", parts=("pooler",))
    early, in_torch = both_loaded(tmp_path / "model", monkeypatch)
    if kind in ("", "vectors of partners"):
        np.testing.assert_allclose(early.embed(TEXTS), in_torch.embed(TEXTS), **NEAR)
        np.testing.assert_allclose(early.rerank("a plot", TEXTS), in_torch.rerank("a plot", TEXTS), **NEAR)
        if not kind:
            pooled = [model.embed(TEXTS, pooling="pooler") for model in (early, in_torch)]
            np.testing.assert_allclose(*pooled, **NEAR)
        assert is_early(early)
    else:
        ability, examples = early.abilities[0], examples_of(kind, 8, seed=5)
        options = {"n_best": 1} if ability == "answer" else {}
        alike(
            *(
                [answer.to_dict() for answer in model.compute(ability, examples, **options)]
                for model in (early, in_torch)
            )
        )
        assert is_early(early)
        np.testing.assert_allclose(early.embed(TEXTS), in_torch.embed(TEXTS), **NEAR)
        assert not is_early(early), "the graph of a task gives no vectors"
        alike(
            *(
                [answer.to_dict() for answer in model.compute(ability, examples, **options)]
                for model in (early, in_torch)
            )
        )


def test_masks_of_a_loaded_model_are_filled_by_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "model", parts=("pooler", "mlm", "nsp"))
    early, in_torch = both_loaded(tmp_path / "model", monkeypatch)
    filled = [
        {piece.piece: piece.probability for mask in model.fill(["the [MASK] was [MASK]"], top=20)[0] for piece in mask}
        for model in (early, in_torch)
    ]
    assert filled[0] == pytest.approx(filled[1], abs=1e-5)
    np.testing.assert_allclose(early.embed(TEXTS), in_torch.embed(TEXTS), **NEAR)
    alike(*([pair.to_dict() for pair in model.next_sentence([("the film", "a plot")])] for model in (early, in_torch)))
    assert is_early(early)


def test_what_only_torch_gives_of_a_loaded_model_loads_it_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "model")
    early, in_torch = both_loaded(tmp_path / "model", monkeypatch)
    assert is_early(early)
    weights = [model.attention("the film").weights for model in (early, in_torch)]
    np.testing.assert_allclose(*weights, **NEAR)
    assert not is_early(early)
    np.testing.assert_array_equal(early.embed(TEXTS), in_torch.embed(TEXTS))
    (other,) = load(tmp_path / "model", device="cpu").features([["the", "film"]])
    (words,) = in_torch.features([["the", "film"]])
    torch.testing.assert_close(other, words, **NEAR)


def test_torch_takes_over_a_loaded_model_and_hooks_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "model")
    monkeypatch.setattr(built_graph, "_few_tokens", lambda folder: 1000)
    early, in_torch = both_loaded(tmp_path / "model", monkeypatch)
    passes = []
    hook = early.hooked[0].register_forward_pre_hook(lambda *_: passes.append(is_early(early)))
    for _ in range(400):
        early.embed(["the film was good"])
    assert is_early(early), "few at a time do not count"
    many = [" ".join(TEXTS)] * 200
    np.testing.assert_allclose(early.embed(many), in_torch.embed(many), **NEAR)
    assert not is_early(early)
    assert passes == [True] * 400 + [False]
    hook.remove()
    early.embed(TEXTS)
    assert len(passes) == 401


@pytest.mark.parametrize("kind", ["", "single"])
def test_torch_reads_the_weights_that_the_graph_has_read_or_none(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(built_graph, "_few_tokens", lambda folder: 0)
    monkeypatch.setattr(built_graph, "thresholds_here", lambda: Thresholds(graph_tokens=0))
    (tmp_path / "elsewhere").mkdir()
    for change in (False, True):
        folder = tmp_path / f"model {change}"
        if kind:
            write_task(folder, kind)
        else:
            write(folder)
        monkeypatch.chdir(tmp_path)
        early, in_torch = both_loaded(Path(folder.name), monkeypatch)
        monkeypatch.chdir(tmp_path / "elsewhere")
        if change:
            tensors = load_file(folder / "model.safetensors")
            save_file({name: 2 * tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
        for _ in range(2):
            if kind:
                alike(*([answer.to_dict() for answer in model.classify(TEXTS[:2])] for model in (early, in_torch)))
            else:
                np.testing.assert_allclose(early.embed(TEXTS), in_torch.embed(TEXTS), **NEAR)
        assert is_early(early) == change
        if change:
            with pytest.raises(CheckpointError, match="as when the model was loaded; found others; load the model"):
                early.attention("the film")


def missing() -> None:
    """Fails as the import of torch does where it is not installed."""
    raise ModuleNotFoundError("no torch", name="torch")


@pytest.mark.parametrize("kind", ["", "single"])
def test_what_only_torch_gives_is_refused_in_one_line_without_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind:
        write_task(tmp_path / "model", kind)
    else:
        write(tmp_path / "model", parts=("pooler",))
    monkeypatch.setattr(built_graph, "has_torch", lambda: False)
    monkeypatch.setattr(built_graph, "_is_installed", lambda package: package != "torch")
    monkeypatch.setattr(runtime, "_import_torch", missing)
    model = load(tmp_path / "model", device="cpu")
    assert model.abilities == (("classify",) if kind else ("embed", "rerank", "classify_by_labels"))
    with pytest.raises(CheckpointError, match="which ONNX Runtime computes"):
        model.attention("the film")
    with pytest.raises(ConfigError, match="found no torch"):
        model.features([["the", "film"]])
    for options in ({}, {"pooling": "pooler"}) if kind else ():
        with pytest.raises(ConfigError, match="found no torch"):
            model.embed(TEXTS, **options)


@pytest.mark.usefixtures("without_torch")
def test_threads_share_a_model_that_torch_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "model")
    monkeypatch.setattr(built_graph, "_few_tokens", lambda folder: 100)
    monkeypatch.setattr(built_graph, "thresholds_here", lambda: Thresholds(graph_tokens=0))
    model = load(tmp_path / "model", device="cpu")
    with ThreadPoolExecutor(4) as pool:
        vectors = list(pool.map(lambda _: model.embed(TEXTS), range(16)))
    for others in vectors[1:]:
        np.testing.assert_allclose(others, vectors[0], **NEAR)
    assert not is_early(model)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "call", ['len(model.embed(["the film", "a plot"]))', 'model.attention("film").weights.ndim - 2']
)
def test_a_forked_child_computes_with_a_loaded_model(call: str, tmp_path: Path) -> None:
    write(tmp_path / "model")
    program = f"""
import os, sys, bertsmith
model = bertsmith.load(sys.argv[1], device="cpu")
model.embed(["the film"])
assert "torch" not in sys.modules
child = os.fork()
if not child:
    os._exit({call})
sys.exit(0 if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2 else "the child failed")
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", program, str(tmp_path / "model")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("kind", ["hierarchical", "hierarchical by a BiLSTM", "text to write", "sentences of a text"])
def test_heads_that_are_no_linear_layer_are_left_to_torch(kind: str, tmp_path: Path) -> None:
    write_task(tmp_path / "model", kind)
    assert task_graph(tmp_path / "model", **PLAIN) is None


@pytest.mark.usefixtures("without_torch")
def test_texts_apart_on_a_convolution_are_left_to_torch(tmp_path: Path) -> None:
    plain, tokenizer = config_of("deberta-v2"), tokenizer_of("deberta-v2")
    write_task(tmp_path / "plain", "on texts apart", plain, tokenizer)
    write_task(tmp_path / "model", "on texts apart", dataclasses.replace(plain, conv_kernel_size=3), tokenizer)
    assert task_graph(tmp_path / "plain", **PLAIN) is not None
    assert task_graph(tmp_path / "model", **PLAIN) is None


@pytest.mark.usefixtures("without_torch")
def test_a_folder_without_the_head_that_is_asked_for_is_left_to_torch(tmp_path: Path) -> None:
    write(tmp_path / "base", parts=("mlm",))
    write(tmp_path / "gpt", "openai-gpt", parts=())
    write_task(tmp_path / "task", "single")
    assert heads_graph(tmp_path / "base", ("mlm",), **PLAIN) is not None
    assert heads_graph(tmp_path / "base", ("nsp",), **PLAIN) is None
    assert heads_graph(tmp_path / "gpt", ("mlm",), **PLAIN) is None
    assert task_graph(tmp_path / "base", **PLAIN) is None
    assert task_graph(tmp_path / "task", **PLAIN) is not None
    with pytest.raises(CheckpointError, match="a trained nsp head"):
        load_pretraining_heads(tmp_path / "base", device="cpu", needs=("nsp",), early=True)


def run(folder: Path, *arguments: str, stdin: str = "") -> str:
    """What a command writes in a process that cannot import torch."""
    program = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "onnx"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
from bertsmith.app.cli.entry import main
main()
"""
    command = [sys.executable, "-c", program, *arguments, "--device", "cpu"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, input=stdin)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_commands_answer_without_torch(tmp_path: Path) -> None:
    write(tmp_path / "model")
    write_task(tmp_path / "labels", "single")
    filled = json.loads(run(tmp_path, "fill", "--model", "model", "--json", "the [MASK] was good"))
    base = load_pretraining_heads(tmp_path / "model", device="cpu")
    alike(
        [piece["probability"] for piece in filled["masks"][0]],
        [piece.probability for piece in base.fill(filled["text"])[0]],
    )
    answer = json.loads(run(tmp_path, "predict", "--model", "labels", "--json", stdin="the film was good\n"))
    predictor = load_predictor(tmp_path / "labels", device="cpu")
    expected = predictor.predict([TextExample(id="1", location="", first="the film was good")])[0]
    alike(answer, {"id": answer["id"], **json.loads(json.dumps(expected.to_dict()))})
    (tmp_path / "passages.txt").write_text("".join(f"{text}\n" for text in TEXTS if text), encoding="utf-8")
    best = run(tmp_path, "search", "passages.txt", "--model", "model", "--query", "a plot", "--top", "1")
    assert "a plot" in best


def test_a_command_embeds_a_text_without_torch(tmp_path: Path) -> None:
    write(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    run(tmp_path, "embed", "texts.txt", "--model", "model", "--out", "vectors.npy")
    vectors = load_embedder(tmp_path / "model", device="cpu").embed(TEXTS)
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), vectors, **NEAR)


def test_ranges_of_distance_are_those_of_the_logarithm() -> None:
    """MPNet's ranges, at distances where the logarithm is not close to the next one."""
    distances = np.arange(-400, 401)
    far = np.abs(distances)
    wide = np.log(np.maximum(far, 1) / 8) / np.log(16) * 8
    is_clear = (far < 8) | (np.abs(wide - wide.round()) > 1e-9)
    expected = np.where(far < 8, far, np.minimum(8 + np.floor(wide), 15)) + 16 * (distances > 0)
    np.testing.assert_array_equal(ranges_of(401)[is_clear], expected[is_clear])
    assert ranges_of(401)[400 - np.array([8, 16, 32, 64, 128])].tolist() == [8, 10, 12, 14, 15]
