"""Scores of a pre-trained model: its loss on fixed held-out rows with fixed masks, and what its vectors know of tasks.

Every model is read from its folder by the same code, whatever trained it.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from bertsmith.checkpoints.assembly import load_pretrained
from bertsmith.checkpoints.load import load_any
from bertsmith.corpus.shards import Corpus
from bertsmith.datasets.examples import TextExample
from bertsmith.encoding.loading import load_frozen_encoder
from bertsmith.finetuning.probe import FeatureProbe
from bertsmith.model.batch import cut_by_tokens, gather_rows
from bertsmith.pretraining.masking import Masker
from bertsmith.pretraining.ngram_baseline import NgramBaseline
from bertsmith.pretraining.settings import PretrainingDataSettings
from bertsmith.pretraining.stream import Cursor, PretrainingStream
from bertsmith.pretraining.targets import Targets
from bertsmith.randomness import generator
from bertsmith.tasks.classification import ClassificationTask
from bertsmith.tasks.kinds import task_for
from bertsmith.tasks.named_tasks import read_examples, spec_for
from bertsmith.tasks.settings import TaskSettings

MICRO_TOKENS = 2048
TOP = 5
PROBE_ROWS = 1000
PROBE_LENGTH = 128  # tokens
PROBE_PENALTY = 10.0
ENCODING = "latin-1"  # of TREC


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeldOutRows:
    """Masked rows of held-out documents.

    Attributes:
        segment_ids: int32 [T].
        lengths: int64 [N], tokens of each row.
        targets: the masked rows, the positions and what belongs there.
    """

    segment_ids: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]
    targets: Targets

    @classmethod
    def of(cls, corpus: Corpus, *, length: int, rows: int) -> "HeldOutRows":
        """Rows of at most `length` tokens, 15 % of them masked, the same at every call."""
        held_out = corpus.held_out()
        assert held_out is not None
        settings = PretrainingDataSettings(
            objective="mlm", max_length=length, short_sequence_probability=0.0, dupe_factor=1, seed=0
        )
        stream = PretrainingStream(held_out, settings, corpus.vocabulary)
        found = stream.materialise(stream.take(Cursor(), min(rows, stream.num_instances(0)))[0])
        masked = Masker(corpus.vocabulary, settings).mask_rows(found.token_ids, found.lengths, found.keys)
        return cls(segment_ids=found.segment_ids, lengths=found.lengths, targets=masked)

    def baselines(self, corpus: Corpus) -> dict[str, dict[str, float]]:
        """Loss in nats and top-5 share of the unigram and the bigram model of the training documents."""
        model, targets = NgramBaseline.of(corpus, len(corpus.vocabulary)), self.targets
        unigram = model.unigram_scores(targets.target_ids, top=TOP)
        bigram = model.bigram_scores(targets.token_ids, targets.positions, targets.target_ids, top=TOP)
        return {
            name: {"loss": round(scores.loss, 4), "top5": round(scores.top, 4)}
            for name, scores in (("unigram", unigram), ("bigram", bigram))
        }

    @torch.inference_mode()
    def scores(self, folder: Path) -> dict[str, float]:
        """Loss in nats, accuracy, and the share of masked pieces among the first five guesses, in fp32."""
        model, targets = load_pretrained(load_any(str(folder))).model.eval(), self.targets
        nll, first, among = 0.0, 0, 0
        for part in cut_by_tokens(np.argsort(self.lengths, kind="stable"), self.lengths, MICRO_TOKENS):
            found = gather_rows(
                part,
                token_ids=targets.token_ids,
                segment_ids=self.segment_ids,
                lengths=self.lengths,
                wanted=targets.positions,
                wanted_per_row=targets.per_row,
            )
            gold = torch.from_numpy(targets.target_ids[found.chosen].astype(np.int64))
            logits = model(found.batch, read=found.read, masked=torch.arange(len(gold))).mlm_logits
            nll += float(F.cross_entropy(logits, gold, reduction="sum"))
            hits = logits.topk(TOP).indices == gold[:, None]
            first += int(hits[:, 0].sum())
            among += int(hits.sum())
        count = len(targets.positions)
        return {
            "loss": round(nll / count, 4),
            "accuracy": round(first / count, 4),
            "top5": round(among / count, 4),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeTask:
    """A task for logistic regression on frozen mean vectors of the last layer."""

    task: ClassificationTask
    train: Sequence[TextExample]
    test: Sequence[TextExample]

    def accuracy(self, folder: Path) -> float:
        """The accuracy on the test rows."""
        probe = FeatureProbe(load_frozen_encoder(folder, device="cpu"), self.task, penalty=PROBE_PENALTY)
        probe.fit(self.train)
        return round(probe.score(self.test)["accuracy"], 4)


def probe_tasks(data: Path) -> dict[str, ProbeTask]:
    """SST-2 (scored on its dev set) and TREC (six kinds of question, scored on its test set) from the data folder."""
    sst2 = data / "glue" / "SST-2"
    trec = data / "cls" / "nltk" / "qc"
    return {
        "sst-2": _probe_task(_sst2(sst2 / "train.tsv"), _sst2(sst2 / "dev.tsv")),
        "trec": _probe_task(_trec(trec / "train.txt"), _trec(trec / "test.txt")),
    }


def _probe_task(train: Sequence[TextExample], test: Sequence[TextExample]) -> ProbeTask:
    drawn = generator(0, "probe rows").permutation(len(train))[:PROBE_ROWS]
    chosen = [train[index] for index in sorted(drawn.tolist())]
    task = task_for(spec_for("classification", chosen, TaskSettings(max_length=PROBE_LENGTH)))
    assert isinstance(task, ClassificationTask)
    return ProbeTask(task=task, train=chosen, test=test)


def _sst2(path: Path) -> Sequence[TextExample]:
    return [one for one in read_examples("sst-2", path, training=True).examples if isinstance(one, TextExample)]


def _trec(path: Path) -> Sequence[TextExample]:
    """Questions with their coarse kinds, from lines like `NUM:dist How far is it from Denver to Aspen ?`."""
    lines = path.read_text(encoding=ENCODING).splitlines()
    return [
        TextExample(id=str(number), first=text, label=kind.split(":")[0])
        for number, line in enumerate(lines)
        for kind, _, text in [line.partition(" ")]
    ]
