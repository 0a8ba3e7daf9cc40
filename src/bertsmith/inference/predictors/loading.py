"""Loads models for inference, from a folder, a checkpoint or a hub id; ONNX folders need no torch."""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.core.progress import warn
from bertsmith.base.machine.runtime import require_torch
from bertsmith.inference.export.built_graph import Built, heads_graph, task_graph
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.predictors.pretraining_heads import PretrainedPredictor, relation_of, require_heads
from bertsmith.models.checkpoints.onnx_folder import OnnxFolder, is_onnx_folder, read_onnx_folder
from bertsmith.models.model_files.metadata import n_gram_folder
from bertsmith.models.model_files.weakness import saved_baseline
from bertsmith.tasks.encoding.early_engine import EarlyEngine
from bertsmith.tasks.encoding.engine import Engine
from bertsmith.tasks.encoding.onnx_engine import OnnxEngine
from bertsmith.tasks.encoding.onnx_session import BuiltGraph
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSpec

if TYPE_CHECKING:
    from bertsmith.models.checkpoints.model_folder import ModelFolder
    from bertsmith.models.heads.own_head import OwnHead
    from bertsmith.models.products.int8_linear import InputScale

_served_name: ContextVar[str] = ContextVar("served_name", default="")


def load_predictor(
    source: "str | Path | ModelFolder | OnnxFolder",
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    kept: Sequence[str] | None = None,
    scales: "Mapping[str, InputScale] | None" = None,
    head: "type[OwnHead] | None" = None,
    early: bool = False,
) -> Predictor:
    """The predictor of a model folder, ours or one of `transformers`, of a Google checkpoint with a head, or an export.

    The folder of a linear model on n-grams has one, too.

    Args:
        products: how linear layers are computed; see `choose_inference`.
        kept: with int8, the linear layers kept in higher precision; by default what `bertsmith quantize` recorded, the
            layers and the scales.
        scales: with int8 and `kept`, the scales that calibration fixed; None for one scale per token.
        head: the class of the user's head that the model was fine-tuned with, if it was.
        early: there may be little to predict, so torch is imported only if there is more; see `task_graph`.
    """
    compute: dict[str, Any] = {"device": device, "precision": precision, "products": products}
    if isinstance(source, OnnxFolder) or is_onnx_folder(source):
        return _exported_predictor(source, head=head, **compute)
    if early and head is None and kept is None and (built := task_graph(source, **compute)) is not None:
        return early_predictor(built, **compute)
    if (words := n_gram_folder(source)) is not None:
        from bertsmith.inference.predictors.n_grams import n_gram_predictor

        return n_gram_predictor(words, device=device, precision=precision, products=products, head=head)
    require_torch(source)
    from bertsmith.inference.predictors.torch_loading import torch_predictor

    return torch_predictor(
        source, device=device, precision=precision, products=products, kept=kept, scales=scales, head=head
    )


def early_predictor(built: Built, **compute: Any) -> Predictor:
    """The predictor of a graph, which gives way to torch."""
    predictor, path = _exported_predictor(built.folder, head=None, built=built.graph, **compute), built.folder.path
    predictor.engine = EarlyEngine(predictor.engine, lambda: load_predictor(path, **compute).engine, built.later)
    return predictor


class Judged(Protocol):
    """A predictor or model with the sentence that its own scores say against its answers; "" if they say nothing."""

    @property
    def weakness(self) -> str:
        """The sentence."""


Answering = TypeVar("Answering", bound=Judged)


def said_weak(predictor: Answering, source: object) -> Answering:
    """The predictor for answers that people read: if its own scores speak against them, a line says so, once a process.

    Args:
        source: the model as the caller named it.
    """
    if predictor.weakness:
        name = _served_name.get()
        saved = saved_baseline(Path(source)) if isinstance(source, str | Path) else ""
        _warn_once(f"{name}: {predictor.weakness}{saved}" if name else predictor.weakness + saved)
    return predictor


@contextlib.contextmanager
def served_as(name: str) -> Iterator[None]:
    """Begins the lines of `said_weak` with the name of a model while it is opened, as one of several."""
    token = _served_name.set(name)
    try:
        yield
    finally:
        _served_name.reset(token)


@functools.cache
def _warn_once(line: str) -> None:
    warn(line)


def load_pretraining_heads(
    source: "str | Path | ModelFolder | OnnxFolder",
    *,
    device: str = "auto",
    precision: str = "fp32",
    products: str = "auto",
    needs: Sequence[str] = (),
    early: bool = False,
) -> PretrainedPredictor:
    """A predictor from a model folder, a Google checkpoint, a hub id, or an export.

    Args:
        products: how linear layers are computed; see `choose_inference`.
        needs: the heads that must have been trained, "mlm" or "nsp".
        early: as in `load_predictor`; see `heads_graph`.
    """
    compute: dict[str, Any] = {"device": device, "precision": precision, "products": products}
    if isinstance(source, OnnxFolder) or is_onnx_folder(source):
        folder = source if isinstance(source, OnnxFolder) else read_onnx_folder(source)  # type: ignore[arg-type]
        require_heads(folder.shape.parts if folder.metadata.spec is None else (), needs, folder.path)
        return _exported_heads(folder, OnnxEngine(folder, **compute))
    if early and (built := heads_graph(source, needs, **compute)) is not None:
        return early_heads(built, **compute)
    require_torch(source)
    from bertsmith.inference.predictors.torch_loading import torch_pretraining_heads

    return torch_pretraining_heads(source, device=device, precision=precision, products=products, needs=needs)


def early_heads(built: Built, **compute: Any) -> PretrainedPredictor:
    """The predictor of a graph with pre-training heads, which gives way to torch."""
    engine, path = OnnxEngine(built.folder, **compute, built=built.graph), built.folder.path
    late = EarlyEngine(engine, lambda: load_pretraining_heads(path, **compute).engine, built.later)
    return _exported_heads(built.folder, late)


def _exported_heads(folder: OnnxFolder, engine: Engine) -> PretrainedPredictor:
    """The predictor of an ONNX folder, or of what a model folder would be as one, by an engine."""
    return PretrainedPredictor(engine, folder.tokenizer, engine.runtime, relation_of(folder.metadata.objective))


def _exported_predictor(
    source: "str | Path | ModelFolder | OnnxFolder",
    *,
    device: str,
    precision: str,
    products: str,
    head: "type[OwnHead] | None",
    built: BuiltGraph | None = None,
) -> Predictor:
    """The predictor of an ONNX folder, or of what a model folder would be as one."""
    folder = source if isinstance(source, OnnxFolder) else read_onnx_folder(source)  # type: ignore[arg-type]
    if head is not None:
        raise ConfigError(
            expected="a model in torch, for a head of your own", found=f"the export '{folder.path}'", fix="omit --head"
        )
    if folder.metadata.spec is None:
        parts = f" ({', '.join(folder.shape.parts)})" if folder.shape.parts else ""
        raise CheckpointError(
            expected=f"a fine-tuned model in '{folder.path}'",
            found=f"an export without a task head{parts}",
            fix="fine-tune the model first (bertsmith finetune), and export it then",
        )
    task = task_for(TaskSpec.from_dict(folder.metadata.spec, f"{folder.path}/bertsmith.json"))
    engine = OnnxEngine(folder, device=device, precision=precision, products=products, built=built)
    predictor = Predictor(engine, task, folder.tokenizer, engine.runtime)
    predictor.describe(folder.path, folder.metadata)
    return predictor
