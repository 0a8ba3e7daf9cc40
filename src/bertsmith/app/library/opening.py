"""How a model was loaded, with which a copy or a pickle of it is loaded again, from the same weights or not at all.

A loaded model has threads, locks, and weights that are packed for one processor, which can be neither copied nor
pickled. No weights are in a pickle of ours, only where they are.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.storage.files import digest_file, file_state
from bertsmith.models.model_files.metadata import NGRAM_TERMS

_FILES = (
    "*.safetensors",
    "*.onnx",
    "*.bin",
    "*.data-*",
    "*.npz",
    "config.json",
    "vocab.txt",
    "tokenizer.json",
    NGRAM_TERMS,
)


class Opening:
    """The arguments of `load`, and the files of weights as they were then.

    Args:
        load: opens the source.
        source: as given; a path is kept as an absolute one.
        options: the other arguments.
    """

    def __init__(self, load: Callable[..., Any], source: str | Path, options: Mapping[str, Any]) -> None:
        self._load, self._options = load, options
        self._source = Path(source).resolve() if Path(source).exists() else source
        self._states = {file: file_state(file) for file in self._files()}

    def _files(self) -> list[Path]:
        """The files of weights, vocabulary and shape; none for a hub id, which stands for a revision in the cache."""
        if not isinstance(self._source, Path) or not self._source.is_dir():
            return [self._source] if isinstance(self._source, Path) else []
        model = self._source / "model"  # of a run, whose checkpoints may change
        folder = model if model.is_dir() else self._source
        return sorted(file for pattern in _FILES for file in folder.rglob(pattern) if file.is_file())

    def again(self) -> tuple[Any, ...]:
        """What pickle calls to load the model again."""
        if {file: file_state(file) for file in self._files()} != self._states:
            raise self._changed()
        return _loaded_again, (self._load, self._source, self._options, self._digests())

    def _digests(self) -> list[str]:
        return [digest_file(file) for file in self._files()]

    def open(self, digests: list[str]) -> Any:
        """The model."""
        if self._digests() != digests:
            raise self._changed()
        return self._load(self._source, **self._options)

    def _changed(self) -> CheckpointError:
        return CheckpointError(
            expected=f"the weights in '{self._source}' as when the model was loaded, to copy or pickle it",
            found="others",
            fix="load the model in the process that uses it",
        )


def _loaded_again(load: Callable[..., Any], source: str | Path, options: Mapping[str, Any], digests: list[str]) -> Any:
    return Opening(load, source, options).open(digests)
