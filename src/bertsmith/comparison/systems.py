"""The systems of a comparison: what is fitted to the labels, on which vectors or network.

A system is an entry of SYSTEMS. A network that `pretrain` trains by another architecture or objective is one more line
there; no code refers to a system by name.

Letters: E examples, D width of a vector, K outputs.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bertsmith.checkpoints.load import load_any
from bertsmith.comparison.bench import Bench
from bertsmith.comparison.linear import EncoderMeans, Features, WordMeans, counting, fit_on_features, of_texts
from bertsmith.comparison.networks import Given, Pretraining, Untrained
from bertsmith.comparison.sources import Made, Source
from bertsmith.comparison.word_vector_training import WordVectorTraining
from bertsmith.datasets.examples import Example, TextExample
from bertsmith.errors import ConfigError, nearest
from bertsmith.files import read_json_lines
from bertsmith.finetuning.recipes import ULMFIT, resolved, situation_of
from bertsmith.finetuning.run import finetune
from bertsmith.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.inference.loading import load_predictor
from bertsmith.model.our_names import ATTENTION, BILSTM, READERS
from bertsmith.model_files.metadata import SIMILARITY
from bertsmith.results.finished_run import MODEL_FOLDER, PREDICTIONS_FILE
from bertsmith.results.predictions import Line
from bertsmith.settings import AUTO, split_settings, to_dict
from bertsmith.tasks.task import TaskSpec
from bertsmith.training.run_folder import SETTINGS_FILE

ONE_ANSWER = "the same answer to every example"
OF_WHOLE_TEXTS = ("classification", "regression")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """A system that was fitted to the labels.

    Attributes:
        lines: its predictions on the dev examples, as in predictions.jsonl.
        scores: on the dev examples.
        answer: predicts examples; for measuring how long that takes.
        parameters: the numbers that were learned, from the text or from the labels.
        settings: how it was fitted, as plain values for JSON.
        note: what a reader of the score should know.
    """

    lines: Sequence[Line]
    scores: Mapping[str, float]
    answer: Callable[[Sequence[Example]], Any]
    parameters: int
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    note: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class System(abc.ABC):
    """Something that learns from labelled examples.

    Attributes:
        about: what it is, in a few words, for the report.
        source: where its vectors or its network come from; None if the labelled texts are all that it reads.
    """

    about: str
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
            seed: of all its draws.
            scratch: a folder for what is only needed meanwhile; may hold what an interrupted call left.

        Raises:
            BertsmithError: it cannot be fitted; the message says why.
        """


class OnFeatures(System):
    """A linear model on the columns or the vectors of whole texts, or of pairs of them."""

    def why_not(self, spec: TaskSpec) -> str:
        """See `System.why_not`."""
        if spec.kind in OF_WHOLE_TEXTS:
            return ""
        return f"a linear model on whole texts labels texts; it cannot do {spec.kind}"

    @abc.abstractmethod
    def features(self, bench: Bench, made: Made | None, train: Sequence[TextExample]) -> Features:
        """What the linear model reads."""

    def fit(self, bench: Bench, made: Made | None, train: Sequence[Example], seed: int, scratch: Path) -> Fitted:
        """See `System.fit`."""
        texts = cast("Sequence[TextExample]", train)
        features = self.features(bench, made, texts)
        fitted = fit_on_features(bench.task, features, texts, cast("Sequence[TextExample]", bench.data.dev), seed)
        model = fitted.model
        return Fitted(
            lines=fitted.lines,
            scores=fitted.scores,
            answer=fitted.predict,
            parameters=features.parameters + model.weight.size + model.bias.size,
            settings={"penalty": model.penalty, "columns": int(model.weight.shape[1])},
            note=ONE_ANSWER if fitted.is_collapsed else "",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordCounts(OnFeatures):
    """A linear model on the words of the labelled texts themselves.

    Attributes:
        one_hot: which words there are; otherwise words, pairs of words and runs of letters, weighted by TF-IDF.
    """

    one_hot: bool

    def features(self, bench: Bench, made: Made | None, train: Sequence[TextExample]) -> Features:
        """See `OnFeatures.features`."""
        return counting(train, bench.spec, one_hot=self.one_hot)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanOfWords(OnFeatures):
    """A linear model on the mean of the vectors of a text's words."""

    def features(self, bench: Bench, made: Made | None, train: Sequence[TextExample]) -> Features:
        """See `OnFeatures.features`."""
        assert made is not None, "word vectors have a source"
        return of_texts(WordMeans(Path(made.path), bench.spec.settings))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrozenMean(OnFeatures):
    """A linear model on the mean of the vectors that a frozen network computes for a text's tokens."""

    def features(self, bench: Bench, made: Made | None, train: Sequence[TextExample]) -> Features:
        """See `OnFeatures.features`."""
        assert made is not None, "a network has a source"
        return of_texts(EncoderMeans(made.path, bench.spec, bench.device))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuned(System):
    """A network that is fine-tuned by the default recipe, with a layer for the task on top.

    Attributes:
        settings: what differs from the recipe: fields of FinetuningSettings and RecipeSettings by name.
        recipe: the name of the recipe.
    """

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    recipe: str = AUTO

    def why_not(self, spec: TaskSpec) -> str:
        """See `System.why_not`; a BiLSTM on top needs a layer for the task, and attention two texts in each row."""
        reads = self.settings.get("reads")
        if reads in READERS and spec.kind == SIMILARITY:
            return "a BiLSTM on top is part of a layer for labels, and vectors of texts have none"
        if reads == ATTENTION and not spec.has_two_texts:
            return "attention between two texts needs examples of two; these have one, which a BiLSTM alone reads"
        return ""

    def fit(self, bench: Bench, made: Made | None, train: Sequence[Example], seed: int, scratch: Path) -> Fitted:
        """See `System.fit`."""
        assert made is not None, "a network has a source"
        folder, run = load_any(made.path), scratch / "run"
        given = {**self.settings, "seed": seed, "device": bench.device, "baselines": False}
        situation = situation_of(bench.spec.name, bench.spec.kind, len(train), folder, settings=bench.spec.settings)
        parts = split_settings(resolved(self.recipe, situation, given), [FinetuningSettings, RecipeSettings])
        settings, rates = FinetuningSettings(**parts[FinetuningSettings]), RecipeSettings(**parts[RecipeSettings])
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
        one = result.runs[result.best]
        return Fitted(
            lines=read_json_lines(run / PREDICTIONS_FILE),
            scores=one.scores,
            answer=predictor.predict,
            parameters=sum(tensor.numel() for tensor in load_any(run / MODEL_FOLDER).tensors.values()),
            settings={**to_dict(settings), "learning_rate": one.learning_rate, "steps": one.steps},
            note=ONE_ANSWER if one.collapsed else "",
        )


BERT = Pretraining(name="bert")
GPT = Pretraining(name="gpt", architecture="openai-gpt")
AWD_LSTM = Pretraining(name="awd-lstm", architecture="awd-lstm")
ELMO = Pretraining(name="elmo", architecture="elmo")

SYSTEMS: dict[str, System] = {
    "one-hot": WordCounts(about="which words a text has", one_hot=True),
    "tf-idf": WordCounts(about="words, pairs of words and runs of letters, weighted by TF-IDF", one_hot=False),
    "word2vec": MeanOfWords(
        about="mean of Word2Vec vectors", source=WordVectorTraining(name="word2vec", method="skip-gram")
    ),
    "glove": MeanOfWords(about="mean of GloVe vectors", source=WordVectorTraining(name="glove", method="glove")),
    "ppmi": MeanOfWords(about="mean of PPMI vectors", source=WordVectorTraining(name="ppmi", method="ppmi")),
    "awd-lstm-frozen": FrozenMean(about="mean of the AWD-LSTM's vectors, AWD-LSTM frozen", source=AWD_LSTM),
    "awd-lstm": FineTuned(about="AWD-LSTM, pre-trained and fine-tuned", source=AWD_LSTM),
    "ulmfit": FineTuned(about="the same AWD-LSTM, fine-tuned as in ULMFiT", source=AWD_LSTM, recipe=ULMFIT),
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
    "random": FineTuned(about="the network of bert, fine-tuned without pre-training", source=Untrained(like=BERT)),
    "bert-frozen": FrozenMean(about="mean of BERT's vectors, BERT frozen", source=BERT),
    "bert": FineTuned(about="BERT, pre-trained and fine-tuned", source=BERT),
    "starter": FineTuned(about="the starter model, fine-tuned", source=Given(model="starter")),
}
WITHOUT_TEXT = ("one-hot", "tf-idf", "starter")  # what is compared by default where there is no text to read


def chosen_systems(names: Sequence[str], *, has_text: bool) -> dict[str, System]:
    """The systems with these names; a name of none is that of a model, which is fine-tuned.

    Args:
        names: if empty, all that read the text and those that count words, or WITHOUT_TEXT.
        has_text: whether there is text to read.

    Raises:
        ConfigError: a name is neither a system nor a model, occurs twice, or needs text and there is none.
    """
    if not names:
        names = [name for name in SYSTEMS if has_text and name != "starter"] or WITHOUT_TEXT
    result: dict[str, System] = {}
    for name in names:
        if name in result:
            raise ConfigError(expected="each system once", found=f"{name!r} twice", fix="remove one from --systems")
        result[name] = SYSTEMS[name] if name in SYSTEMS else _model(name)
    reading = [name for name, system in result.items() if system.needs_text]
    if reading and not has_text:
        raise ConfigError(
            expected=f"text for {', '.join(reading)} to read",
            found="none",
            fix="name it with --corpus, or choose others with --systems",
        )
    return result


def _model(name: str) -> System:
    """A model with this name, which has to look like a path or an id: a plain word is a misspelled system."""
    if "/" not in name and not Path(name).exists():
        known = ", ".join(SYSTEMS)
        raise ConfigError(
            expected=f"a system ({known}), a model folder or a hub id", found=repr(name), fix=nearest(name, SYSTEMS)
        )
    return FineTuned(about=f"{name}, fine-tuned", source=Given(model=name))
