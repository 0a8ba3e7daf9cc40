"""A text has the same answer alone and among others, in every precision, to the tolerance that docs/serving.md states.

The texts have many lengths, so batches sorted by length hold runs of one and of several rows, and several batches are
needed. With one length the fast path of a layer may be taken, with several it is not.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from bertsmith import Model, load, quantize
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.processor import has_int8_products
from bertsmith.base.machine.runtime import BATCH_TOLERANCE, INFERENCE_TOKENS, LOW_PRECISION_TOLERANCE, choose_inference
from cli.test_predicting import write_model
from tasks.task_samples import WORDS

INT8 = choose_inference("cpu", "int8")
needs_int8 = pytest.mark.skipif(INT8.precision != "int8", reason="this processor does not multiply int8")
needs_int8_around_bf16 = pytest.mark.skipif(
    INT8.precision != "int8" or not has_int8_products(INT8.int8_bits, "bfloat16"),
    reason="products of int8 give no bf16 on this processor",
)
NATIVE, BF16 = ("fp32",), ("fp32", "bf16")
# Precision, the precisions of the hardware, and whether the scales of int8 are fixed.
KINDS = [
    pytest.param("fp32", NATIVE, False, id="fp32"),
    pytest.param("bf16", BF16, False, id="bf16"),
    pytest.param("int8", NATIVE, False, id="int8", marks=needs_int8),
    pytest.param("int8", BF16, False, id="int8 around bf16", marks=needs_int8_around_bf16),
    pytest.param("int8", NATIVE, True, id="int8 with fixed scales", marks=needs_int8),
    pytest.param("int8", BF16, True, id="int8 with fixed scales around bf16", marks=needs_int8_around_bf16),
]


def texts() -> list[str]:
    """Texts of 0 to 30 words; some lengths occur often, others once."""
    draw = generator(0, "texts of a mix")
    lengths = [*draw.integers(0, 12, size=30).tolist(), 7, 7, 7, 7, 30, 25]
    return [" ".join(WORDS[int(word)] for word in draw.integers(len(WORDS), size=length)) for length in lengths]


def loaded(path: Path, precision: str, native: tuple[str, ...], fixed: bool, patch: pytest.MonkeyPatch) -> Model:
    """A model of two classes; bf16 is used even where it is emulated."""
    patch.setattr("bertsmith.base.machine.runtime.fast_precisions", lambda device: native)
    folder = write_model(path / "model", "single")
    if fixed:
        data = path / "data.jsonl"
        rows = [{"text": f"{text} {number}", "label": "positive"} for number, text in enumerate(texts())]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        assert quantize(folder, data, limit=1.0).to_dict()["fixed"]
    return load(folder, device="cpu", precision=precision)


def probabilities(model: Model, asked: list[str]) -> npt.NDArray[np.float64]:
    """float64 [texts, classes]."""
    return np.array([list(prediction.probabilities) for prediction in model.classify(asked)])


def unit_vectors(model: Model, asked: list[str]) -> npt.NDArray[np.float64]:
    """float64 [texts, D]."""
    return np.asarray(model.embed(asked, normalize=True), dtype=np.float64)


@pytest.mark.parametrize("answers", [probabilities, unit_vectors])
@pytest.mark.parametrize(("precision", "native", "fixed"), KINDS)
def test_a_text_has_the_same_answer_alone_and_in_any_mix(
    precision: str,
    native: tuple[str, ...],
    fixed: bool,
    answers: Callable[[Model, list[str]], npt.NDArray[np.float64]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(INFERENCE_TOKENS, "cpu", 64)  # several batches
    model = loaded(tmp_path, precision, native, fixed, monkeypatch)
    asked = texts()
    alone = np.concatenate([answers(model, [text]) for text in asked])
    assert len({row.tobytes() for row in alone.round(4)}) > len(asked) / 2, "the answers differ from text to text"
    tolerance = BATCH_TOLERANCE if precision == "fp32" else LOW_PRECISION_TOLERANCE
    order = generator(1, "order of a mix").permutation(len(asked))
    for places in (np.arange(len(asked)), order, order[:5], order[5:20]):
        mixed = answers(model, [asked[index] for index in places])
        np.testing.assert_allclose(mixed, alone[places], rtol=0, atol=tolerance)
