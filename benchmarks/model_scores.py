"""Scores of a pre-trained model: its loss on fixed held-out rows with fixed masks, and what its vectors know of tasks.

Every model is scored by the same code, whatever trained it.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feature_probe import FeatureProbe
from labelled_rows import trec

from bertsmith.base.core.randomness import generator
from bertsmith.models.checkpoints.assembly import load_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.encoding.row_encoder import RowEncoder
from bertsmith.tasks.specs.classification import ClassificationTask
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.task_data.task_files import read_examples
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.pretraining.held_out_scores import HeldOutRows
from bertsmith.training.pretraining.ngram_baseline import NgramBaseline

PROBE_ROWS = 5000
PROBE_LENGTH = 128  # tokens
PROBE_PENALTY = 10.0


def baseline_scores(rows: HeldOutRows, corpus: Corpus) -> dict[str, dict[str, float]]:
    """Loss in nats and top-5 share of the unigram and the bigram model of the training documents."""
    unigram, bigram = rows.counted_scores(NgramBaseline.of(corpus, len(corpus.vocabulary), corpus.vocabulary.spare_ids))
    return {
        name: {"loss": round(scores.loss, 4), "top5": round(scores.top, 4)}
        for name, scores in (("unigram", unigram), ("bigram", bigram))
    }


def folder_scores(rows: HeldOutRows, folder: Path) -> dict[str, float]:
    """Loss, accuracy and top-5 accuracy on masked pieces of the model in a folder, in fp32."""
    return model_scores(rows, load_pretrained(load_any(str(folder))).model)


def model_scores(rows: HeldOutRows, model: Any) -> dict[str, float]:
    """The same of a model, which may be one of another project that is called in the same way."""
    scores = rows.scores(model)
    return {"loss": round(scores.loss, 4), "accuracy": round(scores.accuracy, 4), "top5": round(scores.top, 4)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeTask:
    """A task for logistic regression on frozen mean vectors, of the last layer or of all layers side by side."""

    task: ClassificationTask
    train: Sequence[TextExample]
    test: Sequence[TextExample]

    def accuracy(self, model: Path | RowEncoder, *, all_layers: bool = False) -> float:
        """The accuracy on the test rows.

        Args:
            model: its folder, or its encoder.
            all_layers: reads the mean vectors of the embeddings and of each layer, side by side.
        """
        encoder = load_frozen_encoder(model, device="cpu") if isinstance(model, Path) else model
        layers = ",".join(map(str, range(encoder.model.num_layers + 1))) if all_layers else "last"
        probe = FeatureProbe(encoder, self.task, penalty=PROBE_PENALTY, layers=layers)
        probe.fit(self.train)
        return round(probe.score(self.test)["accuracy"], 4)


def probe_tasks(data: Path) -> dict[str, ProbeTask]:
    """SST-2 (scored on its dev set) and TREC (six kinds of question, scored on its test set) from the data folder."""
    sst2 = data / "glue" / "SST-2"
    questions = data / "cls" / "nltk" / "qc"
    return {
        "sst-2": _probe_task(_sst2(sst2 / "train.tsv"), _sst2(sst2 / "dev.tsv")),
        "trec": _probe_task(_trec(questions / "train.txt"), _trec(questions / "test.txt")),
    }


def _probe_task(train: Sequence[TextExample], test: Sequence[TextExample]) -> ProbeTask:
    drawn = generator(0, "probe rows").permutation(len(train))[:PROBE_ROWS]
    chosen = [train[index] for index in sorted(drawn.tolist())]
    task = task_for(spec_for("classification", chosen, TaskSettings(max_length=PROBE_LENGTH)))
    assert isinstance(task, ClassificationTask)
    return ProbeTask(task=task, train=chosen, test=test)


def _sst2(path: Path) -> Sequence[TextExample]:
    return [
        example for example in read_examples("sst-2", path, training=True).examples if isinstance(example, TextExample)
    ]


def _trec(path: Path) -> Sequence[TextExample]:
    return [TextExample(id=str(number), first=text, label=kind) for number, (text, kind) in enumerate(trec(path))]
