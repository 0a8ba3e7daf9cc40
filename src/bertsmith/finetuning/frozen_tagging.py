"""Tagging on a frozen encoder: a BiLSTM on its word vectors.

Letters: T words of a batch, W words of all sentences, n chosen layers, D width of the encoder, K tags.

The tagger does not contain the encoder. Its inputs are vectors that are computed once, and it is trained by the same
training loop as everything else. Scores and predictions are those of the fine-tuned task, so the two strategies can be
compared.

Source: Devlin et al. (2019), section 5.3: a randomly initialised BiLSTM of two layers of 768 before the classifier.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bertsmith.datasets.examples import Example, TaggedExample
from bertsmith.encoding.frozen import FrozenEncoder, Vectors
from bertsmith.encoding.units import EncodedExamples, Ints, Logits, TaskBatch, micro_batches
from bertsmith.finetuning.settings import RecipeSettings
from bertsmith.finetuning.workload import examples_of_step, step_plan
from bertsmith.locks import locked_folder
from bertsmith.model.layer_choice import LayerChoice
from bertsmith.model.layer_mix import WeightedMix
from bertsmith.randomness import generator
from bertsmith.runtime import ALONE, Rank
from bertsmith.settings import help_field, require, to_dict
from bertsmith.task_data.split import TaskData
from bertsmith.tasks.tagging import TaggingTask
from bertsmith.text.pack import PackedRows
from bertsmith.training.loop import train
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.workload import StepPlan, Workload

# For a randomly initialized network; higher than for fine-tuning.
TAGGER_RECIPE = RecipeSettings(learning_rate=1e-3, weight_decay=0.0, bias_correction=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerSettings:
    """The architecture and training length of a tagger on frozen vectors.

    Raises:
        ConfigError: a value is invalid.
    """

    layers: str = help_field("concat-last-4", "hidden states: a name from layer_choice, or numbers such as -1,-2")
    plain_sum: bool = help_field(False, "sum layers unweighted; otherwise with learned weights")
    normalized: bool = help_field(False, "normalize each hidden state to mean 0 and variance 1 before it is weighted")
    mix_penalty: float = help_field(
        0.0, "L2 penalty on the logits of the learned weights; 0.001 leaves them free, 1 keeps them near the mean"
    )
    width: int = help_field(768, "width of the BiLSTM in each direction")
    dropout: float = help_field(0.5, "dropout before, between and after the layers of the BiLSTM")
    batch_size: int = help_field(32, "sentences per optimizer step")
    epochs: float = help_field(10.0, "passes over the training sentences")
    micro_words: int = help_field(4096, "maximum words per micro-batch; affects memory and speed, not the result")

    def __post_init__(self) -> None:
        for name in ("width", "batch_size", "epochs", "micro_words"):
            value = getattr(self, name)
            require(value > 0, expected=f"{name} above 0", found=value, fix=f"raise {name}")
        require(self.mix_penalty >= 0, expected="mix_penalty of at least 0", found=self.mix_penalty, fix="raise it")
        require(0 <= self.dropout < 1, expected="dropout from 0 to below 1", found=self.dropout, fix="give a fraction")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordVectors:
    """The words of sentences as hidden states of a frozen encoder.

    Attributes:
        vectors: float32 [W, n, D], the hidden states of each word's first piece.
        sentences: one row and unit per sentence, whose "tokens" are its words, given as row indices into `vectors`. The
            targets, if there are gold tags, are those of the words.
    """

    vectors: Vectors
    sentences: EncodedExamples


def word_vectors(
    encoder: FrozenEncoder, task: TaggingTask, sentences: Sequence[TaggedExample], choice: LayerChoice
) -> WordVectors:
    """The hidden states of the first piece of every word, encoded as the task encodes sentences.

    Long sentences are read in windows, with the context that the task's settings ask for; each word occurs once.

    Raises:
        ConfigError: rows are longer than the model reads, or the vectors need too much memory.
    """
    encoder.require_positions(task.spec.settings.max_length)
    features = task.encode(sentences, encoder.tokenizer)
    vectors = encoder.hidden_states(features, choice)
    lengths = np.array([len(sentence.words) for sentence in sentences], dtype=np.int32)
    words = EncodedExamples(
        rows=_rows_of_words(lengths),
        rows_per_unit=np.ones(len(lengths), dtype=np.int64),
        example_of_row=np.arange(len(lengths)),
        read=None,
        targets=features.targets,
        targets_per=features.targets_per,
    )
    return WordVectors(vectors=vectors, sentences=words)


def _rows_of_words(lengths: npt.NDArray[np.int32]) -> PackedRows:
    """Rows whose tokens are the indices of the words of all sentences, from 0."""
    words = np.arange(lengths.sum(), dtype=np.int32)
    return PackedRows(words, np.zeros_like(words), lengths, np.zeros_like(lengths))


class BiLSTMTagger(nn.Module):
    """Two layers of BiLSTM over the word vectors of a sentence, and a linear layer.

    Args:
        choice: the hidden states of each word.
        hidden_size: D.
        num_labels: K.
        width: the width of the BiLSTM in each direction.
        dropout: the dropout of its input, between its layers, and of its output.
        learned: layers are summed with learned weights (`WeightedMix`).
        normalized: each of them is normalized before.
        seed: the seed of the initial parameters.
    """

    def __init__(
        self,
        choice: LayerChoice,
        hidden_size: int,
        num_labels: int,
        *,
        width: int = 768,
        dropout: float = 0.5,
        learned: bool = True,
        normalized: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.choice = choice
        self.mix = WeightedMix(len(choice.layers), normalized=normalized) if choice.is_sum and learned else None
        # On the meta device no random numbers are drawn from torch's generator.
        with torch.device("meta"):
            self.lstm = nn.LSTM(
                choice.width(hidden_size), width, num_layers=2, bidirectional=True, batch_first=True, dropout=dropout
            )
            self.classifier = nn.Linear(2 * width, num_labels)
        for part in (self.lstm, self.classifier):
            part.to_empty(device="cpu")
            _draw_uniform(part, 1 / math.sqrt(width), seed)
        self.dropout = nn.Dropout(dropout)

    def forward(self, picked: Tensor, lengths: Sequence[int]) -> Tensor:
        """Logits [T, K] from the hidden states [T, n, D] of the words of sentences with the given lengths."""
        vectors = self.choice.join(picked) if self.mix is None else self.mix(picked)
        sentences = torch.split(self.dropout(vectors), list(lengths))
        packed = nn.utils.rnn.pack_sequence(list(sentences), enforce_sorted=False)
        read = nn.utils.rnn.unpack_sequence(self.lstm(packed)[0])
        logits: Tensor = self.classifier(self.dropout(torch.cat(read)))
        return logits


@torch.no_grad()
def _draw_uniform(module: nn.Module, bound: float, seed: int) -> None:
    """Draws every parameter uniformly from [-bound, bound], as torch does for its LSTM; each by (seed, name)."""
    for name, parameter in module.named_parameters():
        drawn = generator(seed, f"initialize tagger {type(module).__name__} {name}").random(
            parameter.numel(), dtype=np.float32
        )
        parameter.copy_(torch.from_numpy(drawn).mul_(2 * bound).sub_(bound).view_as(parameter))


class FeatureTagging(Workload):
    """The workload that trains a tagger on the vectors of a frozen encoder.

    Args:
        model: the tagger.
        task: provides loss, predictions and scores.
        train: vectors of the training sentences, with targets.
        dev: sentences with gold tags and their vectors, to evaluate on; or None.
        encoder: the source of the vectors; only its tokenizer and its device are used, not its parameters.
        settings: batch size and epochs.
        seed: for the order of the sentences.
    """

    model: BiLSTMTagger

    def __init__(
        self,
        model: BiLSTMTagger,
        task: TaggingTask,
        train: WordVectors,
        dev: tuple[Sequence[Example], WordVectors] | None,
        encoder: FrozenEncoder,
        settings: TaggerSettings,
        *,
        seed: int,
    ) -> None:
        self.device = encoder.runtime.device
        self.model = model.to(encoder.runtime.torch_device)
        self.task, self.train, self.dev, self.tokenizer = task, train, dev, encoder.tokenizer
        self.settings, self.seed = settings, seed

    def sentences_of_step(self, step: int) -> Ints:
        """The sentences of a step, int64 [batch size]: one permutation after another, each by (seed, epoch)."""
        return examples_of_step(self.seed, step, size=self.settings.batch_size, count=len(self.train.sentences))

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The micro-batches of a rank in a step; tokens are words."""
        return step_plan(
            self.train.sentences,
            self.sentences_of_step(step),
            micro_tokens=self.settings.micro_words,
            device="cpu",
            step=step,
            rank=rank,
            world=world,
        )

    def loss(self, model: nn.Module, micro_batch: TaskBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's contribution to the loss of its step, and sums for the log."""
        assert micro_batch.targets is not None, "the sentences have tags"
        logits = self._logits(model, self.train, micro_batch)
        on_device = dataclasses.replace(micro_batch, targets=micro_batch.targets.to(self.device))
        loss, sums = self.task.loss(logits, on_device)
        loss = loss / micro_batch.step_targets
        mix = self.model.mix
        if mix is not None and self.settings.mix_penalty:
            # The micro-batches of a step add up to the whole penalty.
            share = len(micro_batch.targets) / micro_batch.step_targets
            loss = loss + self.settings.mix_penalty * share * mix.penalty()
        return loss, sums

    def summarize(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The values of a log line."""
        return self.task.log_sums(sums)

    def higher_is_better(self) -> dict[str, bool]:
        """The score by which the best epoch is selected; none without dev sentences."""
        return {} if self.dev is None else {self.task.spec.metric: True}

    def evaluate(self, model: nn.Module, rank: Rank = ALONE) -> dict[str, float]:
        """The task's scores on the dev sentences; empty without any."""
        if self.dev is None:
            return {}
        sentences, words = self.dev
        logits = self.logits_of(model, words)
        return self.task.score(sentences, self.task.decode(sentences, words.sentences, logits, self.tokenizer))

    @torch.inference_mode()
    def logits_of(self, model: nn.Module, words: WordVectors) -> Logits:
        """The logits of all words, float32 [W, K]; the model is in evaluation mode."""
        found = np.empty((len(words.vectors), len(self.task.spec.labels)), dtype=np.float32)
        everything = np.arange(len(words.sentences), dtype=np.int64)
        for part in micro_batches(words.sentences, everything, micro_tokens=self.settings.micro_words, device="cpu"):
            found[part.chosen] = self._logits(model, words, part).cpu().numpy()
        return found

    def _logits(self, model: nn.Module, words: WordVectors, part: TaskBatch) -> Tensor:
        picked = torch.from_numpy(words.vectors[part.batch.token_ids.numpy()]).to(self.device)
        logits: Tensor = model(picked, part.batch.lengths)
        return logits


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerResult:
    """The result of training a tagger on frozen vectors.

    Attributes:
        model: the tagger of the best epoch.
        scores: the dev scores of that epoch; empty without dev sentences.
        shares: the learned weight of each chosen layer; empty if layers are concatenated or summed unweighted.
        steps: the number of steps.
        encoding_seconds: the time to compute the vectors.
        training_seconds: the training time, including evaluations.
        vector_bytes: the memory of the vectors.
    """

    model: BiLSTMTagger
    scores: Mapping[str, float]
    shares: tuple[float, ...]
    steps: int
    encoding_seconds: float
    training_seconds: float
    vector_bytes: int


def train_tagger(
    encoder: FrozenEncoder,
    task: TaggingTask,
    data: TaskData,
    out: Path | str,
    settings: TaggerSettings | None = None,
    recipe: RecipeSettings = TAGGER_RECIPE,
    *,
    resume: bool = False,
) -> TaggerResult:
    """A tagger on the vectors of a frozen encoder, trained in the run folder `out`.

    Args:
        encoder: the encoder.
        task: the tags, and how sentences are encoded and scored.
        data: training sentences, and dev sentences to select the best epoch.
        out: the run folder; new, unless `resume`.
        settings: layers, widths, epochs.
        recipe: learning rate and schedule.
        resume: resume the run in `out`, which must have the same settings and inputs.

    Raises:
        BertsmithError: model, data, settings or run folder do not fit; the message says which.
    """
    settings = settings or TaggerSettings()
    task.check(data.train, gold=True, training=True)
    task.check(data.dev, gold=True)
    require(bool(data.train), expected="training sentences", found="none", fix="name a file with tagged sentences")
    choice = encoder.choice(settings.layers)
    units = len(data.train)
    training = recipe.training(
        steps=max(1, int(units / settings.batch_size * settings.epochs)),
        epoch=round(units / settings.batch_size),
        keep_best=task.spec.metric if data.dev else None,
    )
    record = {"task": "feature-based tagging", "spec": task.spec.record(), "run": to_dict(settings)}
    record["train"] = to_dict(training)
    with locked_folder(Path(out), create=not resume):
        run = RunFolder.prepare(Path(out), record, {**data.digests, **encoder.digests}, resume=resume)
        started = time.monotonic()
        words = word_vectors(encoder, task, cast("Sequence[TaggedExample]", data.train), choice)
        dev = None
        if data.dev:
            dev = data.dev, word_vectors(encoder, task, cast("Sequence[TaggedExample]", data.dev), choice)
        encoding_seconds = time.monotonic() - started
        model = BiLSTMTagger(
            choice,
            encoder.hidden_size,
            len(task.spec.labels),
            width=settings.width,
            dropout=settings.dropout,
            learned=not settings.plain_sum,
            normalized=settings.normalized,
            seed=training.seed,
        )
        workload = FeatureTagging(model, task, words, dev, encoder, settings, seed=training.seed)
        outcome = train(workload, training, run)
    model.eval()
    return TaggerResult(
        model=model,
        scores=workload.evaluate(model),
        shares=() if model.mix is None else tuple(model.mix.shares().tolist()),
        steps=outcome.steps,
        encoding_seconds=encoding_seconds,
        training_seconds=outcome.seconds,
        vector_bytes=words.vectors.nbytes + (dev[1].vectors.nbytes if dev else 0),
    )
