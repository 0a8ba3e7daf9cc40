"""`int8_scales.json`, the scales that `bertsmith quantize` fixed by calibration, next to the metadata of a model.

The note on int8 in the metadata names the digest of the file, so that a note and a file that do not belong together are
never used together.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import warn
from bertsmith.base.machine.runtime import Runtime
from bertsmith.base.storage.files import digest_file, read_json, write_text
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.model_files.metadata import KEPT_NOTE
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.products.int8_linear import InputScale
from bertsmith.models.products.prepared import INPUTS

SCALES = "int8_scales.json"
_WEIGHTS = "model.safetensors"


def write_scales(folder: ModelFolder, scales: Mapping[str, InputScale], rows: int) -> dict[str, Any]:
    """Writes the scales of a model next to its metadata; returns what the note on int8 says about them."""
    path = folder.path / SCALES
    values = {name: {**scale._asdict(), "balance": list(scale.balance)} for name, scale in scales.items()}
    write_text(path, json.dumps({"scales": values}) + "\n")
    return {
        "digest": digest_file(path),
        "rows": rows,
        "vocabulary": folder.require_tokenizer().vocabulary.digest,
        "weights": _digest_of_weights(folder),
    }


class RecordedInt8(NamedTuple):
    """The record of `bertsmith quantize` in a model, as far as it is used."""

    kept: tuple[str, ...]
    scales: Mapping[str, InputScale] | None
    digest: str


def recorded_int8(folder: ModelFolder, runtime: Runtime) -> RecordedInt8:
    """The usable part of the record of a model; with plain products, there is one scale per token."""
    kept = folder.metadata.kept_layers(folder.path)
    if runtime.precision != "int8" or runtime.products == "plain":
        return RecordedInt8(kept, None, "")
    return RecordedInt8(kept, *read_scales(folder))


def read_scales(folder: ModelFolder) -> tuple[dict[str, InputScale] | None, str]:
    """The scales of a model and the digest of their file; None and "" if none were fixed.

    A warning says why scales that exist cannot be used: they belong to another vocabulary, to other weights or to
    another note, or their file is damaged. There is one scale per token then.
    """
    note = folder.metadata.other.get(KEPT_NOTE)
    about = note.get("scales") if isinstance(note, dict) else None
    if about is None:
        return None, ""
    reason = _mismatch(folder, about)
    if not reason:
        try:
            return _parsed(read_json(folder.path / SCALES), folder.config), about["digest"]
        except (InputError, ValueError, TypeError, KeyError, AttributeError):
            reason = "do not fit the model"
    warn(
        f"the int8 scales in '{folder.path}' {reason}, so there is one scale per token; run `bertsmith quantize` again"
    )
    return None, ""


def _mismatch(folder: ModelFolder, about: Any) -> str:
    """The reason why the scales do not belong to this model; empty if they do."""
    path = folder.path / SCALES
    if not isinstance(about, dict) or not path.is_file() or digest_file(path) != about.get("digest"):
        return "are missing or were changed"
    if folder.tokenizer is None or folder.tokenizer.vocabulary.digest != about.get("vocabulary"):
        return "were calibrated for another vocabulary"
    return "" if _digest_of_weights(folder) == about.get("weights") else "were calibrated for other weights"


def _digest_of_weights(folder: ModelFolder) -> str | None:
    """The recorded digest of the weights, or of their file if none is recorded; None without such a file."""
    digests, file = folder.metadata.other.get("digests"), folder.path / _WEIGHTS
    recorded = digests.get(_WEIGHTS) if isinstance(digests, dict) else None
    return recorded or (digest_file(file) if file.is_file() else None)


def _parsed(values: Any, config: EncoderConfig) -> dict[str, InputScale]:
    """The scales in a parsed file."""
    scales = {}
    for name, value in values["scales"].items():
        scale = InputScale(float(value["low"]), float(value["high"]), tuple(map(float, value["balance"])))
        numbers = (scale.low, scale.high, *scale.balance)
        is_usable = all(map(math.isfinite, numbers)) and scale.low <= 0 < scale.high and min((1, *scale.balance)) > 0
        if not is_usable or len(scale.balance) not in (0, config.hidden_size):
            raise ValueError(name)
        scales[name] = scale
    if set(scales) != {f"{number}.{name}" for number in range(config.num_distinct_layers) for name in INPUTS}:
        raise ValueError("layers")
    return scales
