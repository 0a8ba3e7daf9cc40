"""`bertsmith.json`, the passport of a model: what it is for, how its text is cut, what its files must be.

It lies beside the files that other tools read, which do not mind it. A reader here takes the text rules and the
labels from it before it asks any other file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

import bertsmith
from bertsmith.checkpoints.card import CARD
from bertsmith.errors import CheckpointError, InputError
from bertsmith.files import digest_file, read_json, write_json
from bertsmith.settings import to_dict
from bertsmith.text.tokenizer import Tokenizer

PASSPORT = "bertsmith.json"
PASSPORT_FORMAT = 1
KEPT_NOTE = "int8"  # what `bertsmith quantize` measured
# Written anew on every save: what a caller hands on from an older passport is replaced.
RESERVED = ("format", "bertsmith", "text_rules", "vocabulary", "digests")


def read_passport(folder: Path, *, verify: bool = False) -> dict[str, Any]:
    """The content of a passport; an empty one if there is none.

    Args:
        verify: compare the files of the folder with the digests in the passport.

    Raises:
        InputError: the passport is no JSON object, of a later format, or holds a task or labels that are none.
        CheckpointError: a file is missing, has another digest or has none.
    """
    path = folder / PASSPORT
    info = read_json(path) if path.exists() else {}
    if not isinstance(info, dict):
        raise InputError(expected=f"a JSON object in '{path}'", found=type(info).__name__, fix="restore the file")
    if info.get("format", PASSPORT_FORMAT) != PASSPORT_FORMAT:
        raise InputError(
            expected=f"format {PASSPORT_FORMAT} in '{path}'",
            found=repr(info["format"]),
            fix="read it with the version of bertsmith that wrote it",
        )
    labels, task = info.get("labels", []), info.get("task", "")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels) or not isinstance(task, str):
        raise InputError(
            expected=f"a word as task and a list of words as labels in '{path}'",
            found=f"{task!r} and {labels!r}"[:120],
            fix="restore the file",
        )
    if not verify:
        return info
    digests = info.get("digests")
    if not isinstance(digests, dict) or not digests:
        raise CheckpointError(expected=f"digests in '{path}'", found="none", fix="read the folder without verifying it")
    altered = [
        name
        for name, digest in digests.items()
        if Path(name).name != name or not (folder / name).is_file() or digest_file(folder / name) != digest
    ]
    altered += [file.name for file in folder.iterdir() if _holds_weights(file) and file.name not in digests]
    if altered:
        raise CheckpointError(
            expected=f"the files that '{path}' describes",
            found=f"others: {', '.join(altered)}",
            fix="copy the folder again, or remove bertsmith.json if you changed them",
        )
    return info


def write_passport(folder: Path, tokenizer: Tokenizer | None, info: Mapping[str, Any]) -> None:
    """Writes the passport of the files that are in `folder` now, with `info` in it."""
    passport: dict[str, Any] = {"format": PASSPORT_FORMAT, "bertsmith": bertsmith.__version__}
    passport |= {key: value for key, value in info.items() if key not in RESERVED}
    if tokenizer is not None:
        passport |= {"text_rules": to_dict(tokenizer.rules), "vocabulary": tokenizer.vocabulary.digest}
    # The card is for people, who may add to it.
    files = [file for file in sorted(folder.iterdir()) if file.name not in (PASSPORT, CARD)]
    passport["digests"] = {file.name: digest_file(file) for file in files}
    write_json(folder / PASSPORT, passport)


def kept_layers(info: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """The linear layers that a passport keeps out of int8; none where it says nothing.

    Raises:
        CheckpointError: the note in the passport is not one.
    """
    note = info.get(KEPT_NOTE, {})
    kept = note.get("kept", []) if isinstance(note, dict) else None
    if not isinstance(kept, list) or not all(isinstance(name, str) for name in kept):
        raise CheckpointError(
            expected=f"names of linear layers under '{KEPT_NOTE}' in '{folder / PASSPORT}'",
            found=repr(note)[:80],
            fix="restore the file, or run `bertsmith quantize` again",
        )
    return tuple(kept)


def _holds_weights(file: Path) -> bool:
    return file.suffix in (".safetensors", ".bin", ".index") or ".data-" in file.name


def check_labels(info: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Returns if `labels` of `info`, where given, names every row of the classifier, where there is one.

    Raises:
        CheckpointError: there are more names than rows, or fewer.
    """
    labels, bias = info.get("labels"), tensors.get("classifier.bias")
    if labels and bias is not None and len(labels) != len(bias):
        raise CheckpointError(
            expected=f"{len(bias)} labels, one for each row of the classifier",
            found=f"{len(labels)}: {', '.join(map(str, labels))}",
            fix="name every class once",
        )
