"""Checks of exported model folders: each is read back and compared with the library before it is moved into place."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.inference.export.check import compare, library_model, library_runner
from bertsmith.inference.export.record import RECORD, require_equal, versions
from bertsmith.inference.export.sample import DataFile, sample_for
from bertsmith.models.checkpoints import google, huggingface
from bertsmith.models.checkpoints.architectures import architecture_of, read_config
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.checkpoints.transformers_folder import opening_of, reads_of
from bertsmith.models.checkpoints.weights import read_weights
from bertsmith.models.heads.head_blocks import HeadBlocks
from bertsmith.models.model_files.metadata import CODE
from bertsmith.models.parts.head_inputs import CONCAT, PAIR, VECTORS_OF_ROW
from bertsmith.models.parts.part_names import BLOCKS
from bertsmith.tasks.encoding.onnx_session import INPUTS, PER_ENDING, Output, Runner, inputs_of, outputs_of
from bertsmith.tasks.encoding.units import Ints
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.spec_of_model import spec_of_head


def check_google(folder: ModelFolder, partial: Path, file: DataFile | None, limit: float | None) -> list[str]:
    """Reads a Google checkpoint back and compares it with the source; returns lines for the user.

    The library runs both sides, because no other reader of these checkpoints can be relied on here.
    """
    back = google.read_google(partial)
    count = _require_same(folder, back)
    record: dict[str, Any] = {"format": "google", "equal_tensors": count}
    lines = [f"read back: {count} tensors equal bit for bit"]
    if folder.tokenizer is None:
        why = "there is no vocabulary"
        _record_unrun(record, partial, why, file, needed="a vocabulary")
        return [*lines, f"{why}: nothing was run"]
    spec = spec_of_head(folder)
    outputs = outputs_of(None if spec is None else spec.kind, folder.parts)
    sample = sample_for(folder, spec, file)
    model, model_back = library_model(folder, spec), library_model(back, spec_of_head(back))
    del back  # the model has its own copy by now
    comparison = compare(folder, model, outputs, library_runner(model_back, outputs), sample)
    limits = require_equal(comparison, "the Google checkpoint", limit)
    record |= {"sample": sample.about, "limits": limits, "read_back": comparison.to_dict()}
    write_json(partial / RECORD, {**record, "versions": versions()})
    return [*lines, sample.line(), f"read back and run: {comparison.line()}"]


def check_huggingface(folder: ModelFolder, partial: Path, file: DataFile | None, limit: float | None) -> list[str]:
    """Reads a Hugging Face folder back, and runs it in `transformers` if installed; returns lines for the user."""
    count = _require_same(folder, huggingface.read_model_folder(partial, verify=True))
    record: dict[str, Any] = {"format": "huggingface", "equal_tensors": count}
    lines = [f"read back: {count} tensors equal bit for bit"]
    opening = opening_of(folder.config, architecture_of(folder.config).names, folder.parts, folder.metadata)
    if opening.only_here:
        why = f"it has {opening.only_here}"
        _record_unrun(record, partial, why, file, needed="a model that transformers computes")
        return [*lines, f"{why}: nothing was run in transformers"]
    spec = spec_of_head(folder)
    is_installed = importlib.util.find_spec("transformers") is not None
    if folder.tokenizer is None or not is_installed:
        why = "there is no vocabulary" if is_installed else "transformers is not installed"
        fix = "omit --data" if is_installed else "install it (pip install transformers), or omit --data"
        _record_unrun(record, partial, why, file, needed="transformers and a vocabulary", fix=fix)
        return [*lines, f"{why}: nothing was run in transformers"]
    transformers = importlib.import_module("transformers")
    sample = sample_for(folder, spec, file)
    model = library_model(folder, spec)
    runner, outputs = transformers_runner(
        transformers,
        partial,
        outputs_of(None if spec is None else spec.kind, folder.parts),
        None if spec is None or not opening.needs_code or not task_for(spec).head.pooled else reads_of(spec.reads),
    )
    if not outputs:
        why = f"transformers has no class of {folder.config.display_name} with this head"
        _record_unrun(record, partial, why, file, needed="a head that transformers has")
        return [*lines, f"{why}, and {CODE} was not run"]
    comparison = compare(folder, model, outputs, runner, sample)
    limits = require_equal(comparison, "the model in transformers", limit)
    record |= {"sample": sample.about, "limits": limits, "transformers": comparison.to_dict()}
    write_json(partial / RECORD, {**record, "versions": versions(transformers=transformers.__version__)})
    ran = f"the encoder in transformers, with the head as {CODE} describes it" if opening.needs_code else "transformers"
    return [*lines, sample.line(), f"{ran}: {comparison.line()}"]


def _record_unrun(
    record: dict[str, Any],
    partial: Path,
    why: str,
    file: DataFile | None,
    *,
    needed: str,
    fix: str = "omit --data",
) -> None:
    if file is not None:
        raise ConfigError(expected=f"{needed}, to compare on '{file.path}'", found=f"that {why}", fix=fix)
    write_json(partial / RECORD, {**record, "not_run": why, "versions": versions()})


def _require_same(folder: ModelFolder, back: ModelFolder) -> int:
    """The number of tensors, after checking that all were read back unchanged."""
    wrong = [f"no {name}" for name in folder.tensors if name not in back.tensors]
    wrong += [f"unexpected {name}" for name in back.tensors if name not in folder.tensors]
    wrong += [
        f"different values in {name}"
        for name, tensor in folder.tensors.items()
        if name in back.tensors and not torch.equal(tensor.double(), back.tensors[name].double())
    ]
    wrong += ["a different configuration"] if back.config != folder.config else []
    if folder.tokenizer is not None:
        same = back.tokenizer is not None and back.tokenizer.vocabulary.digest == folder.tokenizer.vocabulary.digest
        same = same and back.tokenizer is not None and back.tokenizer.settings == folder.tokenizer.settings
        wrong += [] if same else ["a different tokenizer"]
    theirs, ours = spec_of_head(back), spec_of_head(folder)
    if theirs != ours and not wrong:
        raise CheckpointError(
            expected="a format that records the task of the model",
            found=f"{_head(theirs)} instead of {_head(ours)}",
            fix="nothing was written; choose another --to",
        )
    if wrong:
        raise CheckpointError(
            expected="the model to be read back unchanged",
            found="; ".join(wrong),
            fix="nothing was written; check the disk and try again",
        )
    return len(folder.tensors)


def _head(spec: TaskSpec | None) -> str:
    if spec is None:
        return "no task head"
    return f"a {spec.name} head ({spec.kind}" + (f": {', '.join(spec.labels)})" if spec.labels else ")")


def transformers_runner(
    transformers: Any, partial: Path, outputs: tuple[Output, ...], reads: str | None = None
) -> tuple[Runner, tuple[Output, ...]]:
    """A runner of the folder in `transformers`, and the outputs that it gives.

    Args:
        reads: for a head that no class of `transformers` has, what it reads, one of `head_inputs.READS`. The
            encoder runs in `transformers`, and the layer in the folder is applied to it as the code there describes.
    """
    values = read_json(partial / "config.json")
    config, bare = read_config(values), architecture_of(read_config(values)).names.class_named("Model")
    architecture = bare if "auto_map" in values else values["architectures"][0]
    asked, is_causal = inputs_of(config), bool(values.get("is_decoder"))
    theirs = {output.name: output.name for output in outputs}
    if reads is not None:
        known = ["logits"]
    elif architecture == bare:
        known = ["last_hidden_state", "pooler_output"]
    else:
        known = ["logits", "seq_relationship_logits", "start_logits", "end_logits"]
    if architecture.endswith("ForPreTraining"):
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
    compared = tuple(output for output in outputs if output.name in known)

    @torch.inference_mode()
    def run_encoder(inputs: dict[str, Ints]) -> dict[str, Any]:
        flat = {name: torch.from_numpy(inputs[name].reshape(-1, inputs[name].shape[-1])) for name in asked}
        hidden = model(**flat).last_hidden_state
        mask = flat["attention_mask"].unsqueeze(-1)
        last = mask.sum(1) - 1 if is_causal else torch.zeros_like(mask[:, 0])
        states = hidden.take_along_dim(last.unsqueeze(1), 1)[:, 0]
        if reads == "cls":
            read = states
        elif reads == CONCAT:
            largest = hidden.masked_fill(mask == 0, -torch.inf).amax(1)
            read = blocks(torch.cat([states, largest, (hidden * mask).sum(1) / mask.sum(1)], dim=1), None, 0.0)
        elif reads == PAIR:
            segments = torch.from_numpy(inputs[INPUTS[2]].reshape(mask.shape))
            parts = (mask * (1 - segments), mask * segments)
            a, b = ((hidden * part).sum(1) / part.sum(1).clamp(min=1) for part in parts)
            read = torch.cat([a, b, (a - b).abs(), a * b], dim=1)
        else:
            read = (hidden * mask).sum(1) / mask.sum(1)
        logits = torch.nn.functional.linear(read, layer["classifier.weight"], layer["classifier.bias"])
        per_ending = outputs[0].per == PER_ENDING
        return {"logits": (logits.reshape(inputs[asked[0]].shape[:-1]) if per_ending else logits).numpy()}

    if reads is not None:
        weights = {name: tensor.float() for name, tensor in read_weights(partial).items()}
        layer = {name: tensor for name, tensor in weights.items() if name.startswith("classifier")}
        blocks = HeadBlocks(config.hidden_size * VECTORS_OF_ROW.get(reads, 1)).eval()
        if reads == CONCAT:
            blocks.load_state_dict(
                {
                    name.removeprefix(f"{BLOCKS}."): weight
                    for name, weight in weights.items()
                    if name.startswith(f"{BLOCKS}.")
                }
            )
        return run_encoder, compared

    @torch.inference_mode()
    def run(inputs: dict[str, Ints]) -> dict[str, Any]:
        results = model(**{name: torch.from_numpy(np.ascontiguousarray(inputs[name])) for name in asked})
        return {output.name: results[theirs[output.name]].numpy() for output in compared}

    return run, compared
