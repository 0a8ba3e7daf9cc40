"""The continued pre-training of an adaptation: its corpus, its initial model, its run, and the model that is kept."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.progress import amount, counted, duration
from bertsmith.base.core.settings import to_dict
from bertsmith.base.storage.files import read_json_lines, write_json
from bertsmith.models.checkpoints.huggingface import write_model_folder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.transformers_folder import Opening, config_json
from bertsmith.recipes.adaptation.further_pretraining import EVALUATION_ROWS, pretrain_on_text
from bertsmith.recipes.adaptation.grafting import grafted
from bertsmith.recipes.adaptation.settings import GRAFT, KEEP, NEW
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.manifest import INPUTS
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.loop.run import Run
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.pretraining.recipes import objective_for

if TYPE_CHECKING:
    from bertsmith.recipes.adaptation.preparation import Prepared

START_FOLDER, MODEL_FOLDER = "start", "model"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Continued:
    """A finished pre-training."""

    model: Path
    # steps, tokens, seconds: what it took
    steps: int
    tokens: int
    seconds: float
    corpus_tokens: int  # tokens of the text that was trained on
    texts: Sequence[dict[str, Any]]  # the files that were read: name, words, digest

    def line(self, prepared: "Prepared") -> str:
        """What was trained, in a sentence."""
        ways = {
            KEEP: "pre-training continued",
            GRAFT: f"{counted(len(prepared.added), 'word')} added, pre-training continued",
            NEW: f"new model with {len(prepared.tokenizer.vocabulary):,} pieces pre-trained",
        }
        return (
            f"{ways[prepared.settings.vocabulary]} for {counted(self.steps, 'step')}: {amount(self.tokens)} tokens in "
            f"{duration(self.seconds)}, {self.tokens / max(self.corpus_tokens, 1):.2g} passes over the text"
        )


def continued(prepared: "Prepared", folder: Path, model: str, run: Run) -> Continued:
    """The pre-training of an adaptation, after it was started, resumed or read, if it is finished.

    Args:
        folder: the folder of start/, corpus/ and run/: that of the run, or one in it.
    """
    inner = folder / "run"
    if not run.has(inner / MODEL_FOLDER):
        pretrain_on_text(
            folder,
            run,
            lambda: _build_corpus(prepared, folder / "corpus"),
            lambda: {**run.from_first_rank(lambda: _start(prepared, folder, model)), **_rates(prepared)},
        )
        run.on_first_rank(RunFolder.open(inner).clear)
    corpus = Corpus.open(folder / "corpus")
    last = RunFolder.open(inner).metrics("train")[-1]
    files = read_json_lines(folder / "corpus" / INPUTS)
    return Continued(
        model=inner / MODEL_FOLDER,
        steps=int(last["step"]),
        tokens=int(last["tokens"]),
        seconds=float(last.get("seconds", 0.0)),
        corpus_tokens=corpus.num_tokens,
        texts=[{name: file[name] for name in ("name", "words", "digest")} for file in files if "digest" in file],
    )


def _build_corpus(prepared: "Prepared", folder: Path) -> None:
    """Builds the corpus of the text unless it is there."""
    if not folder.is_dir():
        values = {"held_out": prepared.settings.held_out, **to_dict(prepared.reading)}
        build_corpus(prepared.paths, prepared.tokenizer, folder, **values)


def final_model(prepared: "Prepared", out: Path, model: str, made: Continued) -> Path:
    """RUN/model: the adapted model with the text, the model that it comes from and the licence in its card."""
    path = out / MODEL_FOLDER
    if path.is_dir():
        return path
    folder = load_any(made.model)
    ways = {
        KEEP: "that of the model it was adapted from",
        GRAFT: f"that of the model it was adapted from, and {counted(len(prepared.added), 'word')} of the text",
        NEW: "learned from the text",
    }
    kind = prepared.settings.vocabulary
    metadata = dataclasses.replace(
        folder.metadata,
        training={
            **folder.metadata.training,
            ("same shape as" if kind == NEW else "adapted from"): model,
            "vocabulary": ways[kind],
        },
        licence=prepared.settings.licence or None,
        sources=tuple(f"`{text['name']}`, {text['words']:,} words, `{text['digest']}`" for text in made.texts),
    )
    write_model_folder(
        path, config=folder.config, tensors=folder.tensors, tokenizer=folder.tokenizer, metadata=metadata
    )
    return path


def _start(prepared: "Prepared", parent: Path, model: str) -> dict[str, Any]:
    """What the pre-training starts from, as settings; written to the folder if it is not the model as it was."""
    start, folder, kind = parent / START_FOLDER, prepared.folder, prepared.settings.vocabulary
    if kind == KEEP:
        return {"init": model, "objective": objective_for(folder.config)}
    if kind == GRAFT:
        if not start.is_dir():
            ready = grafted(folder, prepared.added)
            write_model_folder(
                start, config=ready.config, tensors=ready.tensors, tokenizer=ready.tokenizer, metadata=ready.metadata
            )
        return {"init": str(start), "objective": objective_for(folder.config)}
    config = dataclasses.replace(folder.config, vocab_size=len(prepared.tokenizer.vocabulary))
    start.mkdir(parents=True, exist_ok=True)
    write_json(start / "config.json", config_json(config, Opening(tensors_of=""), folder.metadata))
    return {"config": str(start / "config.json"), "objective": objective_for(folder.config)}


def _rates(prepared: "Prepared") -> dict[str, Any]:
    """The budget and the further settings of the pre-training."""
    settings = prepared.settings
    rate = {} if settings.learning_rate is None else {"learning_rate": settings.learning_rate}
    return {
        **settings.budget,
        **rate,
        "max_length": prepared.max_length,
        "evaluation_rows": EVALUATION_ROWS,
        "device": settings.device,
        "precision": settings.precision,
        "seed": settings.seed,
        "shard": settings.shard,
    }
