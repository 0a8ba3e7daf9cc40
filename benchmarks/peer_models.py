"""Converts a model folder to the formats of other runtimes; each is created once and cached.

The graph for ONNX Runtime and OpenVINO is exported from the `transformers` class with the pooling included, so that
unused hidden states are not copied out.
"""

import contextlib
import copy
import io
import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from encode_texts import rows_of
from torch import Tensor, nn

from bertsmith import quantize
from bertsmith.base.machine.processor import hardware
from bertsmith.base.storage.files import atomic_folder, digest_file, read_json
from bertsmith.inference.export.conversion import export
from bertsmith.models.checkpoints.load import load_any

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_OPSET = 17
_ANY_DIFFERENCE = 1e9
_FILES = {
    "ours": "model.safetensors",
    "plain": "model.onnx",
    "fused": "model.onnx",
    "nncf": "model.xml",
    "ctranslate2": "model",
}


class ModelFiles:
    """The formats of one model.

    Args:
        folder: a model folder that `transformers` can read.
        pooling: "mean" or "cls".
        work: cache folder for the formats, keyed by the digest of the weights.
        calibration: texts that determine the ranges of static int8.
    """

    def __init__(self, folder: Path, pooling: str, work: Path, calibration: Sequence[str]) -> None:
        self.folder, self.pooling, self.calibration = folder, pooling, calibration
        self.config = read_json(folder / "config.json")
        digest = digest_file(folder / "model.safetensors").split(":")[-1]
        self._kept = work / f"{folder.name}-{pooling}-{digest[:12]}"
        self._kept.mkdir(parents=True, exist_ok=True)

    def onnx(self, *, fused: bool = False) -> Path:
        """The graph in fp32, optionally `fused` by ONNX Runtime's optimizer for transformers."""
        return self._made("fused", self._fuse) if fused else self._made("plain", self._export)

    def onnx_int8(self, *, fused: bool = False, careful: bool = False) -> Path:
        """The graph with int8 weights and dynamic activations.

        Args:
            fused: start from the fused graph.
            careful: one scale per channel and, without VNNI, one bit less, as its manual recommends.
        """
        name = f"{'fused' if fused else 'plain'}-int8{'-careful' if careful else ''}"
        return self._made(name, lambda path: self._quantize(self.onnx(fused=fused), path, careful))

    def openvino_int8(self) -> Path:
        """The graph quantized by NNCF, with ranges from the calibration texts."""
        return self._made("nncf", self._calibrate)

    def ours_int8(self) -> Path:
        """Our folder with the scales of int8 fixed by the calibration texts; the plain folder without such texts."""
        return self._made("ours", self._fix_scales).parent if len(self.calibration) else self.folder

    def ours_onnx(self) -> Path:
        """Our export of the folder, in fp32 and int8, which answers without torch."""
        folder = self._kept / "ours-onnx"
        if not folder.exists():
            print(f"  making {folder.name} of {self.folder.name}", file=sys.__stdout__, flush=True)
            with silent():  # the benchmark itself compares the vectors
                export(self.folder, folder, to="onnx", int8=True, limit=_ANY_DIFFERENCE)
        return folder

    def uncalibrated(self) -> "ModelFiles":
        """The same files without calibration texts."""
        files = copy.copy(self)
        files.calibration = []
        return files

    def ctranslate2(self) -> Path:
        """The CTranslate2 folder, in fp32; CTranslate2 quantizes on loading."""
        return self._made("ctranslate2", self._convert)

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        folder, form = self._kept / name, name.split("-", maxsplit=1)[0]
        if not folder.exists():
            print(f"  making {name} of {self.folder.name}", file=sys.__stdout__, flush=True)
            with silent(), atomic_folder(folder) as partial:
                make(partial / _FILES[form])
        return folder / _FILES[form]

    def _export(self, path: Path) -> None:
        from transformers import AutoModel

        # The fusions of the other runtimes look for eager attention.
        encoder = AutoModel.from_pretrained(self.folder, attn_implementation="eager")
        ids = torch.tensor([[1, 2, 3, 4, 5], [1, 2, 3, 0, 0]])
        example = (ids, (ids > 0).long(), torch.zeros_like(ids))
        axes = {0: "rows", 1: "tokens"}
        with torch.no_grad():
            torch.onnx.export(
                Pooled(encoder, self.pooling).eval(),
                example,
                path,
                input_names=list(INPUTS),
                output_names=["vectors"],
                dynamic_axes={**dict.fromkeys(INPUTS, axes), "vectors": {0: "rows"}},
                opset_version=_OPSET,
                dynamo=False,
            )

    def _fuse(self, path: Path) -> None:
        from onnxruntime.transformers.optimizer import optimize_model

        heads, width = self.config["num_attention_heads"], self.config["hidden_size"]
        fused = optimize_model(str(self.onnx()), model_type="bert", num_heads=heads, hidden_size=width)
        assert fused.get_fused_operator_statistics()["Attention"] == self.config["num_hidden_layers"], "nothing fused"
        fused.save_model_to_file(str(path))

    def _quantize(self, source: Path, path: Path, careful: bool) -> None:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(
            source,
            path,
            weight_type=QuantType.QInt8,
            per_channel=careful,
            reduce_range=careful and hardware().int8_bits != 8,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )

    def _calibrate(self, path: Path) -> None:
        import nncf
        import openvino

        tokenizer = load_any(self.folder).require_tokenizer()
        rows = nncf.Dataset(rows_of(self.calibration, tokenizer), lambda row: graph_inputs([row]))
        model = openvino.Core().read_model(self.onnx())
        quantized = nncf.quantize(model, rows, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(self.calibration))
        openvino.save_model(quantized, path, compress_to_fp16=False)

    def _fix_scales(self, path: Path) -> None:
        shutil.copytree(self.folder, path.parent, dirs_exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            texts = Path(folder) / "texts.jsonl"
            texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in self.calibration), encoding="utf-8")
            quantize(path.parent, texts, limit=1.0)  # the first trial has fixed scales in all layers

    def _convert(self, path: Path) -> None:
        from ctranslate2.converters import TransformersConverter

        TransformersConverter(str(self.folder)).convert(str(path))


class Pooled(nn.Module):
    """An encoder of `transformers` with pooling: one vector per row."""

    def __init__(self, encoder: nn.Module, pooling: str) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """The vectors [rows, width]."""
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        states: Tensor = output.last_hidden_state
        if self.pooling == "cls":
            return states[:, 0]
        kept = attention_mask[:, :, None].to(states.dtype)
        return (states * kept).sum(1) / kept.sum(1)


def graph_inputs(rows: Sequence[npt.NDArray[np.integer]]) -> dict[str, npt.NDArray[np.int64]]:
    """The inputs of a graph for these rows, padded to the longest."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(mask.shape, dtype=np.int64)
    ids[mask] = np.concatenate(rows)
    return dict(zip(INPUTS, (ids, mask.astype(np.int64), np.zeros_like(ids)), strict=True))


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Suppresses the output of the runtimes while they load and convert."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield
