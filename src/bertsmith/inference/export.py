"""A model in another format, written only if it says there what it says here.

Everything is written beside the destination and put into its place after the gate; what does not pass leaves nothing.
`export.json` beside the model tells what was compared, on what, and how far apart the two sides were.
"""

import importlib
import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bertsmith
from bertsmith.checkpoints import google, huggingface, load
from bertsmith.checkpoints.model_folder import ModelFolder, parts_of
from bertsmith.checkpoints.passport import check_labels, write_passport
from bertsmith.checkpoints.plan import LoadReport
from bertsmith.checkpoints.tokenizer_files import SPECIAL_TOKENS, tokenizer_config, tokenizer_json
from bertsmith.checkpoints.weights import MODEL_FOLDER
from bertsmith.errors import CheckpointError, ConfigError, nearest
from bertsmith.files import atomic_folder, digest_file, read_json, require_outside, write_json
from bertsmith.inference.export_check import (
    Model,
    Runner,
    compare,
    library_model,
    require_equal,
    require_near,
)
from bertsmith.inference.export_sample import Sample, sample_for
from bertsmith.inference.onnx_export import (
    INT8_MODEL,
    MODEL,
    needs_reduced_range,
    session_runner,
    write_fp32,
    write_int8,
)
from bertsmith.inference.onnx_graph import INPUTS, OPSET, Output, outputs_of, package
from bertsmith.progress import tell
from bertsmith.tasks.features import Ints
from bertsmith.tasks.model_spec import spec_of
from bertsmith.tasks.task import TaskSpec
from bertsmith.text.normalize import TextRules

FORMATS = (*load.KINDS, "onnx")
RECORD = "export.json"
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
        limit: in place of the limits of `export_check`; with `int8` that of the int8 file.
        rules, allow_unknown: see `load_any`.
        replace: write over an existing folder that holds a model; never over the source.

    Raises:
        ConfigError: the format is unknown, options do not go together, or a package is not installed.
        CheckpointError: the two sides differ by more than the limit; or the source cannot be exported.
        InputError, VocabularyError: as for reading and writing.
    """
    destination = Path(destination)
    if to not in FORMATS:
        raise ConfigError(expected="a known format", found=repr(to), fix=nearest(to, FORMATS))
    _require_options(to, int8=int8, data=data, limit=limit)
    require_outside(destination, [source])
    with atomic_folder(destination, replace=MODEL_FOLDER if replace else False) as partial:
        if to == "onnx":
            folder = load.load_any(source, rules=rules, allow_unknown=allow_unknown)
            lines = _write_onnx(folder, partial, int8=int8, data=data, limit=limit)
        else:
            folder = load.convert(source, partial, to=to, rules=rules, allow_unknown=allow_unknown, replace=True)
            check = _check_google if to == "google" else _check_huggingface
            lines = check(folder, partial, data, limit)
        # A run folder is known to be the source only when it has been read.
        require_outside(destination, [folder.path])
        if to != "google":
            _carry_sentence_files(folder.path, partial)
    return folder.report, lines


def _require_options(to: str, *, int8: bool, data: Path | None, limit: float | None) -> None:
    wrong = "--int8" if int8 and to != "onnx" else ""
    if to == "google" and not wrong:
        wrong = "--data" if data is not None else "--limit" if limit is not None else ""
    if wrong:
        raise ConfigError(
            expected=f"--to onnx with {wrong}" if wrong == "--int8" else f"--to onnx or huggingface with {wrong}",
            found=f"--to {to}",
            fix=f"leave out {wrong}",
        )
    if limit is not None and not limit >= 0:
        raise ConfigError(expected="a limit of at least 0", found=str(limit), fix="correct --limit")


def _write_onnx(folder: ModelFolder, partial: Path, *, int8: bool, data: Path | None, limit: float | None) -> list[str]:
    """Fills the folder; the lines for the user."""
    onnx, onnxruntime = package("onnx"), package("onnxruntime")
    if folder.tokenizer is None:
        raise CheckpointError(
            expected=f"a vocabulary beside the model in '{folder.path}'",
            found="no vocab.txt",
            fix="put the vocab.txt of the model there",
        )
    spec = spec_of(folder)
    kind = None if spec is None else spec.kind
    outputs = outputs_of(kind, folder.parts)
    sample = sample_for(folder, spec, data)
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
                "bytes": sum(file.stat().st_size for file in partial.glob(f"{name}*")),
                "limits": limits[name],
                **found.to_dict(),
            }
            for name, found in comparisons.items()
        },
        "versions": _versions(onnx=onnx.__version__, onnxruntime=onnxruntime.__version__),
    }
    write_json(partial / RECORD, {"format": "onnx", **record})
    return [_about(sample), *(f"{name}: {found.line()}" for name, found in comparisons.items())]


def _write_companions(folder: ModelFolder, spec: TaskSpec | None, partial: Path) -> None:
    """Configuration, tokenizer and passport, so that the folder stands by itself."""
    tokenizer, info = folder.tokenizer, dict(folder.info)
    assert tokenizer is not None, "asked before"
    if spec is not None:
        info |= {"task": spec.kind, "spec": spec.to_dict()}
        info |= {"labels": list(spec.labels)} if spec.labels else {}
    check_labels(info, folder.tensors)
    architecture = huggingface.architecture_of(parts_of(folder.tensors), info.get("task"))
    write_json(partial / "config.json", huggingface.config_json(folder.config, architecture, "float32", info))
    tokenizer.vocabulary.save(partial / "vocab.txt")
    write_json(partial / "tokenizer.json", tokenizer_json(tokenizer))
    longest = folder.config.max_position_embeddings
    write_json(partial / "tokenizer_config.json", tokenizer_config(tokenizer, longest))
    write_json(partial / "special_tokens_map.json", SPECIAL_TOKENS)
    write_passport(partial, tokenizer, info)


def _check_google(folder: ModelFolder, partial: Path, data: Path | None, limit: float | None) -> list[str]:
    """Reads a Google checkpoint back; the lines for the user."""
    assert data is None, "refused before"
    assert limit is None, "refused before"
    count = _require_same(folder, google.read_google(partial))
    write_json(partial / RECORD, {"format": "google", "equal_tensors": count, "versions": _versions()})
    return [f"read back: {count} tensors equal bit for bit"]


def _check_huggingface(folder: ModelFolder, partial: Path, data: Path | None, limit: float | None) -> list[str]:
    """Reads a Hugging Face folder back, with `transformers` too if it is installed; the lines for the user."""
    count = _require_same(folder, huggingface.read_model_folder(partial, verify=True))
    record: dict[str, Any] = {"format": "huggingface", "equal_tensors": count}
    lines = [f"read back: {count} tensors equal bit for bit"]
    is_installed = importlib.util.find_spec("transformers") is not None
    if folder.tokenizer is None or not is_installed:
        why = "there is no vocabulary" if is_installed else "transformers is not installed"
        if data is not None:
            raise ConfigError(
                expected=f"transformers and a vocabulary, to compare on '{data}'", found=why, fix="leave out --data"
            )
        write_json(partial / RECORD, {**record, "versions": _versions()})
        return [*lines, f"{why}: nothing was run in transformers"]
    transformers = importlib.import_module("transformers")
    spec = spec_of(folder)
    outputs = outputs_of(None if spec is None else spec.kind, folder.parts)
    model: Model = library_model(folder, spec)
    sample = sample_for(folder, spec, data)
    runner, outputs = _transformers_runner(transformers, partial, outputs)
    found = compare(folder, model, outputs, runner, sample)
    limits = require_equal(found, "the model in transformers", limit)
    record |= {"sample": sample.about, "limits": limits, "transformers": found.to_dict()}
    write_json(partial / RECORD, {**record, "versions": _versions(transformers=transformers.__version__)})
    return [*lines, _about(sample), f"transformers: {found.line()}"]


def _require_same(folder: ModelFolder, back: ModelFolder) -> int:
    """The number of tensors, all of which came back as they were.

    Raises:
        CheckpointError: something did not; all of it is named.
    """
    wrong = [f"no {name}" for name in folder.tensors if name not in back.tensors]
    wrong += [f"{name} from nowhere" for name in back.tensors if name not in folder.tensors]
    wrong += [
        f"other values in {name}"
        for name, tensor in folder.tensors.items()
        if name in back.tensors and not torch.equal(tensor.double(), back.tensors[name].double())
    ]
    wrong += ["another configuration"] if back.config != folder.config else []
    if folder.tokenizer is not None:
        same = back.tokenizer is not None and back.tokenizer.vocabulary.digest == folder.tokenizer.vocabulary.digest
        same = same and back.tokenizer is not None and back.tokenizer.rules == folder.tokenizer.rules
        wrong += [] if same else ["another tokenizer"]
    if wrong:
        raise CheckpointError(
            expected="the model to come back as it was written",
            found="; ".join(wrong),
            fix="nothing was written; check the disk and try again",
        )
    return len(folder.tensors)


def _transformers_runner(
    transformers: Any, partial: Path, outputs: tuple[Output, ...]
) -> tuple[Runner, tuple[Output, ...]]:
    """What runs the folder in `transformers`, and which of the outputs it gives."""
    architecture = read_json(partial / "config.json")["architectures"][0]
    theirs = {output.name: output.name for output in outputs}
    if architecture == "BertModel":
        known = ["last_hidden_state", "pooler_output"]
    else:
        known = ["logits", "seq_relationship_logits", "start_logits", "end_logits"]
    if architecture == "BertForPreTraining":
        theirs["logits"] = "prediction_logits"
    logging = transformers.utils.logging
    before, shows = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        kind = getattr(transformers, architecture)
        model = kind.from_pretrained(partial, attn_implementation="eager").float().eval()
    finally:
        logging.set_verbosity(before)
        if shows:
            logging.enable_progress_bar()
    given = tuple(output for output in outputs if output.name in known)

    @torch.inference_mode()
    def run(inputs: dict[str, Ints]) -> dict[str, Any]:
        found = model(**{name: torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in INPUTS})
        return {output.name: found[theirs[output.name]].numpy() for output in given}

    return run, given


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


def _about(sample: Sample) -> str:
    return f"compared on {sample.about['data']} ({sample.about['rows']:,} rows) and on rows of odd lengths"


def _versions(**others: str) -> dict[str, str]:
    return {"bertsmith": bertsmith.__version__, "torch": torch.__version__, "numpy": np.__version__, **others}
