"""Describes a model folder, and checks whether its files match their digests."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.progress import counted, short_repr
from bertsmith.base.machine.runtime import require_torch
from bertsmith.base.storage.files import read_json
from bertsmith.models.checkpoints.hub import shown
from bertsmith.models.checkpoints.load import load_any, locate
from bertsmith.models.checkpoints.onnx_folder import is_onnx_folder
from bertsmith.models.checkpoints.plan import LoadReport
from bertsmith.models.checkpoints.sentence_transformers import read_recipe
from bertsmith.models.model_files.metadata import (
    CARD,
    METADATA,
    NGRAM_ENCODER,
    NGRAM_WEIGHTS,
    ModelMetadata,
    altered_files,
    digest_state,
    files_of,
    n_gram_folder,
    read_metadata,
)

if TYPE_CHECKING:
    from bertsmith.models.parts.config import EncoderConfig

_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
_CARD_LINES = 6  # of the model card, below its title


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelReport:
    """What a model folder is.

    Attributes:
        path: where its files are.
        what: one sentence: format, architecture, and what the model was trained for.
        sizes: the shape of the model and the number of its parameters, by the names of `config.json`.
        task: "pretraining" or a kind of task; None if no file says so.
        labels: the names of its classes or tags.
        text: how texts become tokens.
        card: the title and the first lines of the model card; empty if there is none.
        digests: "verified", "none" or "different".
        altered: the files that differ from their digests.
        dtypes: the number of stored tensors of each number format.
        kept_layers: the linear layers that int8 keeps in higher precision.
        files: bytes of each file in the folder.
        tensors: which stored tensors were mapped, skipped or unknown.
    """

    path: Path
    what: str
    sizes: Mapping[str, int]
    task: str | None
    labels: tuple[str, ...]
    text: str
    card: tuple[str, ...]
    digests: str
    altered: tuple[str, ...]
    dtypes: Mapping[str, int]
    kept_layers: tuple[str, ...]
    files: Mapping[str, int]
    tensors: LoadReport

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; those of `tensors` are at the top level."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        tensors = values.pop("tensors").to_dict()
        return {**tensors, **values, "path": str(self.path)}

    def require_unaltered(self) -> None:
        """Returns if no file differs from its digest."""
        if self.altered:
            raise altered_files(self.path if self.path.is_dir() else self.path.parent, self.altered)

    def lines(self) -> list[str]:
        """The report as lines of text."""
        lines = [f"{shown(self.path)}: {self.what}"]
        lines.append("sizes: " + ", ".join(f"{name} {value:,}" for name, value in self.sizes.items()))
        lines += [f"labels: {', '.join(self.labels)}"] if self.labels else []
        lines.append(f"text: {self.text}")
        lines += [f"card: {line}" for line in self.card]
        stored = ", ".join(f"{name} ({counted(count, 'tensor')})" for name, count in self.dtypes.items())
        lines += [f"stored as: {stored}"] if stored else []
        if self.kept_layers:
            lines.append(f"int8 keeps in higher precision: {', '.join(self.kept_layers)}")
        lines.append("files: " + ", ".join(f"{name} ({size:,} bytes)" for name, size in self.files.items()))
        states = {
            "verified": "verified: every file is the one that was written",
            "none": f"none: no {METADATA} records them",
            "different": f"different: {', '.join(self.altered)}",
        }
        return [*lines, *self.tensors.remarks(), f"digests: {states[self.digests]}"]


def inspect_model(source: str | Path) -> ModelReport:
    """What a model is: architecture, sizes, task, labels, card, files, and whether they equal their digests.

    Args:
        source: anything that `load` accepts, or a model that is not an encoder of text.

    Raises:
        CheckpointError: the model is unreadable; if files differ from their digests, the message names them.
        BertsmithError: there is no model.
    """
    if (words := n_gram_folder(source)) is not None and not (words / NGRAM_ENCODER).is_dir():
        return _report_of_words(words)
    require_torch(source)
    from bertsmith.models.checkpoints.own_folder import read_other_folder

    path, kind = locate(_encoder_of(source))
    folder = path if path.is_dir() else path.parent
    metadata = read_metadata(folder)
    state = digest_state(folder, metadata.other.get("digests"))
    try:
        other = read_other_folder(folder)
        model = other or load_any(path, allow_unknown=True)
    except BertsmithError:
        if state.altered:
            raise altered_files(folder, state.altered) from None
        raise
    config = model.config
    text = "no vocabulary" if other is None else "it reads no text"
    if model.tokenizer is not None:
        casing = "lower-cased" if model.tokenizer.rules.lowercase else "case-sensitive"
        text = f"{casing}, {len(model.tokenizer.vocabulary):,} {model.tokenizer.kind}"
    sizes = {
        **{name: getattr(config, name) for name in _SIZES if name not in config.omitted},
        "parameters": sum(tensor.numel() for tensor in model.tensors.values()),
    }
    return ModelReport(
        path=path,
        what=_what("own" if other else kind, config, model.metadata, model.parts),
        sizes=sizes,
        task=model.metadata.task,
        labels=model.metadata.labels,
        text=text,
        card=_card(folder),
        digests="different" if state.altered else "verified" if state.recorded else "none",
        altered=state.altered,
        dtypes=dict(Counter(str(tensor.dtype).removeprefix("torch.") for tensor in model.tensors.values())),
        kept_layers=model.metadata.kept_layers(folder),
        files=_sizes_of_files(folder),
        tensors=model.report,
    )


def _report_of_words(folder: Path) -> ModelReport:
    """What a model on words is, which has no encoder."""
    from bertsmith.tasks.baselines.word_model import read_counted

    metadata = read_metadata(folder)
    state = digest_state(folder, metadata.other.get("digests"))
    if state.altered:
        raise altered_files(folder, state.altered)
    model = read_counted(folder)
    weights = ("weight", "bias") if (folder / NGRAM_WEIGHTS).is_file() else ()
    computes, *text = model.about
    return ModelReport(
        path=folder,
        what=f"model on words for {model.spec.title}, without an encoder",
        sizes={"parameters": model.parameters},
        task=model.spec.kind,
        labels=model.spec.labels,
        text=" ".join([computes, *text]).rstrip("."),
        card=_card(folder),
        digests="verified" if state.recorded else "none",
        altered=(),
        dtypes={"float32": len(weights)} if weights else {},
        kept_layers=(),
        files=_sizes_of_files(folder),
        tensors=LoadReport(
            source=f"'{folder}'", mapped={name: name for name in weights}, skipped={}, unknown=(), missing=()
        ),
    )


def _sizes_of_files(folder: Path) -> dict[str, int]:
    return {name: file.stat().st_size for name, file in files_of(folder).items()}


def verify_model(source: str | Path) -> int:
    """The number of files that equal their recorded digests: all of them.

    Args:
        source: anything that `load` accepts.
    """
    encoder = _encoder_of(source)
    words = n_gram_folder(encoder)
    if is_onnx_folder(encoder) or words is not None:
        folder = words or Path(encoder)
    else:
        require_torch(source)
        path, _ = locate(encoder)
        folder = path if path.is_dir() else path.parent
    read_metadata(folder, verify=True)
    return len(read_json(folder / METADATA)["digests"])


def _encoder_of(source: str | Path) -> str | Path:
    """The folder of the encoder, which a sentence-transformers folder may hold inside it."""
    recipe = read_recipe(Path(source), pooled=False)
    return source if recipe is None else recipe.encoder


def _what(kind: str, config: "EncoderConfig", metadata: ModelMetadata, parts: tuple[str, ...]) -> str:
    """One sentence on a model, such as "Hugging Face folder, BERT for classification (spam)"."""
    form = {
        "google": "Google checkpoint",
        "huggingface": "Hugging Face folder",
        "allennlp": "folder of AllenNLP",
        "gliner": "folder of GLiNER",
        "own": "model folder",
    }[kind]
    spec = (metadata.spec or {}).get("name")
    if metadata.task == "pretraining":
        trained = f"pre-trained ({metadata.objective})" if metadata.objective else "pre-trained"
        steps = "" if metadata.steps is None else f", {counted(metadata.steps, 'step')}"
        trained += steps
    elif metadata.task:
        trained = f"for {metadata.task}" + (f" ({spec})" if spec and spec != metadata.task else "")
    else:
        trained = f"written by another tool{f' as {metadata.architecture}' if metadata.architecture else ''}"
    heads = [part for part in parts if part != "pooler"]
    direction = "right-to-left " if config.reads_backward else "left-to-right " if config.is_causal else ""
    return f"{form}, {direction}{config.display_name} {trained}; heads: {', '.join(heads) or 'none'}"


def _card(folder: Path) -> tuple[str, ...]:
    """The title and the first lines of the model card, without its header."""
    if not (folder / CARD).is_file():
        return ()
    text = (folder / CARD).read_text(encoding="utf-8", errors="replace")
    if text.startswith("---\n"):
        text = text[4:].partition("\n---")[2]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    end = next((position for position, line in enumerate(lines) if position and line.startswith("#")), len(lines))
    return tuple(line.removeprefix("# ") for line in lines[: min(end, _CARD_LINES + 1)])
