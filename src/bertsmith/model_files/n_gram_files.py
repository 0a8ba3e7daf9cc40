"""The files of a linear model on n-grams, by which its folder is recognized without reading it."""

from pathlib import Path

WEIGHTS_FILE, TERMS_FILE = "n-grams.safetensors", "n-grams.json"


def is_n_gram_folder(source: object) -> bool:
    """Whether a source is the folder of a linear model on n-grams; see `bertsmith.baselines.n_grams`."""
    return isinstance(source, str | Path) and (Path(source) / TERMS_FILE).is_file()
