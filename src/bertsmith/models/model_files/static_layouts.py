"""Which folders have a table of static vectors in the layout of Model2Vec or of sentence-transformers."""

from pathlib import Path

import safetensors

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.storage.files import read_object

# The names of the table in the files of weights.
MODEL2VEC, STATIC_EMBEDDING = "embeddings", "embedding.weight"
_CONFIG, _PIPELINE, _WEIGHTS = "config.json", "tokenizer.json", "model.safetensors"
_MODEL_TYPE = "model2vec"


def is_model2vec(folder: Path) -> bool:
    """Whether a folder is one of Model2Vec."""
    paths = [folder / name for name in (_CONFIG, _PIPELINE, _WEIGHTS)]
    if not all(path.is_file() and path.stat().st_size for path in paths):
        return False
    kind = read_object(folder / _CONFIG).get("model_type")
    return kind == _MODEL_TYPE or (kind is None and MODEL2VEC in _names(folder / _WEIGHTS))


def has_table(folder: Path) -> bool:
    """Whether a folder has a table of either layout, and no encoder."""
    if (folder / _CONFIG).exists():
        return is_model2vec(folder)
    return not {MODEL2VEC, STATIC_EMBEDDING}.isdisjoint(_names(folder / _WEIGHTS))


def normalizes_tables(folder: Path) -> bool:
    """Whether the vectors of a folder of Model2Vec have length 1."""
    value = read_object(folder / _CONFIG).get("normalize", False)
    if not isinstance(value, bool):
        raise CheckpointError(
            expected=f"true or false as normalize in '{folder / _CONFIG}'", found=repr(value)[:60], fix="correct it"
        )
    return value


def _names(path: Path) -> set[str]:
    """The names of the tensors in a file; none if it cannot be read, as its reader says."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return {*file.keys()}
    except (safetensors.SafetensorError, OSError):
        return set()
