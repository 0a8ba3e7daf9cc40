"""A tiny base model, text of a domain with words that its vocabulary splits, labelled examples, and runs that stop."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bertsmith.base.core.errors import RunError
from bertsmith.base.core.randomness import generator
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from tasks.task_samples import CONFIG, PEOPLE, PLAIN, TOKENIZER
from training.interruptions import interrupted

SPLIT = [f"{word}s" for word in ("film", "plot", "film" * 2)]  # the last one is unknown
DOMAIN = ["films", "plots"]


def words(count: int, seed: int = 0, known: list[str] = PLAIN) -> str:
    return " ".join(generator(seed, "words").choice(known, count).tolist())


def write_base(folder: Path) -> Path:
    """A base model with all heads."""
    save_pretrained(folder, untrained(CONFIG, 3), TOKENIZER, ModelMetadata(task="pretraining", steps=7, tokens=70))
    return folder


def write_domain(path: Path, documents: int = 60, seed: int = 0) -> Path:
    """Text of the field: documents of four sentences, 2,640 words if there are 60."""
    known = [*PLAIN, *DOMAIN]
    parts = ["\n".join(f"{words(10, seed + 100 * n + k, known)} ." for k in range(4)) for n in range(documents)]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def write_general(path: Path) -> Path:
    """Text of other words."""
    path.write_text("\n\n".join(f"{words(30, n, [*PLAIN, *PEOPLE])} ." for n in range(8)), encoding="utf-8")
    return path


def write_labelled(path: Path) -> Path:
    """Twelve labelled texts."""
    lines = [f"{words(8, n)} {'good' if n % 2 else 'bad'},{'yes' if n % 2 else 'no'}" for n in range(12)]
    path.write_text("text,label\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def kill_and_resume(start: Callable[..., None], name: str, module: object, function: str) -> None:
    """Starts a run that is killed where it calls a function, sees that it is not begun again, and resumes it.

    Args:
        start: receives the name of the run, and `resume`.
        module: the module that calls the function.
    """
    with interrupted(module, function, lambda *_, **__: True):
        start(name)
    with pytest.raises(RunError, match="resume it with "):
        start(name)
    start(name, resume=True)
