"""A model folder with sparse vectors, without any training."""

from pathlib import Path

from bertsmith.models.checkpoints.assembly import load_pretrained, save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from tasks.architecture_samples import write_base_model


def write_sparse(path: Path, architecture: str = "bert") -> Path:
    """A folder of ours with sparse vectors, from a model with a masked-LM head."""
    base = load_pretrained(load_any(write_base_model(path.parent / f"{path.name}-base", architecture)))
    spec = {"kind": "similarity", "name": "pairs", "objective": "ranking", "reads": "max", "vectors": "sparse"}
    metadata = ModelMetadata(task="similarity", spec={**spec, "settings": {"max_length": 12, "query_prompt": "who "}})
    assert base.tokenizer is not None
    save_pretrained(path, base.model, base.tokenizer, metadata, trained=("mlm",))
    return path
