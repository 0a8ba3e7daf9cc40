"""Exports a model to another format; writes it only if it gives the same outputs there.

Everything is written to a partial folder next to the destination and moved into place after the check; a failed check
leaves nothing behind. `export.json` next to the model records what was compared, on which data, and the differences.
"""

import dataclasses
import re
import shutil
from pathlib import Path

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.core.progress import tell
from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.storage.files import atomic_folder, digest_file, read_json, require_outside, write_json, write_text
from bertsmith.inference.export.check import compare, library_model
from bertsmith.inference.export.onnx_files import write_fp32, write_int8
from bertsmith.inference.export.onnx_message import OPSET
from bertsmith.inference.export.readback import check_google, check_huggingface
from bertsmith.inference.export.record import RECORD, require_equal, require_near, versions
from bertsmith.inference.export.request import ConvertRequest
from bertsmith.inference.export.sample import DataFile, sample_for
from bertsmith.models.checkpoints import load, rewriting
from bertsmith.models.checkpoints.architectures import architecture_of
from bertsmith.models.checkpoints.card import with_additions, write_card
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.onnx_folder import GRAPH, INT8_GRAPH, OnnxShape, with_shape
from bertsmith.models.checkpoints.plan import LoadReport
from bertsmith.models.checkpoints.sentence_transformers import ARGUMENTS
from bertsmith.models.checkpoints.transformers_folder import config_json, longest_of, opening_of
from bertsmith.models.checkpoints.weights import MODEL_FOLDER
from bertsmith.models.model_files.metadata import CARD, write_metadata
from bertsmith.models.model_files.tokenizer_writing import write_tokenizer
from bertsmith.models.parts.head_inputs import OF_TWO_TEXTS
from bertsmith.models.parts.part_names import DECODER, OWN_HEAD, READER
from bertsmith.tasks.encoding.onnx_session import Session, needs_reduced_range, outputs_of, package
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import task_name
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.spec_of_model import spec_of_head
from bertsmith.text.tokenizers.normalize import TextRules

FORMATS = (*rewriting.KINDS, "onnx")
# The file in which sentence-transformers lists its modules, such as pooling; each module has a folder of its own.
SENTENCE_FILES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")
_MODULE_FOLDER = re.compile(r"[0-9]+_[A-Za-z]+")


@takes(ConvertRequest)
def export(request: ConvertRequest) -> tuple[LoadReport, list[str]]:
    """Exports a model; returns a report on every tensor of the source, and lines that say what was compared."""
    source, destination, to, limit = request.source, Path(request.destination), request.to, request.limit
    if to not in FORMATS:
        raise ConfigError.unknown("format", to, FORMATS)
    file, rules, allow_unknown = _data_file(request), _rules(request), request.allow_unknown
    require_outside(destination, [source, *([] if file is None else [file.path])])
    with atomic_folder(destination, replace=MODEL_FOLDER if request.replace else False) as partial:
        if to == "onnx":
            folder = load.load_any(source, rules=rules, allow_unknown=allow_unknown)
            lines = _write_onnx(folder, partial, int8=request.int8, file=file, limit=limit)
        else:
            if to == "huggingface":
                _require_reader(source, rules, allow_unknown)
            folder = rewriting.convert(source, partial, to=to, rules=rules, allow_unknown=allow_unknown, replace=True)
            check = check_google if to == "google" else check_huggingface
            lines = check(folder, partial, file, limit)
        # That a run folder is the source is known only after it has been read.
        require_outside(destination, [folder.path])
        if to != "google":
            _carry_sentence_files(folder.path, partial)
        lines += _carry_card(folder.path, partial, to)
    return folder.report, lines


def _require_reader(source: str | Path, rules: TextRules | None, allow_unknown: bool) -> None:
    """Refuses a model folder that `transformers` could not open, unless it has another layout so far."""
    if load.locate(source)[1] != "huggingface":
        return
    folder = load.load_any(source, rules=rules, allow_unknown=allow_unknown)
    opening = opening_of(folder.config, architecture_of(folder.config).names, folder.parts, folder.metadata)
    if folder.config.in_transformers and opening.only_here:
        reason = f"it has {opening.only_here}"
        raise CheckpointError.is_not(folder.name, "a model that `transformers` computes", reason, opening.readers)
    if not folder.config.in_transformers:
        raise ConfigError(
            expected="an architecture that `transformers` has",
            found=folder.config.display_name,
            fix="copy the folder as it is",
        )


def _data_file(request: ConvertRequest) -> DataFile | None:
    """The file to compare on, if there is one."""
    name = None if request.task is None else task_name(request.task)
    file = DataFile(path=path_or_none(request.data) or Path(), task=name, columns=request.part(ColumnSettings))
    if request.data is None and file.chosen:
        raise ConfigError.needs(file.options.partition(",")[0], "--data", "name the labelled file")
    return None if request.data is None else file


def _rules(request: ConvertRequest) -> TextRules | None:
    """The text rules that are asked for; None: those of the source."""
    if request.cased is None:
        return None
    usual = "google" if load.kind_of(Path(request.source)) == "google" else "huggingface"
    return TextRules.named(request.rules or usual, lowercase=not request.cased)


def _write_onnx(
    folder: ModelFolder, partial: Path, *, int8: bool, file: DataFile | None, limit: float | None
) -> list[str]:
    """Writes the ONNX files to the folder; returns lines for the user."""
    if OWN_HEAD in folder.parts:
        raise ConfigError(
            expected="a model whose head bertsmith knows, for --to onnx",
            found=f"the user's head {folder.metadata.own_head or 'of an unknown class'!r}",
            fix="export the model yourself (torch.onnx), or fine-tune it without your own head",
        )
    if DECODER in folder.parts:
        raise ConfigError(
            expected="a head that gives logits, for --to onnx",
            found="a decoder, which writes a text piece by piece",
            fix="serve it with bertsmith",
        )
    spec = spec_of_head(folder)
    if READER in folder.parts and not (spec is not None and task_for(spec).head.of_sentences):
        raise ConfigError(
            expected="a head of the linear kind, for --to onnx",
            found="one with a layer in front of the output layer, over hidden states or windows",
            fix="serve it with bertsmith"
            + ("" if spec is not None and spec.gliner is not None else ", or fine-tune with --reads mean"),
        )
    if not folder.config.has_graph:
        needed = f"a Transformer encoder, not {folder.config.display_name}"
        raise ConfigError.needs("--to onnx", needed, "serve it with bertsmith")
    onnx, onnxruntime = package("onnx"), package("onnxruntime")
    folder.require_tokenizer()
    kind = None if spec is None else spec.kind
    outputs = outputs_of(kind, folder.parts)
    sample = sample_for(folder, spec, file)
    model = library_model(folder, spec)
    write_fp32(folder, kind, partial / GRAPH)
    comparison = compare(folder, model, outputs, Session(partial / GRAPH), sample)
    limits = {GRAPH: require_equal(comparison, GRAPH, None if int8 else limit)}
    comparisons = {GRAPH: comparison}
    reduced = needs_reduced_range()
    if int8:
        if reduced:
            tell("int8: this processor has no VNNI and would saturate sums of large products; weights use 7 bits")
        write_int8(folder, kind, partial / INT8_GRAPH, reduced=reduced)
        comparison = compare(folder, model, outputs, Session(partial / INT8_GRAPH), sample)
        limits[INT8_GRAPH] = require_near(comparison, INT8_GRAPH, limit)
        comparisons[INT8_GRAPH] = comparison
    _write_companions(folder, spec, partial, int8_bits=(7 if reduced else 8) if int8 else 0)
    record = {
        "opset": OPSET,
        **({"int8_weight_bits": 7 if reduced else 8} if int8 else {}),
        "sample": sample.about,
        "files": {
            name: {
                "digest": digest_file(partial / name),
                "bytes": sum(part.stat().st_size for part in partial.glob(f"{name}*")),
                "limits": limits[name],
                **comparison.to_dict(),
            }
            for name, comparison in comparisons.items()
        },
        "versions": versions(onnx=onnx.__version__, onnxruntime=onnxruntime.__version__),
    }
    write_json(partial / RECORD, {"format": "onnx", **record})
    return [sample.line(), *(f"{name}: {comparison.line()}" for name, comparison in comparisons.items())]


def _write_companions(folder: ModelFolder, spec: TaskSpec | None, partial: Path, *, int8_bits: int) -> None:
    """Writes configuration, tokenizer and metadata, so that the folder is self-contained, and runs without torch."""
    tokenizer, metadata = folder.require_tokenizer(), folder.metadata
    if spec is not None:
        labels = spec.labels or metadata.labels
        metadata = dataclasses.replace(metadata, task=spec.kind, spec=spec.to_dict(), labels=labels)
    elif metadata.spec and metadata.reads == "pooler" and (folder.config.is_causal or folder.config.pools_mean):
        # The pooler of the graph reads the first token, so of a task of vectors there is no more than the encoder.
        metadata = dataclasses.replace(metadata, task=None, spec=None, labels=())
    metadata.check_labels(folder.tensors)
    names, config = architecture_of(folder.config).names, folder.config
    opening = opening_of(config, names, folder.parts, metadata)
    write_json(partial / "config.json", config_json(config, opening, metadata))
    longest, needs_segments = longest_of(config, metadata), metadata.reads in OF_TWO_TEXTS
    write_tokenizer(partial, tokenizer, config, longest, needs_segments)
    write_card(partial, folder.config, folder.tensors, tokenizer, metadata, "onnx", opening)
    shape = OnnxShape.of(config, folder.parts, int8_bits)
    write_metadata(partial, tokenizer, with_shape(metadata, shape))


def _carry_card(source: Path, partial: Path, to: str) -> list[str]:
    """Copies hand-written parts of the source's model card; returns a notice if that is not possible."""
    older = source / CARD
    if not older.is_file():
        return []
    text = older.read_text(encoding="utf-8", errors="replace")
    card = with_additions((partial / CARD).read_text(encoding="utf-8"), text)
    if card is None and to != "huggingface":
        return [f"{CARD} of the source is not a bertsmith model card; a new one was written"]
    write_text(partial / CARD, text if card is None else card)
    return []


def _carry_sentence_files(source: Path, partial: Path) -> None:
    """Copies the pooling configuration of sentence-transformers, if the source is one of its folders."""
    if not (source / "modules.json").is_file() or not (source / "config.json").is_file():
        return
    for name in SENTENCE_FILES:
        if (source / name).is_file():
            written = read_json(partial / name) if (partial / name).is_file() else {}
            shutil.copyfile(source / name, partial / name)
            if ARGUMENTS in written:  # which not every folder has
                write_json(partial / name, read_json(source / name) | {ARGUMENTS: written[ARGUMENTS]})
    for entry in sorted(source.iterdir()):
        if entry.is_dir() and _MODULE_FOLDER.fullmatch(entry.name):
            shutil.copytree(entry, partial / entry.name, dirs_exist_ok=True)
