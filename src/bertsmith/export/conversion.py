"""A model in another format, written only if it says there what it says here.

Everything is written beside the destination and put into its place after the gate; what does not pass leaves nothing.
`export.json` beside the model tells what was compared, on what, and how far apart the two sides were.
"""

import dataclasses
import re
import shutil
from pathlib import Path

from bertsmith.checkpoints import huggingface, load
from bertsmith.checkpoints.architectures import architecture_of
from bertsmith.checkpoints.card import with_additions, write_card
from bertsmith.checkpoints.metadata import CARD, write_metadata
from bertsmith.checkpoints.model_folder import ModelFolder, parts_of
from bertsmith.checkpoints.plan import LoadReport
from bertsmith.checkpoints.tokenizer_files import write_tokenizer
from bertsmith.checkpoints.weights import MODEL_FOLDER
from bertsmith.errors import ConfigError, nearest
from bertsmith.export.check import compare, library_model
from bertsmith.export.limits import require_equal, require_near
from bertsmith.export.onnx_files import (
    INT8_MODEL,
    MODEL,
    needs_reduced_range,
    session_runner,
    write_fp32,
    write_int8,
)
from bertsmith.export.onnx_graph import OPSET, outputs_of, package
from bertsmith.export.readback import check_google, check_huggingface
from bertsmith.export.record import RECORD, versions
from bertsmith.export.sample import DataFile, sample_for
from bertsmith.files import atomic_folder, digest_file, require_outside, write_json, write_text
from bertsmith.model.parameter_names import OWN_HEAD
from bertsmith.progress import tell
from bertsmith.tasks.named_tasks import ColumnSettings, task_name
from bertsmith.tasks.spec_of_model import spec_of
from bertsmith.tasks.task import TaskSpec
from bertsmith.text.normalize import TextRules

FORMATS = (*load.KINDS, "onnx")
# How sentence-transformers notes what is done with the hidden states; the modules lie in folders of their own.
SENTENCE_FILES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")
_MODULE_FOLDER = re.compile(r"[0-9]+_[A-Za-z]+")


def export(
    source: Path | str,
    destination: Path | str,
    *,
    to: str,
    int8: bool = False,
    data: Path | None = None,
    task: str | None = None,
    columns: ColumnSettings | None = None,
    limit: float | None = None,
    rules: TextRules | None = None,
    allow_unknown: bool = False,
    replace: bool = False,
) -> tuple[LoadReport, list[str]]:
    """What became of every tensor of the source, and lines that say what was compared.

    Args:
        source: anything that `load_any` takes.
        destination: a folder that is whole or not there.
        to: "huggingface", "google" or "onnx".
        int8: with "onnx", a second file with int8 weights.
        data: labelled examples of the model's task, or texts for a model without one, to compare on.
        task, columns: how labelled examples are read; see `DataFile`.
        limit: in place of `FP32_LIMIT`; with `int8` in place of the limit of the int8 file.
        rules, allow_unknown: see `load_any`.
        replace: write over an existing folder that holds a model; never over the source.

    Raises:
        ConfigError: the format is unknown or has no place for the user's own head, options do not go together, or a
            package is not installed.
        CheckpointError: the two sides differ by more than the limit; or the source cannot be exported.
        InputError, VocabularyError: as for reading and writing.
    """
    destination = Path(destination)
    if to not in FORMATS:
        raise ConfigError(expected="a known format", found=repr(to), fix=nearest(to, FORMATS))
    file = _data_file(data, task, columns)
    _require_options(to, int8=int8, limit=limit)
    require_outside(destination, [source])
    with atomic_folder(destination, replace=MODEL_FOLDER if replace else False) as partial:
        if to == "onnx":
            folder = load.load_any(source, rules=rules, allow_unknown=allow_unknown)
            lines = _write_onnx(folder, partial, int8=int8, file=file, limit=limit)
        else:
            folder = load.convert(source, partial, to=to, rules=rules, allow_unknown=allow_unknown, replace=True)
            check = check_google if to == "google" else check_huggingface
            lines = check(folder, partial, file, limit)
        # A run folder is known to be the source only when it has been read.
        require_outside(destination, [folder.path])
        if to != "google":
            _carry_sentence_files(folder.path, partial)
        lines += _carry_card(folder.path, partial, to)
    return folder.report, lines


def _data_file(data: Path | None, task: str | None, columns: ColumnSettings | None) -> DataFile | None:
    """The file to compare on, with how it is read.

    Raises:
        ConfigError: it is said how a file is read, but there is none; or there is no such task.
    """
    name = None if task is None else task_name(task)
    file = DataFile(path=data or Path(), task=name, columns=columns or ColumnSettings())
    if data is None and file.chosen:
        raise ConfigError(expected=f"--data with {file.options}", found="none", fix="name the labelled file")
    return None if data is None else file


def _require_options(to: str, *, int8: bool, limit: float | None) -> None:
    if int8 and to != "onnx":
        raise ConfigError(expected="--to onnx with --int8", found=f"--to {to}", fix="leave out --int8")
    if limit is not None and not limit >= 0:
        raise ConfigError(expected="a limit of at least 0", found=str(limit), fix="correct --limit")


def _write_onnx(
    folder: ModelFolder, partial: Path, *, int8: bool, file: DataFile | None, limit: float | None
) -> list[str]:
    """Fills the folder; the lines for the user.

    Raises:
        ConfigError: the model has a head of the user's own, or a package is not installed.
    """
    if OWN_HEAD in folder.parts:
        raise ConfigError(
            expected="a model whose head bertsmith knows, for --to onnx",
            found=f"the head {folder.metadata.own_head or 'of an unknown class'!r} of the user",
            fix="export the model yourself (torch.onnx), or fine-tune it without a head of your own",
        )
    onnx, onnxruntime = package("onnx"), package("onnxruntime")
    folder.require_tokenizer()
    spec = spec_of(folder)
    kind = None if spec is None else spec.kind
    outputs = outputs_of(kind, folder.parts)
    sample = sample_for(folder, spec, file)
    model = library_model(folder, spec)
    write_fp32(folder, kind, partial / MODEL)
    found = compare(folder, model, outputs, session_runner(partial / MODEL), sample)
    limits = {MODEL: require_equal(found, MODEL, None if int8 else limit)}
    comparisons = {MODEL: found}
    reduced = needs_reduced_range()
    if int8:
        if reduced:
            tell("int8: this processor has no VNNI and would cut off sums of large products; weights take 7 bits")
        write_int8(folder, kind, partial / INT8_MODEL, reduced=reduced)
        found = compare(folder, model, outputs, session_runner(partial / INT8_MODEL), sample)
        limits[INT8_MODEL] = require_near(found, INT8_MODEL, limit)
        comparisons[INT8_MODEL] = found
    _write_companions(folder, spec, partial)
    record = {
        "opset": OPSET,
        **({"int8_weight_bits": 7 if reduced else 8} if int8 else {}),
        "sample": sample.about,
        "files": {
            name: {
                "digest": digest_file(partial / name),
                "bytes": sum(part.stat().st_size for part in partial.glob(f"{name}*")),
                "limits": limits[name],
                **found.to_dict(),
            }
            for name, found in comparisons.items()
        },
        "versions": versions(onnx=onnx.__version__, onnxruntime=onnxruntime.__version__),
    }
    write_json(partial / RECORD, {"format": "onnx", **record})
    return [sample.line(), *(f"{name}: {found.line()}" for name, found in comparisons.items())]


def _write_companions(folder: ModelFolder, spec: TaskSpec | None, partial: Path) -> None:
    """Writes configuration, tokenizer and metadata, so that the folder is complete by itself."""
    tokenizer, metadata = folder.require_tokenizer(), folder.metadata
    if spec is not None:
        labels = spec.labels or metadata.labels
        metadata = dataclasses.replace(metadata, task=spec.kind, spec=spec.to_dict(), labels=labels)
    metadata.check_labels(folder.tensors)
    names = architecture_of(folder.config).names
    architecture = huggingface.class_of(names, parts_of(folder.tensors), metadata.task)
    write_json(partial / "config.json", huggingface.config_json(folder.config, architecture, "float32", metadata))
    write_tokenizer(partial, tokenizer, folder.config)
    write_card(partial, folder.config, folder.tensors, tokenizer, metadata, "onnx")
    write_metadata(partial, tokenizer, metadata)


def _carry_card(source: Path, partial: Path, to: str) -> list[str]:
    """Takes along what people wrote into the card of the source; a line where it has no place."""
    older = source / CARD
    if not older.is_file():
        return []
    text = older.read_text(encoding="utf-8", errors="replace")
    card = with_additions((partial / CARD).read_text(encoding="utf-8"), text)
    if card is None and to != "huggingface":
        return [f"{CARD} of the source is not a card of bertsmith; a new one was written"]
    write_text(partial / CARD, text if card is None else card)
    return []


def _carry_sentence_files(source: Path, partial: Path) -> None:
    """Copies what sentence-transformers knows of pooling, where the source is one of its folders."""
    if not (source / "modules.json").is_file() or not (source / "config.json").is_file():
        return
    for name in SENTENCE_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, partial / name)
    for entry in sorted(source.iterdir()):
        if entry.is_dir() and _MODULE_FOLDER.fullmatch(entry.name):
            shutil.copytree(entry, partial / entry.name)
