"""A loaded model in other processes: forked after use, spawned, pickled, copied; and its memory over many lengths."""

import copy
import ctypes
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import numpy.typing as npt
import pytest

import bertsmith
from bertsmith import Model
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from tasks.task_samples import write_base_model

TEXTS = ["the gate", "anna went to rome", "the film was good ."]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    write_base_model(tmp_path / "model")
    return bertsmith.load(tmp_path / "model", device="cpu")


def vectors(model: Model) -> npt.NDArray[np.float32]:
    return model.embed(TEXTS)


def test_a_copy_and_a_pickle_load_the_model_again(model: Model, tmp_path: Path) -> None:
    for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301 - ours
        assert (other.name, other.abilities) == (model.name, model.abilities)
        np.testing.assert_allclose(vectors(other), vectors(model), rtol=0, atol=BATCH_TOLERANCE)
    data = pickle.dumps(model)
    shutil.rmtree(tmp_path / "model")
    write_base_model(tmp_path / "model", seed=1)
    with pytest.raises(BertsmithError, match="load the model in the process that uses it"):
        pickle.loads(data)  # noqa: S301 - ours
    with pytest.raises(BertsmithError, match=r"expected the weights in .*; found others"):
        pickle.dumps(model)


def test_a_model_that_was_not_loaded_is_refused(model: Model) -> None:
    model.opening = None
    with pytest.raises(BertsmithError, match=r"found another one; load it in the process that uses it"):
        copy.deepcopy(model)


PROGRAM = """
import os, signal, sys, torch, numpy as np
torch.set_num_threads(2)
import bertsmith
model, texts = bertsmith.load(sys.argv[1], device="cpu", precision=sys.argv[2]), ["the gate " * 9] * 40
exact = model.embed(texts)
child = os.fork()
if child == 0:
    signal.alarm(100)  # a child that waits for a thread that does not exist
    try:
        same = np.allclose(model.embed(texts), exact, rtol=0, atol=1e-5)
    except bertsmith.BertsmithError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(4)
    os._exit(0 if same else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_a_child_that_is_forked_after_use_answers_or_says_what_to_do(kind: str, model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    if kind == "onnx":
        pytest.importorskip("onnxruntime", reason="needs the extra export")
        bertsmith.convert(folder, tmp_path / "onnx", to="onnx")
        folder = tmp_path / "onnx"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(folder), "fp32"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert result.returncode == (0 if kind == "torch" else 4), result.stderr[-2000:]
    if kind == "onnx":
        assert "found a child that was forked from it; load the model in the child" in result.stderr


def test_processes_receive_a_model(model: Model) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # of a function that the child finds by its name
        answer = pool.apply_async(Model.embed, [model, TEXTS]).get(timeout=100)
        np.testing.assert_allclose(answer, vectors(model), rtol=0, atol=BATCH_TOLERANCE)
    dumped = joblib.Parallel(n_jobs=1)(joblib.delayed(vectors)(each) for each in [model])
    np.testing.assert_allclose(dumped[0], vectors(model), rtol=0, atol=BATCH_TOLERANCE)


MEMORY = """
import ctypes, sys, torch
torch.set_num_threads(1)
from bertsmith.base.machine.allocator import own_bytes
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.models.products.prepared import prepare
from bertsmith.base.machine.runtime import choose_inference
from model.examples import random_batch, small_config

class Counts(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Counts
chosen = choose_inference("cpu", sys.argv[2], sys.argv[1])
model = TransformerEncoder(small_config(num_hidden_layers=2, hidden_size=384, num_attention_heads=12,
    intermediate_size=1536, max_position_embeddings=512))
prepare(model.eval(), chosen)
for length in range(2, 252, 2):  # each number of rows that is computed
    model(random_batch([length]))
    counts = library.mallinfo2()
    allocated, process = counts.uordblks + counts.hblkhd, own_bytes()
    if length == 2:
        start = process
    if length == 102:
        middle, middle_process = allocated, process
print((middle_process - start) / 2**20, (allocated - middle) / 2**20, (process - middle_process) / 2**20)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs the C library to count what is allocated"
)
@pytest.mark.parametrize(("products", "precision"), [("packed", "fp32"), ("plain", "fp32"), ("auto", "bf16")])
def test_memory_does_not_grow_with_each_new_length(products: str, precision: str) -> None:
    """In MiB: the lengths up to 102 fill the caches, those above add nothing but freed memory, up to a bound.

    Without limits, packed products of all lengths take 250 and 400 more.
    """
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": paths}
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        environment.pop(name, None)
    command = [sys.executable, "-W", "ignore", "-c", MEMORY, products, precision]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr[-2000:]
    first, allocated, more = map(float, result.stdout.split())
    assert first < 100
    assert allocated < 10
    assert more < 100
