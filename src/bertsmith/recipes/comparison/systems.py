"""The systems of a comparison: what is fitted to the labels, on which vectors or network.

A system is an entry of SYSTEMS. A network that `pretrain` trains by another architecture or objective is one more line
there; no code refers to a system by name.

Letters: E examples, D width of a vector, K outputs.
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.settings import AUTO, PAPER, to_dict
from bertsmith.base.storage.files import read_json_lines
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.inference.word_vectors.word_vectors import is_word_vector_folder
from bertsmith.models.checkpoints.load import kind_of, load_any
from bertsmith.models.model_files.metadata import SIMILARITY
from bertsmith.models.parts.head_inputs import ATTENTION, BILSTM, READERS
from bertsmith.recipes.comparison.bench import Bench
from bertsmith.recipes.comparison.linear import (
    ONE_ANSWER,
    CountedColumns,
    EncoderMeans,
    Features,
    Fitted,
    Texts,
    TextVectors,
    WordCounts,
    WordMeans,
    compare_vectors,
    fit_on_features,
)
from bertsmith.recipes.comparison.networks import ContinuedOnTask, Given, Pretraining, Untrained
from bertsmith.recipes.comparison.request import FROZEN
from bertsmith.recipes.comparison.sources import Made, Source
from bertsmith.recipes.comparison.word_vector_training import GivenWordVectors, WordVectorTraining
from bertsmith.recipes.finetuning.recipes import resolved, settings_from, situation_of
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import ULMFIT
from bertsmith.recipes.results.finished_run import MODEL_FOLDER, PREDICTIONS_FILE
from bertsmith.tasks.datasets.examples import Example, texts_of_group
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.task import GENERATION, OF_TEXTS, TaskSpec
from bertsmith.training.loop.run_folder import SETTINGS_FILE


@dataclasses.dataclass(frozen=True, kw_only=True)
class System(abc.ABC):
    """Something that learns from labelled examples."""

    about: str
    # where its vectors or its network come from; None if the labelled texts are all that it reads
    source: Source | None = None

    @property
    def needs_text(self) -> bool:
        """Whether it reads the text of the comparison."""
        return self.source is not None and self.source.needs_text

    def why_not(self, spec: TaskSpec) -> str:
        """Why it cannot do a task; "" if it can."""
        return ""

    @abc.abstractmethod
    def fit(self, bench: Bench, made: Made | None, train: Sequence[Example], seed: int, scratch: Path) -> Fitted:
        """The system after it has learned from some training examples.

        Args:
            made: what its source made; None without a source.
            scratch: a folder for what is only needed meanwhile; may hold what an interrupted call left.
        """


class OnVectors(System):
    """A linear model on one vector of each text, or of each pair of texts; or the vectors as they are."""

    def why_not(self, spec: TaskSpec) -> str:
        """See `System.why_not`."""
        if spec.kind == SIMILARITY or task_for(spec).baselines == OF_TEXTS:
            return ""
        return f"a linear model on whole texts labels texts; it cannot do {spec.kind}"

    @abc.abstractmethod
    def features(self, bench: Bench, made: Made | None, train: Sequence[Example]) -> Features:
        """What the linear model reads, which are `TextVectors` where vectors are the task."""

    def fit(self, bench: Bench, made: Made | None, train: Sequence[Example], seed: int, scratch: Path) -> Fitted:
        """See `System.fit`; vectors are compared by their cosines where they are the task, whatever the labels."""
        features, dev = self.features(bench, made, train), bench.data.dev
        if isinstance(features, TextVectors) and bench.spec.kind == SIMILARITY:
            fitted = compare_vectors(bench.task, features, dev)
        else:
            fitted = fit_on_features(bench.task, features, cast("Texts", train), cast("Texts", dev), seed)
        return dataclasses.replace(fitted, unknown_words=features.unknown_words(dev))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedWords(OnVectors):
    """The words of the labelled texts themselves."""

    # which words there are; otherwise words, pairs of words and runs of letters, weighted by TF-IDF, and where vectors
    # are compared, words weighted by TF-IDF
    one_hot: bool

    def features(self, bench: Bench, made: Made | None, train: Sequence[Example]) -> Features:
        """See `OnVectors.features`; of vectors, dev texts count in the document frequencies, as they have no labels."""
        if bench.spec.kind != SIMILARITY:
            return CountedColumns(cast("Texts", train), bench.spec, one_hot=self.one_hot)
        texts = [text for example in (*train, *bench.data.dev) for text in texts_of_group(example)]
        return WordCounts(texts, bench.spec.settings, one_hot=self.one_hot)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanOfWords(OnVectors):
    """The mean of the vectors of a text's words."""

    def features(self, bench: Bench, made: Made | None, train: Sequence[Example]) -> Features:
        """See `OnVectors.features`."""
        assert made is not None, "word vectors have a source"
        return WordMeans(Path(made.path), bench.spec.settings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrozenMean(OnVectors):
    """The mean of the vectors that a frozen network computes for a text's tokens."""

    def why_not(self, spec: TaskSpec) -> str:
        """See `System.why_not`."""
        if spec.kind == SIMILARITY and (spec.settings.query_prompt or spec.settings.passage_prompt):
            return "frozen vectors are compared without prompts; leave --query-prompt and --passage-prompt out"
        return super().why_not(spec)

    def features(self, bench: Bench, made: Made | None, train: Sequence[Example]) -> Features:
        """See `OnVectors.features`."""
        assert made is not None, "a network has a source"
        return EncoderMeans(made.path, bench.spec, bench.device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuned(System):
    """A network that is fine-tuned by the default recipe, with a layer for the task on top."""

    # what differs from the recipe: fields of FinetuningSettings and RecipeSettings by name
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    recipe: str = AUTO

    def why_not(self, spec: TaskSpec) -> str:
        """See `System.why_not`; a BiLSTM on top needs a layer for the task, and attention two texts in each row."""
        reads = self.settings.get("reads")
        if spec.kind == GENERATION:
            return "it labels texts; `bertsmith finetune` trains a network that writes them"
        if reads in READERS and spec.kind == SIMILARITY:
            return "a BiLSTM on top is part of a layer for labels, and vectors of texts have none"
        if reads == ATTENTION and not spec.has_two_texts:
            return "attention between two texts needs examples of two; these have one, which a BiLSTM alone reads"
        return ""

    def fit(self, bench: Bench, made: Made | None, train: Sequence[Example], seed: int, scratch: Path) -> Fitted:
        """See `System.fit`."""
        assert made is not None, "a network has a source"
        folder, run = load_any(made.path), scratch / "run"
        values = {**self.settings, "seed": seed, "device": bench.device, "baselines": False}
        situation = situation_of(bench.spec.name, bench.spec.kind, len(train), folder, settings=bench.spec.settings)
        values = resolved(self.recipe, situation, values)
        if bench.data.fold is not None:  # the fold chooses no step
            values = {**values, "keep": "last"}
        settings, rates = settings_from(values)
        result = finetune(
            folder,
            bench.spec,
            dataclasses.replace(bench.data, train=train, held_out=False),
            run,
            settings,
            rates,
            seeds=1,
            resume=(run / SETTINGS_FILE).is_file(),
            recipe_name=self.recipe,
            source_name=made.path,
        )
        predictor = load_predictor(run / MODEL_FOLDER, device=bench.device)
        best = result.runs[result.best]
        return Fitted(
            lines=read_json_lines(run / PREDICTIONS_FILE),
            scores=best.scores,
            answer=predictor.predict,
            parameters=sum(tensor.numel() for tensor in load_any(run / MODEL_FOLDER).tensors.values()),
            settings={**to_dict(settings), "learning_rate": best.learning_rate, "steps": best.steps},
            note=ONE_ANSWER if best.collapsed else "",
        )


BERT = Pretraining(name="bert")
GPT = Pretraining(name="gpt", architecture="openai-gpt")
AWD_LSTM = Pretraining(name="awd-lstm", architecture="awd-lstm")
ELMO = Pretraining(name="elmo", architecture="elmo")
AUTOENCODER = Pretraining(name="autoencoder", architecture="awd-lstm", objective="autoencoder")

SYSTEMS: dict[str, System] = {
    "one-hot": CountedWords(about="which words a text has", one_hot=True),
    "tf-idf": CountedWords(about="words, pairs of words and runs of letters, weighted by TF-IDF", one_hot=False),
    "word2vec": MeanOfWords(
        about="mean of Word2Vec vectors", source=WordVectorTraining(name="word2vec", method="skip-gram")
    ),
    "glove": MeanOfWords(about="mean of GloVe vectors", source=WordVectorTraining(name="glove", method="glove")),
    "ppmi": MeanOfWords(about="mean of PPMI vectors", source=WordVectorTraining(name="ppmi", method="ppmi")),
    "autoencoder-frozen": FrozenMean(about="mean of a sequence autoencoder's vectors, frozen", source=AUTOENCODER),
    "autoencoder": FineTuned(about="an LSTM, pre-trained as a sequence autoencoder and fine-tuned", source=AUTOENCODER),
    "awd-lstm-random": FineTuned(about="AWD-LSTM, fine-tuned without pre-training", source=Untrained(like=AWD_LSTM)),
    "awd-lstm-frozen": FrozenMean(about="mean of the AWD-LSTM's vectors, AWD-LSTM frozen", source=AWD_LSTM),
    "awd-lstm": FineTuned(about="AWD-LSTM, pre-trained and fine-tuned", source=AWD_LSTM),
    "ulmfit": FineTuned(about="the same AWD-LSTM, fine-tuned as in ULMFiT", source=AWD_LSTM, recipe=ULMFIT),
    "ulmfit-target": FineTuned(
        about="the same, after more language modeling on the texts of the task",
        source=ContinuedOnTask(name="awd-lstm-target", base=AWD_LSTM),
        recipe=ULMFIT,
    ),
    "elmo-frozen": FrozenMean(about="mean of ELMo's vectors, ELMo frozen", source=ELMO),
    "elmo-bilstm": FineTuned(
        about="a BiLSTM on ELMo's vectors, ELMo frozen", source=ELMO, settings={"reads": BILSTM, "bilstm_cells": 128}
    ),
    "elmo-bilstm-attention": FineTuned(
        about="the same BiLSTM, with attention between two texts",
        source=ELMO,
        settings={"reads": ATTENTION, "bilstm_cells": 128},
    ),
    "elmo": FineTuned(about="ELMo, pre-trained and fine-tuned", source=ELMO),
    "gpt-frozen": FrozenMean(about="mean of GPT's vectors, GPT frozen", source=GPT),
    "gpt": FineTuned(about="GPT, pre-trained and fine-tuned", source=GPT),
    "gpt-2018": FineTuned(about="the same GPT, fine-tuned as in its paper", source=GPT, recipe=PAPER),
    "random": FineTuned(about="the network of bert, fine-tuned without pre-training", source=Untrained(like=BERT)),
    "bert-frozen": FrozenMean(about="mean of BERT's vectors, BERT frozen", source=BERT),
    "bert": FineTuned(about="BERT, pre-trained and fine-tuned", source=BERT),
    "starter": FineTuned(about="the starter model, fine-tuned", source=Given(model="starter")),
}
WITHOUT_TEXT = ("one-hot", "tf-idf", "starter")  # what is compared by default where there is no text to read


def chosen_systems(names: Sequence[str], *, has_text: bool) -> dict[str, System]:
    """The systems with these names; other names are those of models and of word vectors.

    Args:
        names: if empty, all that read the text and those that count words, or WITHOUT_TEXT.
    """
    if not names:
        names = [name for name in SYSTEMS if has_text and name != "starter"] or WITHOUT_TEXT
    result: dict[str, System] = {}
    for name in names:
        if name in result:
            raise ConfigError(expected="each system once", found=f"{name!r} twice", fix="remove one from --systems")
        result[name] = SYSTEMS[name] if name in SYSTEMS else _given(name)
    reading = [name for name, system in result.items() if system.needs_text]
    if reading and not has_text:
        fix = "name it with --corpus, or choose others with --systems"
        raise ConfigError.needs(", ".join(reading), "text to read", fix)
    return result


def _given(name: str) -> System:
    """The word vectors or the model with this name."""
    path = Path(name)
    if is_word_vector_folder(path) or (path.is_file() and kind_of(path) is None):
        return MeanOfWords(about=f"mean of the word vectors of {name}", source=GivenWordVectors(path=name))
    model = name.removesuffix(FROZEN)
    if model == name:
        return FineTuned(about=f"{name}, fine-tuned", source=Given(model=name))
    return FrozenMean(about=f"mean of the vectors of {model}, frozen", source=Given(model=model))
