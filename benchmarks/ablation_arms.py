"""The networks of the ablations: pre-trained with settings that differ from the recipe, or on counted vectors."""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import write_json
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.models.parts.config import BertConfig
from bertsmith.recipes.comparison.bench import Bench
from bertsmith.recipes.comparison.corpus_text import CorpusText
from bertsmith.recipes.comparison.networks import EVALUATION_ROWS, Pretraining, Recipe, Untrained
from bertsmith.recipes.comparison.sources import SEED, Made, Source
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.pretraining.initialization import initialize_from_corpus
from bertsmith.training.pretraining.recipes import settings_from_recipe
from bertsmith.training.pretraining.run import new_model

LENGTH = 64  # tokens per row, in pre-training and in tasks of single texts
HEADS = 8  # of all shapes, as in the recipe
TOKENS_PER_STEP = 1400  # rows of objectives differ in length; equal tokens are then equal steps, too


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm(Pretraining):
    """A network that is pre-trained with some settings that differ from the recipe.

    Attributes:
        changes: these settings.
        shape: layers and width, if they are not those of the size.
        text: the name of the corpus that it reads.
        share: of the tokens of the budget.
        seed: of the first parameters, and of the order and the masks of what it reads.
    """

    changes: tuple[tuple[str, str | bool | float], ...] = ()
    shape: tuple[int, int] | None = None
    text: str = "ordered"
    share: float = 1.0
    seed: int = SEED

    def of_seed(self, seed: int) -> "Arm":
        """The same arm, pre-trained with another seed."""
        return self if seed == SEED else dataclasses.replace(self, name=f"{self.name}-seed-{seed}", seed=seed)

    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """See `Source.make`; reads its own corpus."""
        folder = bench.reading().folder
        with_text = dataclasses.replace(bench, text=CorpusText([folder / self.text], folder))
        if self.shape is not None:
            self._config_file(with_text).parent.mkdir(exist_ok=True)
            write_json(self._config_file(with_text), self._config(with_text).to_dict())
        self.require_same(with_text)
        return super().make(with_text, seed, scratch)

    def recipe(self, bench: Bench) -> Recipe:
        """See `Pretraining.recipe`."""
        assert bench.budget.tokens is not None, "ablations have equal tokens"
        shape = {"size": bench.budget.size} if self.shape is None else {"config": str(self._config_file(bench))}
        options = {
            **shape,
            "tokens_per_step": TOKENS_PER_STEP,
            **dict(self.changes),
            "objective": self.objective or "mlm",
            "tokens": int(bench.budget.tokens * self.share),
            "max_length": LENGTH,
            "evaluation_rows": EVALUATION_ROWS,
            "device": bench.device,
            "seed": self.seed,
        }
        return settings_from_recipe(options)

    def record(self, bench: Bench) -> dict[str, Any]:
        """See `Kept.record`."""
        changes = {"changes": dict(self.changes), "shape": None if self.shape is None else list(self.shape)}
        return {**super().record(bench), **changes}

    def _config_file(self, bench: Bench) -> Path:
        return bench.models / "shapes" / f"{self.name}.json"

    def _config(self, bench: Bench) -> BertConfig:
        assert self.shape is not None
        layers, width = self.shape
        return BertConfig(
            vocab_size=len(Corpus.open(bench.reading().corpus).vocabulary),
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=HEADS,
            intermediate_size=4 * width,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EachSeed(Source):
    """A network that is pre-trained again for each seed of the cells, up to a number of times."""

    like: Arm
    times: int

    def max_tokens(self) -> int:
        """See `Source.max_tokens`."""
        return self.like.max_tokens()

    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """See `Source.make`."""
        return self.like.of_seed(SEED + (seed - SEED) % self.times).make(bench, seed, scratch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedWords(Untrained):
    """The network of a pre-training with random parameters, apart from its word table, which comes from counting.

    The vectors are those of `initialize_from_corpus`; nothing else is taken from the text.
    """

    def make(self, bench: Bench, seed: int, scratch: Path) -> Made:
        """See `Source.make`."""
        path = scratch / "base"
        if not path.is_dir():
            corpus = Corpus.open(bench.reading().corpus)
            run, data, _ = self.like.recipe(bench)
            model, counted = (new_model(run, data, seed, corpus) for _ in range(2))
            with quiet():
                initialize_from_corpus(counted, corpus, seed)
            with torch.no_grad():
                model.encoder.word_table.copy_(counted.encoder.word_table)
            metadata = ModelMetadata.from_dict({"task": "pretraining", "objective": data.objective, "tokens": 0})
            save_pretrained(path, model, corpus.tokenizer, metadata, trained=())
        return Made(path=str(path))
