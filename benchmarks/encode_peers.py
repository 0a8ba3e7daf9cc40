"""The runtimes under test: ours and those that a user would otherwise pick, each a `System` in one small class."""

import importlib.metadata
import importlib.util
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from encode_systems import Manner, System, UnavailableError, Vectors
from encode_texts import Ids
from peer_models import ModelFiles, graph_inputs

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.machine.runtime import fast_precisions
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.text.tokenizers.pack import PackedRows

TORCH_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Ours(System):
    """The embedder of this package, starting from rows of ids."""

    engine = "ours"
    precisions = ("fp32", "bf16", "int8")
    products: ClassVar[str] = "auto"

    def __init__(self, files: ModelFiles, precision: str, threads: int) -> None:
        super().__init__(files, precision, threads)
        try:
            self.embedder = load_embedder(
                files.ours_int8() if precision == "int8" else files.folder,
                pooling=files.pooling,
                normalize=False,
                device="cpu",
                precision=precision,
                products=self.products,
            )
        except ConfigError as error:
            raise UnavailableError(str(error)) from error
        runtime = self.embedder.encoder.runtime
        kinds = Counter(type(layer).__name__ for layer in self.embedder.encoder.model.layers.modules())
        linear = {name: count for name, count in kinds.items() if name.endswith("Linear")}
        self.ran = {"precision": runtime.precision, "products": runtime.products, "linear layers": linear}
        if runtime.note:
            self.ran["note"] = runtime.note
        if runtime.precision != precision:
            raise UnavailableError(runtime.note or f"ran in {runtime.precision}")
        if precision == "int8" and files.calibration and "Int8Linear" in linear:
            # Kept from an earlier version, perhaps: with one scale per token it would be measured as something else.
            raise UnavailableError(f"its fixed scales are not used; delete {files.ours_int8()}")

    @classmethod
    def require(cls, precision: str) -> None:
        """Returns always; the package itself decides which precision this processor runs."""

    def prepare(self, rows: Sequence[Ids]) -> PackedRows:
        """The rows concatenated in one array."""
        lengths = np.array([len(row) for row in rows], dtype=np.int32)
        flat = np.concatenate(rows).astype(np.int32)
        return PackedRows(flat, np.zeros_like(flat), lengths, np.zeros_like(lengths))

    def encode(self, prepared: PackedRows, manner: Manner) -> Vectors:
        """The vectors; the engine chooses sorting and batching."""
        return self.embedder.encoder.row_vectors(prepared, self.embedder.choice, self.files.pooling)

    def answer(self, rows: list[Any]) -> Vectors:
        """The vectors of some rows."""
        return self.encode(self.prepare(rows), Manner())


class OursPlain(Ours):
    """The same with the products of torch and, in int8, one scale per token: the plain versions of our fast paths."""

    engine = "ours-plain"
    products = "plain"

    def __init__(self, files: ModelFiles, precision: str, threads: int) -> None:
        super().__init__(files.uncalibrated(), precision, threads)


class OursOnnx(Ours):
    """Our ONNX folder: the same embedder with ONNX Runtime for its products, and without torch."""

    engine = "ours-onnx"
    packages = ("onnxruntime", "onnx")
    precisions = ("fp32", "int8")
    can_be_limited = False

    def __init__(self, files: ModelFiles, precision: str, threads: int) -> None:
        System.__init__(self, files, precision, threads)
        self.embedder = load_embedder(
            files.ours_onnx(), pooling=files.pooling, normalize=False, device="cpu", precision=precision
        )
        self.ran = {"precision": self.embedder.encoder.runtime.precision}

    @classmethod
    def require(cls, precision: str) -> None:
        """See `System`."""
        super(Ours, cls).require(precision)


class Transformers(System):
    """`AutoModel` of transformers as in its documentation: padded batches, masked mean or [CLS]."""

    engine = "transformers"
    packages = ("transformers",)

    def __init__(self, files: ModelFiles, precision: str, threads: int) -> None:
        from transformers import AutoModel

        super().__init__(files, precision, threads)
        self.model = AutoModel.from_pretrained(files.folder, dtype=TORCH_TYPES[precision]).eval()
        self.ran = {"attention": self.model.config._attn_implementation, "precision": str(self.model.dtype)}

    @torch.inference_mode()
    def answer(self, rows: list[Any]) -> Vectors:
        """The vectors of one batch."""
        inputs = {name: torch.from_numpy(array) for name, array in graph_inputs(rows).items()}
        states = self.model(**inputs).last_hidden_state
        kept = inputs["attention_mask"][:, :, None].to(states.dtype)
        pooled = states[:, 0] if self.files.pooling == "cls" else (states * kept).sum(1) / kept.sum(1)
        vectors: Vectors = pooled.float().numpy()
        return vectors


class SentenceTransformers(System):
    """`SentenceTransformer.encode`, which sorts by length itself; only its tokenizer is bypassed."""

    engine = "sentence-transformers"
    packages = ("sentence_transformers",)

    def __init__(self, files: ModelFiles, precision: str, threads: int) -> None:
        super().__init__(files, precision, threads)
        self.model = _without_tokenizer(files, precision)
        self.ran = {"precision": str(self.model.dtype)}

    def encode(self, prepared: list[Ids], manner: Manner) -> Vectors:
        """The vectors."""
        tensors = self.model.encode(prepared, batch_size=manner.batch, show_progress_bar=False, convert_to_tensor=True)
        vectors: Vectors = tensors.float().numpy()
        return vectors

    def answer(self, rows: list[Any]) -> Vectors:
        """The vectors of some rows."""
        return self.encode(rows, Manner(batch=len(rows)))


def _without_tokenizer(files: ModelFiles, precision: str) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    class FromIds(SentenceTransformer):
        """Takes rows of ids instead of texts."""

        def preprocess(self, inputs: Any, prompt: str | None = None, **kwargs: Any) -> dict[str, Any]:
            """The padded batch."""
            return {name: torch.from_numpy(array) for name, array in graph_inputs(inputs).items()}

    encoder = Transformer(str(files.folder), model_kwargs={"dtype": TORCH_TYPES[precision]})
    return FromIds(modules=[encoder, Pooling(files.config["hidden_size"], files.pooling)], device="cpu")


class OnnxRuntime(System):
    """The exported graph in ONNX Runtime; int8 is its dynamic quantization.

    Args:
        fused: use the graph from its optimizer for transformers.
        careful: int8 with one scale per channel.
    """

    engine = "onnxruntime"
    packages = ("onnxruntime", "onnx")
    precisions = ("fp32", "int8")
    can_be_limited = False

    def __init__(
        self,
        files: ModelFiles,
        precision: str,
        threads: int,
        workers: int = 1,
        fused: bool = False,
        careful: bool = False,
    ) -> None:
        import onnxruntime

        super().__init__(files, precision, threads, workers)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = max(1, threads // workers)
        options.log_severity_level = 3
        path = files.onnx_int8(fused=fused, careful=careful) if precision == "int8" else files.onnx(fused=fused)
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.ran |= {"graph": "fused" if fused else "exported"}
        if precision == "int8":
            self.ran |= {"scales": "per channel" if careful else "per tensor"}

    @classmethod
    def ways(cls, precision: str, threads: int) -> list[dict[str, Any]]:
        """Both graphs, with all threads per batch or one thread per batch."""
        careful = {"careful": True} if precision == "int8" else {}
        return [{"fused": fused, **careful, **workers} for fused in (False, True) for workers in one_or_many(threads)]

    def answer(self, rows: list[Any]) -> Vectors:
        """The vectors of one batch."""
        vectors: Vectors = self.session.run(None, graph_inputs(rows))[0]
        return vectors


class OpenVino(System):
    """The exported graph in OpenVINO; int8 is the static quantization of NNCF.

    Args:
        rest: precision of the operations that are not int8.
    """

    engine = "openvino"
    packages = ("openvino",)
    precisions = ("fp32", "bf16", "int8")

    def __init__(self, files: ModelFiles, precision: str, threads: int, workers: int = 1, rest: str = "fp32") -> None:
        import openvino

        super().__init__(files, precision, threads, workers)
        hint = {"fp32": "f32", "bf16": "bf16"}[rest if precision == "int8" else precision]
        settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": threads}
        if workers > 1:
            settings["NUM_STREAMS"] = workers
        path = files.openvino_int8() if precision == "int8" else files.onnx()
        core = openvino.Core()
        self.compiled = core.compile_model(core.read_model(path), "CPU", settings)
        self._own = threading.local()  # one inference request per worker
        said = self.compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        self.ran |= {"inference precision": said, "streams": self.compiled.get_property("NUM_STREAMS")}
        if said != hint:
            raise UnavailableError(f"ran in {said} where {hint} was asked")

    @classmethod
    def require(cls, precision: str) -> None:
        """See `System`; int8 needs NNCF unless a quantized model is cached."""
        super().require(precision)
        if precision == "int8" and importlib.util.find_spec("nncf") is None:
            raise UnavailableError("nncf is not installed")

    @classmethod
    def ways(cls, precision: str, threads: int) -> list[dict[str, Any]]:
        """One stream or one per thread; for int8, with the rest in fp32 or bf16."""
        has_bf16 = precision == "int8" and "bf16" in fast_precisions("cpu")
        rests: list[dict[str, Any]] = [{}, {"rest": "bf16"}] if has_bf16 else [{}]
        return [{**rest, **workers} for rest in rests for workers in one_or_many(threads)]

    def answer(self, rows: list[Any]) -> Vectors:
        """The vectors of one batch."""
        if not hasattr(self._own, "request"):
            self._own.request = self.compiled.create_infer_request()
        vectors: Vectors = self._own.request.infer(graph_inputs(rows))[0]
        return vectors


class CTranslate2(System):
    """The encoder of CTranslate2; int8 quantizes weights on loading and activations on the fly."""

    engine = "ctranslate2"
    packages = ("ctranslate2", "transformers")
    precisions = ("fp32", "bf16", "int8")

    def __init__(self, files: ModelFiles, precision: str, threads: int, workers: int = 1) -> None:
        import ctranslate2

        super().__init__(files, precision, threads, workers)
        asked = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}[precision]
        if asked not in ctranslate2.get_supported_compute_types("cpu"):
            raise UnavailableError(f"does not compute in {asked} on this processor")
        self.encoder = ctranslate2.Encoder(
            str(files.ctranslate2()),
            compute_type=asked,
            inter_threads=workers,
            intra_threads=max(1, threads // workers),
        )
        self.ran |= {"compute type": self.encoder.compute_type}

    @classmethod
    def ways(cls, precision: str, threads: int) -> list[dict[str, Any]]:
        """One batch at a time, or one per thread."""
        return one_or_many(threads)

    def prepare(self, rows: Sequence[Ids]) -> list[list[int]]:
        """The rows as lists."""
        return [row.tolist() for row in rows]

    def answer(self, rows: list[Any]) -> Vectors:
        """The vectors of one batch."""
        states = np.asarray(self.encoder.forward_batch(rows).last_hidden_state)
        if self.files.pooling == "cls":
            return states[:, 0]
        lengths = np.array([len(row) for row in rows])
        kept = (np.arange(states.shape[1]) < lengths[:, None]).astype(np.float32)
        vectors: Vectors = (kept[:, None] @ states)[:, 0] / lengths[:, None]
        return vectors


PEERS: tuple[type[System], ...] = (
    OursPlain,
    OursOnnx,
    Transformers,
    SentenceTransformers,
    OnnxRuntime,
    OpenVino,
    CTranslate2,
)


def one_or_many(threads: int) -> list[dict[str, Any]]:
    """One batch at a time with all threads, or as many batches as threads."""
    return [{}] if threads == 1 else [{}, {"workers": threads}]


def versions(systems: Sequence[type[System]]) -> dict[str, str]:
    """The versions of the packages of some runtimes."""
    names = {name.replace("_", "-") for system in systems for name in system.packages} | {"nncf"}
    installed = {}
    for name in sorted(names):
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed
